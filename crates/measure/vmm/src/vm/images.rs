//! Disks of a guest by the files that its VMM has open.

use super::open_files::OpenFile;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use vmtax_model::VmDisk;
use vmtax_observe::{block_device_number, host_disk_in_use, lowest_device};

/// The first bytes of a database that VMMs and their libraries keep open.
const SQLITE: [u8; 16] = *b"SQLite format 3\0";

/// Endings of the names of what SQLite keeps beside a database.
const SQLITE_ENDINGS: [&[u8]; 3] = [b"-shm", b"-wal", b"-journal"];

/// A disk of which only the file is known.
pub(crate) fn named_disk(file: PathBuf) -> VmDisk {
    VmDisk {
        id: String::new(),
        file,
        format: None,
        direct: None,
        read_only: false,
        aio: None,
        iothread: None,
        host_device: None,
        own_device: None,
        extents: None,
    }
}

/// The disk of an open file, by its flags.
pub(crate) fn open_disk(file: &OpenFile) -> VmDisk {
    VmDisk {
        direct: Some(file.is_direct()),
        read_only: file.is_read_only(),
        ..named_disk(file.name.clone())
    }
}

/// Sets the host's block device beneath an open disk, and the extents of its file there.
pub(crate) fn set_host_device(disk: &mut VmDisk, file: &OpenFile) {
    let host = host_disk_in_use(&file.path).unwrap_or_default();
    disk.host_device = lowest_device(&file.path);
    disk.own_device = block_device_number(&file.path);
    disk.extents = (!host.extents.is_empty()).then_some(host.extents.len());
}

/// The disks of a VMM of which nothing but its open files tells them: block devices, and files of whole sectors that are read and
/// written. An image that the guest may only read is not among them.
pub(crate) fn images(files: &[OpenFile]) -> Vec<VmDisk> {
    let mut names = BTreeSet::new();
    let images = files.iter().filter(|file| file.may_be_image());
    images
        .filter(|file| !is_database(file) && names.insert(&file.name))
        .map(|file| {
            let mut disk = open_disk(file);
            set_host_device(&mut disk, file);
            disk
        })
        .collect()
}

/// Returns true for a database of SQLite, and for its log and its shared memory, which are beside it.
fn is_database(file: &OpenFile) -> bool {
    let name = file.name.as_os_str().as_encoded_bytes();
    if SQLITE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    // A device is not read: it may wait for long, or count the read as the VM's.
    let is_regular = std::fs::metadata(&file.path).is_ok_and(|data| data.is_file());
    let mut begin = [0; SQLITE.len()];
    let mut read = || File::open(&file.path)?.read_exact(&mut begin);
    is_regular && read().is_ok() && begin == SQLITE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::open_files::open_files;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    /// Disks among the files that this process has open below a directory.
    fn images_below(folder: &Path) -> Vec<PathBuf> {
        let mut files = open_files(std::process::id() as i32).unwrap();
        files.retain(|file| file.name.starts_with(folder));
        images(&files).into_iter().map(|disk| disk.file).collect()
    }

    #[test]
    fn a_disk_is_a_file_of_whole_sectors_that_is_read_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut write = OpenOptions::new();
        let write = write.read(true).write(true);
        let disk = put("disk.img", &[0; 4096]);
        let _disk = [write.open(&disk).unwrap(), write.open(&disk).unwrap()];
        assert_eq!(images_below(&folder), std::slice::from_ref(&disk), "once");
        let _read = File::open(put("kernel", &[0; 512])).unwrap();
        let _log = OpenOptions::new()
            .read(true)
            .append(true)
            .open(put("log", &[0; 512]));
        let _text = write.open(put("text", b"not whole")).unwrap();
        let _empty = write.open(put("empty", b"")).unwrap();
        let mut database = write.open(put("state.db", &[0; 512])).unwrap();
        database.write_all(&SQLITE).unwrap();
        let _shared = write.open(put("state.db-shm", &[0; 512])).unwrap();
        assert_eq!(images_below(&folder), [disk]);
    }
}
