//! A process that stays behind and holds what a guest's end would take away.

use super::behaviour::lock;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Locked as long as the process stays.
pub(super) const LOCKED: &str = "locked";
/// Where the unlinked file is: alone, so that whatever is left of it shows.
pub(super) const UNLINKED: &str = "unlinked-and-held";
/// Enough to be missed on a disk.
const BYTES: usize = 1 << 20;

/// Starts it. It ends by itself after so many seconds, or with its machine.
pub(super) fn start(folder: &Path, seconds: u32) -> io::Result<()> {
    let locked = File::create_new(folder.join(LOCKED))?;
    // Where locks are refused, `check_from_host` will find that nothing is locked.
    let _ = lock(&locked);
    let alone = folder.join(UNLINKED);
    std::fs::create_dir(&alone)?;
    let path = alone.join("held");
    let mut held = File::create_new(&path)?;
    held.write_all(&vec![b'h'; BYTES])?;
    std::fs::remove_file(&path)?;
    let kept = [locked.as_raw_fd(), held.as_raw_fd()];
    // The lowest free numbers are given first, so all that is open lies below, except a few.
    let limit = kept[0].max(kept[1]) + 64;
    // SAFETY: the child makes calls by number only and never returns from here: it closes every descriptor but the two,
    // so that whoever waits for the end of this process' output does not wait for it, and sleeps until the alarm.
    unsafe {
        let child = libc::syscall(libc::SYS_fork);
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            for other in (0..limit).filter(|fd| !kept.contains(fd)) {
                libc::syscall(libc::SYS_close, other);
            }
            libc::syscall(libc::SYS_setsid);
            libc::syscall(libc::SYS_alarm, seconds);
            loop {
                libc::syscall(libc::SYS_pause);
            }
        }
    }
    Ok(())
}
