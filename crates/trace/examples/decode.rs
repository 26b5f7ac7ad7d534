//! Decodes a trace to typed fields and prints what it counted.
//!
//! ```text
//! decode FOLDER [SYSTEM.EVENT.FIELD]
//! ```

use vmtax_trace::{Entry, Folder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = Folder::open(arguments.next().ok_or("decode FOLDER [SYSTEM.EVENT.FIELD]")?.as_ref())?;
    let wanted = arguments.next();
    let mut events = folder.events()?;
    let (mut last, mut n) = (0, 0u64);
    let _ = wanted;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            last = event.ticks;
            n += 1;
        }
    }
    println!("{n} {last} {:?}", events.counts());
    Ok(())
}
