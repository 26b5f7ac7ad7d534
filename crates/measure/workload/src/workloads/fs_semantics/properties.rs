//! Properties of files, and their behaviour: renamed or unlinked while open, locked, synced, mapped. The checks of
//! properties open nothing and follow no link: on the host's side a guest may have put anything there.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use vmtax_model::Keeping;

/// Result of an attempt. An error of the system is a refusal.
pub(super) type Found = io::Result<(Keeping, String)>;

/// A property of files that is tried.
pub(super) struct Property {
    pub what: &'static str,
    /// Makes what is checked, in the folder given.
    pub set: fn(&Path) -> io::Result<()>,
    /// Function that checks the property, in the folder given.
    pub check: fn(&Path) -> Found,
}

const fn property(
    what: &'static str,
    set: fn(&Path) -> io::Result<()>,
    check: fn(&Path) -> Found,
) -> Property {
    Property { what, set, check }
}

pub(super) fn kept_if(kept: bool, detail: impl Into<String>) -> Found {
    Ok((
        if kept { Keeping::Kept } else { Keeping::Lost },
        detail.into(),
    ))
}

/// The properties in the order in which they are reported.
pub(super) const ALL: &[Property] = &[
    property("owner and group", set_owner, check_owner),
    property(
        "mode",
        |f| set_mode(f, "mode", 0o641),
        |f| check_mode(f, "mode", 0o641),
    ),
    property(
        "set-uid",
        |f| set_mode(f, "set-uid", 0o4755),
        |f| check_mode(f, "set-uid", 0o4755),
    ),
    property(
        "set-gid",
        |f| set_mode(f, "set-gid", 0o2755),
        |f| check_mode(f, "set-gid", 0o2755),
    ),
    property(
        "user xattr",
        |f| set_xattr(f, USER),
        |f| check_xattr(f, USER),
    ),
    property(
        "trusted xattr",
        |f| set_xattr(f, TRUSTED),
        |f| check_xattr(f, TRUSTED),
    ),
    property(
        "security xattr",
        |f| set_xattr(f, SECURITY),
        |f| check_xattr(f, SECURITY),
    ),
    property("SELinux label", set_label, check_label),
    property("symlink", set_symlink, check_symlink),
    property("hard link", set_hard_link, check_hard_link),
    property(
        "character device",
        |f| node(f, DEVICE, FileType::CharacterDevice),
        check_device,
    ),
    property(
        "FIFO",
        |f| node(f, "fifo", FileType::Fifo),
        |f| check_type(f, "fifo", |t| t.is_fifo(), "FIFO"),
    ),
    property(
        "socket",
        |f| node(f, "socket", FileType::Socket),
        |f| check_type(f, "socket", |t| t.is_socket(), "socket"),
    ),
    property("nanosecond mtime", set_times, check_times),
    property("case-sensitive names", set_case, check_case),
    property(
        "names of 255 bytes",
        |f| make(&f.join(long_name())).map(drop),
        |f| check_listed(f, &long_name()),
    ),
    property(
        "names of any bytes",
        |f| make(&f.join(odd_name())).map(drop),
        |f| check_listed(f, &odd_name()),
    ),
    property("sparse file", set_sparse, check_sparse),
];

const OWNER: (u32, u32) = (12_345, 23_456);
/// An extended attribute of a file.
struct Xattr {
    file: &'static str,
    name: &'static str,
    value: &'static [u8],
}

const fn xattr(file: &'static str, name: &'static str, value: &'static [u8]) -> Xattr {
    Xattr { file, name, value }
}

const USER: Xattr = xattr("user-xattr", "user.vmtax", b"kept");
const TRUSTED: Xattr = xattr("trusted-xattr", "trusted.vmtax", b"kept");
const SECURITY: Xattr = xattr("security-xattr", "security.vmtax", b"kept");
const LABEL: Xattr = xattr("label", "security.selinux", b"system_u:object_r:tmp_t:s0\0");
const TARGET: &str = "no/such/../target";
const DEVICE: &str = "device";
/// Not the null device: where a device node is what it says, opening this does nothing.
const NUMBER: (u32, u32) = (60, 61);
/// 2001-09-09 and some nanoseconds.
const TIME: Timespec = Timespec {
    tv_sec: 1_000_000_007,
    tv_nsec: 123_456_789,
};
const HOLE: u64 = 16 << 20;

