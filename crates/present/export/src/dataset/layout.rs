//! Where a dataset keeps what: `TABLE/schema=1/date=2026-11-25/host=NAME/RUN.parquet`, as Hive names partitions.

use std::fmt::Write as _;
use std::path::PathBuf;

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
}
