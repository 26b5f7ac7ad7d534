//! Behaviour of files: renamed or unlinked while open, locked, synced, mapped.

use super::properties::{Found, kept_if};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::ptr;

/// Name of a behaviour, and the function that tries it in a folder.
type Attempt = (&'static str, fn(&Path) -> Found);

/// In the order in which they are reported.
pub(super) const ALL: &[Attempt] = &[
    ("unlinked, but open", unlinked),
    ("renamed over, but open", renamed_over),
    ("byte-range locks", locks),
    ("fsync", fsync),
    ("writable mmap (MAP_SHARED)", mapped),
];

const PAGE: usize = 4096;

/// A file that is read, written and stretched after its last name went.
fn unlinked(folder: &Path) -> Found {
    let path = folder.join("unlinked");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    file.write_all(b"before ")?;
    fs::remove_file(&path)?;
    // The server or its client may keep it under another name.
    let mut names = fs::read_dir(folder)?.flatten().map(|e| e.file_name());
    let instead = names.find(|name| {
        let name = name.to_string_lossy();
        [".nfs", ".fuse_hidden"].iter().any(|s| name.starts_with(s))
    });
    let written = file.write_all(b"after");
    let text = written.and_then(|()| read_at_start(&file));
    let now = match file.metadata() {
        Ok(m) => format!("link count {}", m.nlink()),
        Err(e) => format!("fstat: {e}"),
    };
    let what = match text {
        Ok(text) if text == "before after" => now,
        Ok(text) => return kept_if(false, format!("reads {} of 12 bytes, {now}", text.len())),
        Err(e) => return kept_if(false, format!("{e}, {now}")),
    };
    match instead {
        Some(name) => kept_if(true, format!("{what}, as {}", name.to_string_lossy())),
        None => kept_if(true, what),
    }
}

fn read_at_start(file: &File) -> io::Result<String> {
    let mut bytes = [0; 64];
    let n = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

/// The old file stays readable by whom it is open; the name is the new one's, at once.
fn renamed_over(folder: &Path) -> Found {
    let [old, new] = ["old", "new"].map(|name| folder.join(name));
    fs::write(&old, "old")?;
    fs::write(&new, "new")?;
    let mut open = File::open(&old)?;
    fs::rename(&new, &old)?;
    let by_name = fs::read(&old)?;
    let mut by_descriptor = Vec::new();
    if let Err(e) = open.read_to_end(&mut by_descriptor) {
        return kept_if(false, format!("the file that was open: {e}"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (open, named) = (text(&by_descriptor), text(&by_name));
    let kept = named == "new" && open == "old" && !new.exists();
    kept_if(kept, format!("open: '{open}', by name: '{named}'"))
}

/// Asks for a write lock of the first ten bytes, of the open file description: two of one process exclude each other.
pub(super) fn lock(file: &File) -> io::Result<()> {
    // SAFETY: plain data for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 10;
    // SAFETY: the descriptor is open, and `lock` valid while the call lasts.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn locks(folder: &Path) -> Found {
    let path = folder.join("locked-twice");
    let one = File::create_new(&path)?;
    let two = File::options().write(true).open(&path)?;
    lock(&one)?;
    let excluded = matches!(lock(&two), Err(e) if [libc::EAGAIN, libc::EACCES].contains(&e.raw_os_error().unwrap_or(0)));
    drop(one);
    let freed = lock(&two);
    match (excluded, freed) {
        (true, Ok(())) => kept_if(true, "exclude each other, and end with close"),
        (true, Err(e)) => kept_if(false, format!("stay after close: {e}")),
        (false, _) => kept_if(false, "two at once"),
    }
}

/// The calls' answers. Whether the bytes reach the host's disk is seen by tracing the host.
fn fsync(folder: &Path) -> Found {
    let mut file = File::create_new(folder.join("synced"))?;
    file.write_all(b"synced")?;
    file.sync_all()?;
    match File::open(folder)?.sync_all() {
        Ok(()) => kept_if(true, "of a file and of its folder"),
        Err(e) => kept_if(true, format!("of a file, not of its folder: {e}")),
    }
}

/// Checks that data written through a shared mapping is read, and the other way round.
fn mapped(folder: &Path) -> Found {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(folder.join("mapped"))?;
    file.write_all_at(&[b'.'; PAGE], 0)?;
    // SAFETY: a new mapping where the kernel likes takes nothing from anyone.
    let start = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = start.cast::<u8>();
    // SAFETY: both bytes are within the mapping of a page, and nothing else refers to it.
    let (read, seen) = unsafe {
        start.write_volatile(b'm');
        let mut byte = [0];
        let read = file.read_exact_at(&mut byte, 0).map(|()| byte[0] == b'm');
        let seen = file
            .write_all_at(b"w", 1)
            .map(|()| start.add(1).read_volatile() == b'w');
        libc::munmap(start.cast(), PAGE);
        (read, seen)
    };
    kept_if(
        read? && seen?,
        "a mapping's bytes and a descriptor's are the same",
    )
}

/// Locked as long as the process stays.
pub(super) const LOCKED: &str = "locked";
/// Where the unlinked file is: alone, so that whatever is left of it shows.
pub(super) const UNLINKED: &str = "unlinked-and-held";
/// Enough to be missed on a disk.
const BYTES: usize = 1 << 20;

/// Starts it. It ends by itself after so many seconds, or with its machine.
pub(super) fn leave_process(folder: &Path, seconds: u32) -> io::Result<()> {
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
