//! Decodes a trace of any kind, one field of each event of one kind, and prints what came out and how fast.
//!
//! ```text
//! decode folder DIR SYSTEM.EVENT.FIELD
//! decode dat|perf FILE SYSTEM.EVENT.FIELD
//! decode simple|log FILE qemu.EVENT.FIELD TRACE-EVENTS-ALL
//! decode make DIR EVENTS
//! ```
//!
//! `make` writes a trace folder of so many events: those of the recording in the tests, again and again, with their
//! records, gaps and CPUs.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use vmtax_trace::{Dat, Entry, Events, Folder, Formats, Perf, QemuEvents};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["make", folder, events] => make(folder.as_ref(), events.parse()?),
        ["folder", path, field] => {
            let folder = Folder::open(path.as_ref())?;
            decode(folder.formats(), folder.events()?, field)
        }
        ["dat", path, field] => {
            let dat = Dat::open(path.as_ref())?;
            decode(dat.formats(), dat.events()?, field)
        }
        ["perf", path, field] => {
            let perf = Perf::open(path.as_ref())?;
            decode(perf.formats(), perf.events()?, field)
        }
        ["simple", path, field, list] => {
            let qemu = QemuEvents::open(list.as_ref())?;
            decode(qemu.formats(), qemu.simple(path.as_ref())?, field)
        }
        ["log", path, field, list] => {
            let qemu = QemuEvents::open(list.as_ref())?;
            decode(qemu.formats(), qemu.log(path.as_ref())?, field)
        }
        _ => Err("decode folder|dat|perf PATH SYSTEM.EVENT.FIELD, simple|log PATH SYSTEM.EVENT.FIELD LIST, make DIR N"
            .into()),
    }
}

fn decode(formats: &Formats, mut events: Events<'_>, field: &str) -> Result<(), Fault> {
    let mut parts = field.splitn(3, '.');
    let mut part = || parts.next().ok_or("a field is SYSTEM.EVENT.FIELD");
    let id = formats
        .event(part()?, part()?)
        .ok_or("no such event in the trace")?;
    let field = formats
        .field(id, part()?)
        .ok_or("no such field of that event")?;

    let begin = Instant::now();
    let (mut ticks, mut sum, mut found) = (0, 0_u64, 0_u64);
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            ticks = event.ticks;
            if event.id == id {
                sum = sum.wrapping_add(field.unsigned(event.data).unwrap_or(0));
                found += 1;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:?}", events.counts());
    println!(
        "events {} found {found} sum {sum} last {ticks}",
        events.counts().events
    );
    let status = fs::read_to_string("/proc/self/status")?;
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("no VmHWM in /proc/self/status")?;
    println!("seconds {seconds:.6} memory {}", memory.trim());
    Ok(())
}

const PAGE: usize = 4096;
const HEADER: usize = 16;
const MAX_DELTA: u64 = 1 << 27;

/// The pages of one CPU in the making.
struct Pages {
    file: File,
    page: Vec<u8>,
    now: u64,
}

impl Pages {
    /// Adds an event as the kernel does; records of the templates have at most 28 words.
    fn add(&mut self, delta: u64, record: &[u8]) -> Result<(), Fault> {
        self.now += delta;
        if self.page.len() + 12 + record.len() > PAGE {
            self.write()?;
        }
        let first = self.page.is_empty();
        if first {
            self.page.extend(self.now.to_le_bytes());
            self.page.extend([0; 8]);
        }
        let mut delta = if first { 0 } else { delta };
        if delta >= MAX_DELTA {
            self.page
                .extend((30 | (((delta % MAX_DELTA) as u32) << 5)).to_le_bytes());
            self.page.extend(((delta / MAX_DELTA) as u32).to_le_bytes());
            delta = 0;
        }
        self.page
            .extend(((record.len() as u32 / 4) | ((delta as u32) << 5)).to_le_bytes());
        self.page.extend(record);
        Ok(())
    }

    fn write(&mut self) -> Result<(), Fault> {
        let length = self.page.len().saturating_sub(HEADER) as u64;
        self.page.resize(PAGE, 0);
        self.page[8..HEADER].copy_from_slice(&length.to_le_bytes());
        self.file.write_all(&self.page)?;
        self.page.clear();
        Ok(())
    }
}

fn make(folder: &Path, events: u64) -> Result<(), Fault> {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/host");
    fs::create_dir_all(folder.join("formats"))?;
    for name in ["header_page", "clock"] {
        fs::copy(real.join(name), folder.join(name))?;
    }
    for format in fs::read_dir(real.join("formats"))? {
        let format = format?;
        let copy = folder.join("formats").join(format.file_name());
        fs::copy(format.path(), copy)?;
    }
    // All events of the recording in their order: each goes to its CPU, so that pipes are filled in turn.
    let recorded = Folder::open(&real)?;
    let (mut templates, mut last) = (Vec::new(), None);
    let mut stream = recorded.events()?;
    while let Some(entry) = stream.next()? {
        if let Entry::Event(event) = entry {
            templates.push((
                event.ticks - last.unwrap_or(event.ticks),
                event.input as usize,
                event.data.to_vec(),
            ));
            last = Some(event.ticks);
        }
    }
    // Whoever reads pipes opens the folder before they are written.
    fs::write(folder.join("ready"), "")?;
    let mut pages = Vec::new();
    for cpu in 0..recorded.inputs().len() {
        // What is there stays: it may be a pipe.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(format!("made.cpu{cpu}.raw")))?;
        pages.push(Pages {
            file,
            page: Vec::new(),
            now: 1 << 40,
        });
    }
    let mut now = 1 << 40;
    for (_, (since, input, record)) in (0..events).zip(templates.iter().cycle()) {
        now += since;
        let pages = &mut pages[*input];
        pages.add(now - pages.now, record)?;
    }
    pages.iter_mut().try_for_each(Pages::write)
}
