//! Where a dataset keeps what: `TABLE/schema=1/date=2026-11-25/host=NAME/RUN.parquet`, as Hive names partitions.

use crate::ExportError;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Columns may be added within a schema; none is removed, and none changes its meaning.
pub const SCHEMA: u32 = 1;
/// Hive's name for a partition whose value is not known: engines read it as null.
pub const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// The folder of a table that a file belongs into.
#[derive(Debug, Clone, Copy)]
pub struct Partition<'a> {
    pub table: &'static str,
    pub date: &'a str,
    pub host: Option<&'a str>,
}

impl Partition<'_> {
    fn folder(&self) -> PathBuf {
        let host = self.host.map_or_else(|| UNKNOWN.to_owned(), encode);
        let parts = [
            self.table,
            &format!("schema={SCHEMA}"),
            &format!("date={}", encode(self.date)),
            &format!("host={host}"),
        ];
        parts.iter().collect()
    }
}

/// A value as part of a path: letters, digits, `.`, `_` and `-` stay, every other byte becomes `%XX`. Hive does the same, and
/// engines decode it.
fn encode(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                encoded.push(char::from(byte))
            }
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new, or has other content than before.
    Written,
    /// It was there already, with the same content.
    None,
}

/// Puts a file into a partition: whole, or not at all. Until it is whole its name begins with a dot, and engines pass over it.
pub fn put(
    dataset: &Path,
    partition: &Partition,
    run: &str,
    fill: impl FnOnce(File) -> Result<(), ExportError>,
) -> Result<Change, ExportError> {
    let folder = dataset.join(partition.folder());
    let path = folder.join(format!("{}.parquet", encode(run)));
    let failed = |source: io::Error| ExportError::File {
        path: path.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut name = tempfile::Builder::new();
    // Who may read it is up to the umask, as of any file.
    name.prefix(".")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666));
    let unfinished = name.tempfile_in(&folder).map_err(failed)?;
    fill(unfinished.reopen().map_err(failed)?)?;
    if is_same(unfinished.path(), &path).map_err(failed)? {
        return Ok(Change::None);
    }
    unfinished.as_file().sync_all().map_err(failed)?;
    unfinished.persist(&path).map_err(|e| failed(e.error))?;
    File::open(&folder)
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
    use proptest::prelude::*;
    use std::io::Write as _;
    use std::path::Component;

    proptest! {
        #[test]
        fn whatever_a_host_is_called_its_folder_is_one_plain_name(host: String, date: String) {
            let folder = Partition { table: "figures", date: &date, host: Some(&host) }.folder();
            let parts: Vec<_> = folder.components().collect();
            prop_assert_eq!(parts.len(), 4);
            prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))), "{}", folder.display());
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-%=/".contains(&b);
            prop_assert!(folder.to_str().is_some_and(|text| text.bytes().all(plain)), "{}", folder.display());
        }

        #[test]
        fn names_that_differ_have_folders_that_differ(one: String, other: String) {
            prop_assert_eq!(one == other, encode(&one) == encode(&other));
        }
    }

    #[test]
    fn values_are_encoded_as_hive_does() {
        assert_eq!(encode("db-1.example_org"), "db-1.example_org");
        assert_eq!(encode("../a b=ü%"), "..%2Fa%20b%3D%C3%BC%25");
        let unknown = Partition {
            table: "facts",
            date: "2026-11-25",
            host: None,
        }
        .folder();
        assert_eq!(
            unknown,
            Path::new("facts/schema=1/date=2026-11-25/host=__HIVE_DEFAULT_PARTITION__")
        );
    }

    #[test]
    fn a_file_is_written_once_and_replaced_only_by_other_content() {
        let dataset = tempfile::tempdir().unwrap();
        let partition = Partition {
            table: "facts",
            date: "2026-11-25",
            host: Some("a"),
        };
        let put = |content: &'static [u8]| {
            let fill = |mut file: File| {
                file.write_all(content).unwrap();
                Ok(())
            };
            put(dataset.path(), &partition, "run", fill).unwrap()
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
        let folder = dataset.path().join(partition.folder());
        let names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["run.parquet"]);
        assert_eq!(fs::read(folder.join("run.parquet")).unwrap(), b"three");
    }

    #[test]
    fn what_fails_leaves_what_was_there() {
        let dataset = tempfile::tempdir().unwrap();
        let partition = Partition {
            table: "facts",
            date: "2026-11-25",
            host: Some("a"),
        };
        put(dataset.path(), &partition, "run", |_| Ok(())).unwrap();
        let fail = |_| {
            Err(ExportError::HostName {
                folder: PathBuf::new(),
                length: 65,
            })
        };
        assert!(put(dataset.path(), &partition, "run", fail).is_err());
        let folder = dataset.path().join(partition.folder());
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }
}
