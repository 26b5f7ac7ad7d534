//! Flat Parquet tables: rows written as a file that is there whole or not at all, and the columns of any file read back as far
//! as its size and its types allow.

mod pages;
mod read;
mod write;

use crate::ExportError;
pub use read::{Group, Problem, Texts, for_each_group};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
pub(crate) use write::Table;
pub use write::{Cell, Column, Rows, maybe, text, words};

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new, or has other content than before.
    Written,
    /// It was there already, with the same content.
    None,
}

/// Puts a file in its place once it is whole. Until then its name begins with a dot, and engines pass over it. Makes the
/// folders above it.
///
/// # Errors
/// [`ExportError::File`] if the file cannot be made, and the error of `fill`: what was there before is as it was.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(File) -> Result<(), ExportError>,
) -> Result<Change, ExportError> {
    let failed = |source: io::Error| ExportError::File {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut name = tempfile::Builder::new();
    // Who may read it is up to the umask, as of any file.
    name.prefix(".")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666));
    let unfinished = name.tempfile_in(folder).map_err(failed)?;
    fill(unfinished.reopen().map_err(failed)?)?;
    if is_same(unfinished.path(), path).map_err(failed)? {
        return Ok(Change::None);
    }
    unfinished.as_file().sync_all().map_err(failed)?;
    unfinished.persist(path).map_err(|e| failed(e.error))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(Change::Written)
}

/// Returns true if two files have the same content; false if the old one is missing or no regular file.
fn is_same(new: &Path, old: &Path) -> io::Result<bool> {
    let Ok(metadata) = fs::symlink_metadata(old) else {
        return Ok(false);
    };
    if !metadata.is_file() || metadata.len() != fs::metadata(new)?.len() {
        return Ok(false);
    }
    let mut bytes = BufReader::new(File::open(new)?).bytes();
    for old in BufReader::new(File::open(old)?).bytes() {
        if bytes.next().transpose()? != Some(old?) {
            return Ok(false);
        }
    }
    Ok(bytes.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::PathBuf;

    #[test]
    fn a_file_is_written_once_and_replaced_only_by_other_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("facts/run.parquet");
        let put = |content: &'static [u8]| {
            let fill = |mut file: File| {
                file.write_all(content).unwrap();
                Ok(())
            };
            write_whole(&path, fill).unwrap()
        };
        assert_eq!(
            (put(b"one"), put(b"one"), put(b"two"), put(b"three")),
            (
                Change::Written,
                Change::None,
                Change::Written,
                Change::Written
            )
        );
        let names: Vec<_> = fs::read_dir(folder.path().join("facts"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["run.parquet"]);
        assert_eq!(fs::read(path).unwrap(), b"three");
    }

    #[test]
    fn what_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.parquet");
        write_whole(&path, |_| Ok(())).unwrap();
        let fail = |_| {
            Err(ExportError::HostName {
                folder: PathBuf::new(),
                length: 65,
            })
        };
        assert!(write_whole(&path, fail).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
