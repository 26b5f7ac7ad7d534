//! The files that a process has open: they show a VMM's disks, taps and vCPUs without its monitor.

use crate::kvm::holders::vcpu_number;
use crate::kvm::vcpu_threads::VcpuDescriptors;
use crate::qemu::arguments::path_of;
use rustix::fs::statfs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};
use vmtax_model::VmNic;

/// QEMU locks bytes of an image file from here on, as `block/file-posix.c` has it (`RAW_LOCK_PERM_BASE`).
const IMAGE_LOCKS: std::ops::Range<u64> = 100..300;
/// `O_ACCMODE`, `O_WRONLY` and `O_DIRECT` of x86-64.
const ACCESS: u32 = 0o3;
const WRITE_ONLY: u32 = 0o1;
const READ_ONLY: u32 = 0o0;
const READ_WRITE: u32 = 0o2;
const DIRECT: u32 = 0o40_000;
/// `O_APPEND`, as logs have it.
const APPEND: u32 = 0o2_000;
/// Bytes of a sector: a disk has a whole number of them.
const SECTOR: u64 = 512;
/// Beginnings of the names of files that are memory, besides those of a file system of huge pages.
const MEMORY: [&str; 2] = ["/memfd:", "/dev/shm/"];
/// The kind of a file system of huge pages (include/uapi/linux/magic.h).
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// A file that a process has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    /// Number of the descriptor in that process.
    pub fd: i32,
    /// Name of the file: a path as the process sees it, or `anon_inode:[…]` and the like.
    pub name: PathBuf,
    /// Path of the file for other processes, also where they see no such path.
    pub path: PathBuf,
    /// The kernel's lines about it.
    info: String,
}

/// The files that a process has open.
///
/// # Errors
/// Where they may not be seen.
pub(crate) fn open_files(pid: i32) -> io::Result<Vec<OpenFile>> {
    let file = |entry: fs::DirEntry| {
        let name = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.to_str()?))
            .unwrap_or_default();
        Some(OpenFile {
            fd: number.to_str()?.parse().ok()?,
            name,
            path: entry.path(),
            info,
        })
    };
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .filter_map(file)
        .collect())
}

/// Returns the descriptors of a file by the name that the process `pid` has for it. After `-daemonize` QEMU works in another
/// directory than its command line was written in: a relative name is then the only path that ends with it.
pub(crate) fn opened_as<'a>(files: &'a [OpenFile], pid: i32, name: &Path) -> Vec<&'a OpenFile> {
    let path = path_of(pid, name);
    let found: Vec<&OpenFile> = files.iter().filter(|file| file.is_at(&path)).collect();
    if !found.is_empty() || name.is_absolute() {
        return found;
    }
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let names: Vec<Component<'_>> = name.components().rev().take_while(is_name).collect();
    let end: PathBuf = names.iter().rev().collect();
    let ending: Vec<&OpenFile> = files
        .iter()
        .filter(|file| !names.is_empty() && file.name.ends_with(&end))
        .collect();
    let is_one_file = ending.windows(2).all(|pair| pair[0].name == pair[1].name);
    if is_one_file { ending } else { Vec::new() }
}

impl OpenFile {
    /// The vCPU of KVM's that it is.
    pub fn vcpu(&self) -> Option<u32> {
        vcpu_number(self.name.as_os_str().as_bytes())
    }

    /// Returns true if the file is read past the page cache.
    pub fn is_direct(&self) -> bool {
        self.flags() & DIRECT != 0
    }

    /// Returns true if the descriptor is open for reading only.
    pub fn is_read_only(&self) -> bool {
        self.flags() & ACCESS == READ_ONLY
    }

    /// Returns true for a disk's image, as far as that shows: a block device, or a file that is locked as QEMU locks
    /// images.
    pub fn is_disk(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        let Ok(kind) = fs::metadata(&self.path).map(|data| data.file_type()) else {
            return false;
        };
        let is_locked = self.lines("lock").any(|lock| {
            let from = lock
                .split_ascii_whitespace()
                .rev()
                .nth(1)
                .and_then(|from| from.parse().ok());
            lock.contains("OFDLCK") && from.is_some_and(|from| IMAGE_LOCKS.contains(&from))
        });
        self.flags() & ACCESS != WRITE_ONLY
            && (kind.is_block_device() || (kind.is_file() && is_locked))
    }

    /// Returns true for what may be a disk of a VMM that does not lock its images: a block device, or a file of whole sectors that is
    /// read and written, and neither a log nor memory.
    pub fn may_be_image(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        let Ok(data) = fs::metadata(&self.path) else {
            return false;
        };
        let is_memory = || {
            let name = self.name.to_string_lossy();
            let in_huge_pages = || statfs(&self.path).is_ok_and(|on| on.f_type == HUGETLBFS_MAGIC);
            MEMORY.iter().any(|begin| name.starts_with(begin)) || in_huge_pages()
        };
        let flags = self.flags();
        let is_image = || {
            let is_whole = data.len() > 0 && data.len() % SECTOR == 0;
            data.is_file() && is_whole && flags & ACCESS == READ_WRITE && flags & APPEND == 0
        };
        let is_device = data.file_type().is_block_device() && flags & ACCESS != WRITE_ONLY;
        is_device || (is_image() && !is_memory())
    }

