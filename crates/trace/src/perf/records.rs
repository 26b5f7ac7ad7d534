//! All records of a `perf.data`, for those who unwind its samples.

use super::{parse, read};
use crate::TraceError;
use linux_perf_data::linux_perf_event_reader::constants::PERF_RECORD_MISC_MMAP_BUILD_ID;
use linux_perf_data::linux_perf_event_reader::{RawEventRecord, RecordType, SamplingPolicy};
use linux_perf_data::{DsoKey, PerfFileReader, PerfFileRecord};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A kind of event in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfEvent {
    /// As `perf record -e` has it.
    pub name: String,
    /// Samples a second, where that was asked for.
    pub hz: Option<u64>,
}

/// The records of one file, sorted within what perf wrote in one round.
pub struct PerfRecords {
    path: PathBuf,
    /// The kinds of events; records belong to one by its number here.
    pub events: Vec<PerfEvent>,
    /// The processor's architecture, as `uname -m` has it; empty where perf did not say.
    pub arch: String,
    /// Build-ids of files that were seen, by their paths.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// The kernel's build-id.
    pub kernel: Option<Vec<u8>>,
}

impl PerfRecords {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read, or is not a whole, little-endian, uncompressed file.
    pub fn open(path: &Path) -> Result<PerfRecords, TraceError> {
        let PerfFileReader { perf_file: file, .. } = read(path)?;
        let event = |(number, event): (usize, &linux_perf_data::AttributeDescription)| PerfEvent {
            name: event.name().map_or_else(|| format!("event {number}"), str::to_owned),
            hz: match event.attr.sampling_policy {
                SamplingPolicy::Frequency(hz) => Some(hz),
                _ => None,
            },
        };
        let events = file.event_attributes().iter().enumerate().map(event).collect();
        let arch = file.arch().ok().flatten().unwrap_or_default().to_owned();
        let (mut build_ids, mut kernel) = (HashMap::new(), None);
        for (key, file) in file.build_ids().unwrap_or_default() {
            match key {
                DsoKey::Kernel => kernel = Some(file.build_id),
                _ => drop(build_ids.insert(String::from_utf8_lossy(&file.path).into_owned(), file.build_id)),
            }
        }
        Ok(PerfRecords { path: path.to_owned(), events, arch, build_ids, kernel })
    }

    /// Hands over each of the kernel's records with the number of its event; perf's own are passed over.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read, or a record makes no sense: nobody knows where the next begins.
    pub fn each(&self, mut each: impl FnMut(usize, RawEventRecord<'_>)) -> Result<(), TraceError> {
        let PerfFileReader { mut perf_file, mut record_iter } = parse(&self.path)?;
        loop {
            match record_iter.next_record(&mut perf_file) {
                Ok(Some(PerfFileRecord::EventRecord { record, .. })) if is_too_long(&record) => {
                    let reason = "a build-id in it is too long".to_owned();
                    return Err(TraceError::Damaged { path: self.path.clone(), reason });
                }
                Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => each(attr_index, record),
                Ok(Some(PerfFileRecord::UserRecord(_))) => {}
                Ok(None) => return Ok(()),
                Err(e) => return Err(TraceError::Damaged { path: self.path.clone(), reason: e.to_string() }),
            }
        }
    }
}

/// Whether a mapping's build-id is longer than there is room for, which the library that parses it takes for impossible.
fn is_too_long(record: &RawEventRecord<'_>) -> bool {
    // { i32 pid, tid; u64 address, length, offset; u8 size of the build-id; … }
    record.record_type == RecordType::MMAP2
        && record.misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0
        && record.data.as_slice().get(32).is_some_and(|&size| size > 20)
}
