//! The guest's `/init`: it reads or writes the disk, block by block at random places, by direct I/O. The kernel's command line has its
//! options: `depth=N` (requests at once, 1), `pause=US` (between two of a thread, 0), `write=1`, `busy=1` (computes, too).

use crate::Result;
use rustix::mount::{MountFlags, mount};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::Duration;

const DISK: &str = "/dev/vda";
const SECTORS: &str = "/sys/class/block/vda/size";
const BLOCK: usize = 4096;

/// A buffer as direct I/O needs it.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

pub fn run() -> Result<()> {
    mount("dev", "/dev", "devtmpfs", MountFlags::empty(), c"")?;
    mount("sys", "/sys", "sysfs", MountFlags::empty(), c"")?;
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (depth, pause) = (number("depth").unwrap_or(1), number("pause").unwrap_or(0));
    let writes = number("write").is_some();
    let mut options = OpenOptions::new();
    let direct = options
        .read(true)
        .write(writes)
        .custom_flags(libc::O_DIRECT);
    let sectors: u64 = fs::read_to_string(SECTORS)?.trim().parse()?;
    let blocks = sectors * 512 / BLOCK as u64;
    say("the guest uses its disk");
    thread::scope(|scope| {
        for number in 0..depth {
            let disk = direct.open(DISK)?;
            let uses = move || uses(&disk, number, blocks / depth, writes, pause);
            thread::Builder::new().spawn_scoped(scope, uses)?;
        }
        if number("busy").is_some() {
            let computes = || {
                loop {
                    std::hint::spin_loop();
                }
            };
            thread::Builder::new().spawn_scoped(scope, computes)?;
        }
        Ok(())
    })
}

/// Writes to the console, also of a kernel that is told to be quiet: as an error.
fn say(text: &str) {
    let _ = fs::write("/dev/kmsg", format!("<3>{text}\n"));
}

/// Requests of one thread, to its own part of the disk.
fn uses(disk: &File, part: u64, blocks: u64, writes: bool, pause: u64) {
    let mut block = Block([part as u8; BLOCK]);
    let mut random = fastrand::Rng::with_seed(part);
    loop {
        let at = (part * blocks + random.u64(..blocks)) * BLOCK as u64;
        let done = if writes {
            disk.write_all_at(&block.0, at)
        } else {
            disk.read_exact_at(&mut block.0, at)
        };
        if let Err(error) = done {
            say(&format!("the disk failed: {error}"));
            return;
        }
        if pause > 0 {
            thread::sleep(Duration::from_micros(pause));
        }
    }
}
