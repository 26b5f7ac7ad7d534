//! All records of a `perf.data`, for those who unwind its samples.

use super::check;
use super::file::{checked, parse};
use crate::TraceError;
use crate::file::failed;
use crate::import::read::wrong;
use linux_perf_data::linux_perf_event_reader::constants::PERF_RECORD_MISC_MMAP_BUILD_ID;
use linux_perf_data::linux_perf_event_reader::{
    Endianness, RawData, RawEventRecord, RecordParseInfo, RecordType, SamplingPolicy,
};
use linux_perf_data::{AttributeDescription, DsoKey, PerfFileReader, PerfFileRecord};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

const BUILD_ID_TOO_LONG: &str = "build-id too long";

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
    /// The CPU's architecture, as `uname -m` has it; empty where perf did not say.
    pub arch: String,
    /// Build-ids of files that were seen, by their paths.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// The kernel's build-id.
    pub kernel: Option<Vec<u8>>,
}

impl PerfRecords {
    /// Opens a file, and goes over its records once, in the file's order: hands over each of the kernel's with the number
    /// of its event. Of samples there is no more than [`RawEventRecord::common_data`], which spares reading the stacks.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read, or is not a whole, little-endian, uncompressed file.
    pub fn open(
        path: &Path,
        each: impl FnMut(usize, RawEventRecord<'_>),
    ) -> Result<PerfRecords, TraceError> {
        let (mut opened, data) = checked(path)?;
        let PerfFileReader {
            perf_file: file, ..
        } = parse(path)?;
        heads(&mut opened, &data, file.event_attributes(), each).map_err(|e| failed(path, e))?;
        let event = |(number, event): (usize, &linux_perf_data::AttributeDescription)| PerfEvent {
            name: event
                .name()
                .map_or_else(|| format!("event {number}"), str::to_owned),
            hz: match event.attr.sampling_policy {
                SamplingPolicy::Frequency(hz) => Some(hz),
                _ => None,
            },
        };
        let events = file
            .event_attributes()
            .iter()
            .enumerate()
            .map(event)
            .collect();
        let arch = file.arch().ok().flatten().unwrap_or_default().to_owned();
        let (mut build_ids, mut kernel) = (HashMap::new(), None);
        for (key, file) in file.build_ids().unwrap_or_default() {
            match key {
                DsoKey::Kernel => kernel = Some(file.build_id),
                _ => drop(build_ids.insert(
                    String::from_utf8_lossy(&file.path).into_owned(),
                    file.build_id,
                )),
            }
        }
        Ok(PerfRecords {
            path: path.to_owned(),
            events,
            arch,
            build_ids,
            kernel,
        })
    }

    /// Hands over each of the kernel's records with the number of its event; perf's own are passed over.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read, or a record is invalid: nobody knows where the next begins.
    pub fn each(&self, mut each: impl FnMut(usize, RawEventRecord<'_>)) -> Result<(), TraceError> {
        let PerfFileReader {
            mut perf_file,
            mut record_iter,
        } = parse(&self.path)?;
        loop {
            match record_iter.next_record(&mut perf_file) {
                // Checked before, but the file may have changed since.
                Ok(Some(PerfFileRecord::EventRecord { record, .. })) if is_too_long(&record) => {
                    let reason = BUILD_ID_TOO_LONG.to_owned();
                    return Err(TraceError::Damaged {
                        path: self.path.clone(),
                        reason,
                    });
                }
                Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                    each(attr_index, record)
                }
                Ok(Some(PerfFileRecord::UserRecord(_))) => {}
                Ok(None) => return Ok(()),
                Err(e) => {
                    return Err(TraceError::Damaged {
                        path: self.path.clone(),
                        reason: e.to_string(),
                    });
                }
            }
        }
    }
}

/// Hands over the records without their stacks.
fn heads(
    file: &mut BufReader<File>,
    data: &check::Data,
    events: &[AttributeDescription],
    mut each: impl FnMut(usize, RawEventRecord<'_>),
) -> io::Result<()> {
    let infos: Vec<_> = events
        .iter()
        .map(|event| RecordParseInfo::new(&event.attr, Endianness::LittleEndian))
        .collect();
    let Some(&first) = infos.first() else {
        return Ok(());
    };
    let ids: HashMap<u64, usize> = events
        .iter()
        .enumerate()
        .flat_map(|(number, event)| event.event_ids.iter().map(move |&id| (id, number)))
        .collect();
    check::records(file, data, |kind, misc, body| {
        if !kind.is_builtin_type() {
            return Ok(());
        }
        let record = RawEventRecord::new(kind, misc, RawData::from(body), first);
        if is_too_long(&record) {
            return Err(wrong(BUILD_ID_TOO_LONG));
        }
        // Where a file has several events, all have their ids at the same place.
        let event = record
            .id()
            .and_then(|id| ids.get(&id))
            .copied()
            .unwrap_or(0);
        each(
            event,
            RawEventRecord {
                parse_info: infos[event],
                ..record
            },
        );
        Ok(())
    })
}

/// Returns true if a mapping's build-id is longer than there is room for (20 bytes), which the library that parses it
/// takes for impossible.
fn is_too_long(record: &RawEventRecord<'_>) -> bool {
    // { i32 pid, tid; u64 address, length, offset; u8 size of the build-id; … }
    record.record_type == RecordType::MMAP2
        && record.misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0
        && record
            .data
            .as_slice()
            .get(32)
            .is_some_and(|&size| size > 20)
}
