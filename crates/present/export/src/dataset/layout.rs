//! Where a dataset keeps what: `TABLE/schema=1/date=2026-11-25/host=NAME/RUN.parquet`, as Hive names partitions.

use crate::ExportError;
use std::fmt::Write as _;
use std::fs;
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
    /// Returns the path of a run's file in the dataset.
    pub fn file(&self, run: &str) -> PathBuf {
        self.folder().join(format!("{}.parquet", encode(run)))
    }

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

/// Folders within folders: three of a partition, and a few that somebody collected them in.
const DEEPEST: usize = 8;

/// A file of a table.
pub struct TableFile {
    pub path: PathBuf,
    /// As far as the path has it.
    pub schema: Option<u32>,
    pub date: Option<String>,
    pub host: Option<String>,
}

/// The files of a table in the order of their paths. What engines pass over is passed over: names that begin with a dot.
pub fn files(dataset: &Path, table: &str) -> Result<Vec<TableFile>, ExportError> {
    let folder = dataset.join(table);
    if !folder.is_dir() {
        return Err(ExportError::NoTable {
            dataset: dataset.to_owned(),
            table: table.to_owned(),
        });
    }
    let mut files = Vec::new();
    walk(&folder, DEEPEST, &mut |path| {
        let mut file = TableFile {
            path: path.to_owned(),
            schema: None,
            date: None,
            host: None,
        };
        for part in path.strip_prefix(&folder).unwrap_or(path).iter() {
            match part.to_string_lossy().split_once('=') {
                Some(("schema", value)) => file.schema = value.parse().ok(),
                Some(("date", value)) => file.date = Some(decode(value)),
                Some(("host", value)) if value != UNKNOWN => file.host = Some(decode(value)),
                _ => {}
            }
        }
        files.push(file);
    })?;
    Ok(files)
}

fn walk(folder: &Path, depth: usize, found: &mut impl FnMut(&Path)) -> Result<(), ExportError> {
    let failed = |source| ExportError::ReadFolder {
        path: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_cached_key(|entry| entry.path());
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link to a folder may lead in a circle.
        if name.starts_with('.') {
            continue;
        } else if kind.is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                walk(&path, depth - 1, found)?;
            }
        } else if name.ends_with(".parquet") && fs::metadata(&path).is_ok_and(|file| file.is_file())
        {
            found(&path);
        }
    }
    Ok(())
}

/// A value of a path, without its percent-encoding.
fn decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let code = code.and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

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
    fn values_of_paths_are_decoded_as_they_were_encoded() {
        assert_eq!(decode("a%20b%2Fc%3Dd%2520%C3%A9"), "a b/c=d%20é");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
