//! The files of a table, with what their paths say: `schema=1/date=2026-11-25/host=NAME/RUN.parquet`.

use crate::ExportError;
use crate::dataset::layout::UNKNOWN;
use std::fs;
use std::path::{Path, PathBuf};

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
    let entries = fs::read_dir(folder)
        .map_err(failed)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let mut entries: Vec<_> = entries
        .into_iter()
        .map(|entry| (entry.path(), entry.file_type()))
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, kind) in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
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
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_paths_are_decoded_as_they_were_encoded() {
        assert_eq!(decode("a%20b%2Fc%3Dd%2520%C3%A9"), "a b/c=d%20é");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