    /// Returns true if this is the file at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let id = |path: &Path| {
            fs::metadata(path)
                .map(|data| (data.dev(), data.ino(), data.rdev()))
                .ok()
        };
        id(&self.path).is_some_and(|own| id(path) == Some(own))
    }

    /// Returns true if this is a queue of the tap `name`.
    pub fn is_tap(&self, name: &str) -> bool {
        self.lines("iff").any(|tap| tap == name)
    }

    /// Returns true for vhost-vsock's device: the guest has a vsock of the host's kernel.
    pub fn is_vhost_vsock(&self) -> bool {
        self.name == Path::new("/dev/vhost-vsock")
    }

    /// Returns true for vhost-net's device: the kernel moves packets of a tap.
    pub fn is_vhost_net(&self) -> bool {
        self.name == Path::new("/dev/vhost-net")
    }

    fn flags(&self) -> u32 {
        self.lines("flags")
            .next()
            .and_then(|octal| u32::from_str_radix(octal, 8).ok())
            .unwrap_or(0)
    }

    fn lines<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.info
            .lines()
            .filter_map(move |line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
    }
}

/// The vCPUs of KVM's among a VMM's files.
pub(crate) fn vcpu_descriptors(files: &[OpenFile]) -> VcpuDescriptors {
    let vcpus = files.iter();
    vcpus
        .filter_map(|file| Some((file.fd, file.vcpu()?)))
        .collect()
}

/// The tap devices among a VMM's files.
pub(crate) fn nics(files: &[OpenFile]) -> Vec<VmNic> {
    let vhost = files.iter().any(OpenFile::is_vhost_net);
    let mut nics: Vec<VmNic> = Vec::new();
    for tap in files.iter().flat_map(|file| file.lines("iff")) {
        match nics.iter_mut().find(|nic| nic.tap == tap) {
            Some(nic) => nic.queues += 1,
            None => nics.push(VmNic {
                tap: tap.to_owned(),
                queues: 1,
                vhost,
            }),
        }
    }
    nics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, path: &Path, info: &str) -> OpenFile {
        OpenFile {
            fd: 3,
            name: name.into(),
            path: path.into(),
            info: info.to_owned(),
        }
    }

    #[test]
    fn images_are_known_by_their_locks_and_flags() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let locked = "flags:\t02140002\nlock:\t1: OFDLCK ADVISORY  READ -1 fe:00:1 100 101\n";
        let disk = file("/d.raw", image.path(), locked);
        assert!(
            disk.is_disk() && disk.is_direct() && !disk.is_read_only() && disk.is_at(image.path())
        );
        let pid_file = "flags:\t0100002\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1 0 EOF\n";
        assert!(!file("/q.pid", image.path(), pid_file).is_disk());
        assert!(!file("/log", image.path(), &locked.replace("02140002", "0101")).is_disk());
        assert_eq!(
            file("anon_inode:kvm-vcpu:12", Path::new("/"), "").vcpu(),
            Some(12)
        );
    }

    #[test]
    fn a_relative_name_is_found_after_the_process_has_changed_its_directory() {
        let files = [
            "/vm/a/disk.raw",
            "/vm/b/disk.raw",
            "/vm/a/disk.raw",
            "/vm/log",
        ]
        .map(|name| file(name, Path::new("/dev/null"), ""));
        let found = |name: &str| -> Vec<&Path> {
            opened_as(&files, i32::MAX, Path::new(name))
                .iter()
                .map(|file| file.name.as_path())
                .collect()
        };
        assert_eq!(found("a/disk.raw"), [Path::new("/vm/a/disk.raw"); 2]);
        assert_eq!(found("../x/../b/disk.raw"), [Path::new("/vm/b/disk.raw")]);
        assert_eq!(found("./log"), [Path::new("/vm/log")]);
        // Two files have this name, none of them surely the process's; an absolute name is none of another directory's.
        for other in ["disk.raw", "isk.raw", "/log", "..", ""] {
            assert!(found(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn queues_of_a_tap_are_one_interface() {
        let tap = |name: &str| {
            file(
                "/dev/net/tun",
                Path::new("/dev/null"),
                &format!("flags:\t02\niff:\t{name}\n"),
            )
        };
        let files = [
            tap("tap0"),
            tap("tap1"),
            tap("tap0"),
            file("/dev/vhost-net", Path::new("/"), ""),
        ];
        let nic = |tap: &str, queues| VmNic {
            tap: tap.to_owned(),
            queues,
            vhost: true,
        };
        assert_eq!(nics(&files), [nic("tap0", 2), nic("tap1", 1)]);
        assert!(
            open_files(std::process::id() as i32)
                .unwrap()
                .iter()
                .all(|own| own.vcpu().is_none())
        );
        assert!(open_files(i32::MAX).is_err());
    }
}