/// A new file; what was there before is no business of anybody's, since the folder is.
fn make(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
}

fn set_owner(folder: &Path) -> io::Result<()> {
    let path = folder.join("owner");
    make(&path)?;
    std::os::unix::fs::lchown(path, Some(OWNER.0), Some(OWNER.1))
}

fn check_owner(folder: &Path) -> Found {
    let found = fs::symlink_metadata(folder.join("owner"))?;
    let found = (found.uid(), found.gid());
    kept_if(
        found == OWNER,
        format!("{}:{} of {}:{}", found.0, found.1, OWNER.0, OWNER.1),
    )
}

fn set_mode(folder: &Path, name: &str, mode: u32) -> io::Result<()> {
    let path = folder.join(name);
    make(&path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn check_mode(folder: &Path, name: &str, mode: u32) -> Found {
    let found = fs::symlink_metadata(folder.join(name))?.mode() & 0o7777;
    kept_if(found == mode, format!("{found:04o} of {mode:04o}"))
}

fn set_xattr(folder: &Path, Xattr { file, name, value }: Xattr) -> io::Result<()> {
    let path = folder.join(file);
    make(&path)?;
    Ok(rustix::fs::lsetxattr(
        path,
        name,
        value,
        XattrFlags::empty(),
    )?)
}

fn check_xattr(folder: &Path, Xattr { file, name, value }: Xattr) -> Found {
    let mut room = [0u8; 256];
    match rustix::fs::lgetxattr(folder.join(file), name, &mut room[..]) {
        Ok(n) => kept_if(
            room.get(..n) == Some(value),
            format!("{name}, {n} bytes of {}", value.len()),
        ),
        Err(rustix::io::Errno::NODATA) => kept_if(false, format!("{name} is not there")),
        Err(e) => Err(e.into()),
    }
}

fn set_label(folder: &Path) -> io::Result<()> {
    set_xattr(folder, LABEL).map_err(|e| io::Error::new(e.kind(), format!("{e}; {}", selinux())))
}

fn check_label(folder: &Path) -> Found {
    check_xattr(folder, LABEL)
        .map(|(keeping, detail)| (keeping, format!("{detail}; {}", selinux())))
}

/// Returns the meaning of a security label on this side: SELinux's, or an attribute like others.
fn selinux() -> &'static str {
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if has_selinux(&kinds) {
        "SELinux is active: its policy, or the mount option context=, may replace the label"
    } else {
        "SELinux is not active: an attribute like others, without the mount option context="
    }
}

/// Returns true if the kernel lists `selinuxfs`, which it registers only if it was booted with SELinux enabled.
fn has_selinux(filesystems: &str) -> bool {
    filesystems
        .lines()
        .any(|line| line.split_whitespace().last() == Some("selinuxfs"))
}

fn set_symlink(folder: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(TARGET, folder.join("symlink"))
}

fn check_symlink(folder: &Path) -> Found {
    let path = folder.join("symlink");
    if !fs::symlink_metadata(&path)?.is_symlink() {
        return kept_if(false, "it is not a symlink");
    }
    let target = fs::read_link(&path)?;
    kept_if(
        target == Path::new(TARGET),
        format!("to {}", target.display()),
    )
}

fn set_hard_link(folder: &Path) -> io::Result<()> {
    make(&folder.join("link-1"))?;
    fs::hard_link(folder.join("link-1"), folder.join("link-2"))
}

fn check_hard_link(folder: &Path) -> Found {
    let [one, two] = ["link-1", "link-2"].map(|name| fs::symlink_metadata(folder.join(name)));
    let (one, two) = (one?, two?);
    let same = if one.ino() == two.ino() {
        "one inode"
    } else {
        "two inodes"
    };
    kept_if(
        one.ino() == two.ino() && one.nlink() == 2,
        format!("{same}, link count {}", one.nlink()),
    )
}

fn node(folder: &Path, name: &str, kind: FileType) -> io::Result<()> {
    let number = rustix::fs::makedev(NUMBER.0, NUMBER.1);
    Ok(rustix::fs::mknodat(
        CWD,
        folder.join(name),
        kind,
        Mode::RUSR | Mode::WUSR,
        number,
    )?)
}

fn check_device(folder: &Path) -> Found {
    let found = fs::symlink_metadata(folder.join(DEVICE))?;
    let number = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    let is = if found.file_type().is_char_device() {
        "a character device"
    } else {
        "no character device"
    };
    kept_if(
        found.file_type().is_char_device() && number == NUMBER,
        format!("{is}, {}:{}", number.0, number.1),
    )
}

fn check_type(folder: &Path, name: &str, is_type: fn(&fs::FileType) -> bool, noun: &str) -> Found {
    let is = is_type(&fs::symlink_metadata(folder.join(name))?.file_type());
    kept_if(is, format!("{} {noun}", if is { "a" } else { "no" }))
}

fn set_times(folder: &Path) -> io::Result<()> {
    let path = folder.join("times");
    make(&path)?;
    let times = Timestamps {
        last_access: TIME,
        last_modification: TIME,
    };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn check_times(folder: &Path) -> Found {
    let found = fs::symlink_metadata(folder.join("times"))?;
    let (seconds, ns) = (found.mtime(), found.mtime_nsec());
    if seconds != TIME.tv_sec {
        return kept_if(false, format!("{seconds} s of {} s", TIME.tv_sec));
    }
    let steps = [
        (1, "1 ns"),
        (100, "100 ns"),
        (1000, "1 µs"),
        (1_000_000, "1 ms"),
        (1_000_000_000, "1 s"),
    ];
    let step = steps
        .iter()
        .find(|(step, _)| TIME.tv_nsec / step * step == ns);
    kept_if(
        ns == TIME.tv_nsec,
        step.map_or(format!("{ns} ns of {} ns", TIME.tv_nsec), |(_, s)| {
            format!("to {s}")
        }),
    )
}

fn set_case(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("Case"), "CASE!")?;
    fs::write(folder.join("case"), "case")
}

fn check_case(folder: &Path) -> Found {
    let length = |name: &str| fs::symlink_metadata(folder.join(name)).map(|m| m.len());
    let two = length("Case")? == 5 && length("case")? == 4;
    kept_if(two, if two { "two files" } else { "one file" })
}

fn long_name() -> PathBuf {
    "n".repeat(255).into()
}

fn odd_name() -> PathBuf {
    OsStr::from_bytes(b"a\x01 \\\"\xff:*?\nz").into()
}

fn check_listed(folder: &Path, name: &Path) -> Found {
    let there = fs::symlink_metadata(folder.join(name)).is_ok();
    let listed = fs::read_dir(folder)?.any(|e| e.is_ok_and(|e| Path::new(&e.file_name()) == name));
    kept_if(
        there && listed,
        match (there, listed) {
            (true, true) => "found and listed",
            (true, false) => "found, not listed",
            (false, true) => "listed, not found",
            (false, false) => "not there",
        },
    )
}

fn set_sparse(folder: &Path) -> io::Result<()> {
    let file = make(&folder.join("sparse"))?;
    file.write_all_at(b"end", HOLE)?;
    file.sync_all()
}

fn check_sparse(folder: &Path) -> Found {
    let found = fs::symlink_metadata(folder.join("sparse"))?;
    let (bytes, length) = (found.blocks() * 512, HOLE + 3);
    kept_if(
        found.len() == length && bytes < HOLE,
        format!("{} KiB of {} KiB take room", bytes >> 10, length >> 10),
    )
}

/// Name of a behaviour, and the function that tries it in a folder.
type Attempt = (&'static str, fn(&Path) -> Found);

/// In the order in which they are reported.
pub(super) const BEHAVIOURS: &[Attempt] = &[
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
        Ok(()) => kept_if(true, "of a file and of its directory"),
        Err(e) => kept_if(true, format!("of a file, not of its directory: {e}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selinux_is_seen_by_its_file_system() {
        assert!(has_selinux("nodev\tsysfs\nnodev\tselinuxfs\n\text4\n"));
        assert!(!has_selinux("nodev\tsysfs\nnodev\tsecurityfs\n\text4\n") && !has_selinux(""));
    }

    #[test]
    fn a_label_says_whether_there_is_selinux() {
        let folder = tempfile::tempdir().unwrap();
        let found = set_label(folder.path()).and_then(|()| check_label(folder.path()));
        let said = found.map_or_else(|e| e.to_string(), |(_, detail)| detail);
        assert!(said.contains("SELinux"), "{said}");
    }
}
