//! The file, its lengths checked before anything is read.

use super::check;
use crate::TraceError;
use crate::file::failed;
use linux_perf_data::PerfFileReader;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub(super) type Reader = PerfFileReader<BufReader<File>>;

/// Reads the head of a file after checking all its lengths.
pub(super) fn read(path: &Path) -> Result<Reader, TraceError> {
    let (mut file, data) = checked(path)?;
    check::records(&mut file, &data, |_, _, _| Ok(())).map_err(|e| failed(path, e))?;
    parse(path)
}

/// Checks the lengths in the head of a file; those of its records are not checked yet.
pub(super) fn checked(path: &Path) -> Result<(BufReader<File>, check::Data), TraceError> {
    let mut file = opened(path)?;
    let data = check::head(&mut file).map_err(|e| failed(path, e))?;
    Ok((file, data))
}

/// Reads the head of a file whose lengths are good.
pub(super) fn parse(path: &Path) -> Result<Reader, TraceError> {
    PerfFileReader::parse_file(opened(path)?).map_err(|e| TraceError::Damaged {
        path: path.to_owned(),
        reason: e.to_string(),
    })
}

fn opened(path: &Path) -> Result<BufReader<File>, TraceError> {
    let file = File::open(path).map_err(|e| failed(path, e))?;
    Ok(BufReader::with_capacity(64 << 10, file))
}
