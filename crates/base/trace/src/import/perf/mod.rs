//! `perf.data`, the file of `perf record`: the samples of tracepoints in it, and all its records.

mod file;

use crate::events::{Decoder, DecoderStep};
use crate::file::{damaged, failed, wrong};
use crate::import::dat::perf_head;
use crate::{Counts, Events, Formats, TraceError};
use file::{Data, Reader, checked, head_checked, parse};
use linux_perf_data::linux_perf_event_reader::constants::PERF_RECORD_MISC_MMAP_BUILD_ID;
use linux_perf_data::linux_perf_event_reader::{
    ClockId, Endianness, EventRecord, PerfClock, RawData, RawEventRecord, RecordParseInfo,
    RecordType, SampleRecord, SamplingPolicy,
};
use linux_perf_data::{AttributeDescription, DsoKey, Feature, PerfFileReader, PerfFileRecord};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// A recording of `perf record -e sched:sched_switch …`. Records are sorted within what perf wrote in one round.
///
/// Events have their own fields and the common ones, as in other traces. A sample of something else than a tracepoint
/// is left out and counted as unknown.
#[derive(Debug)]
pub struct Perf {
    path: PathBuf,
    clock: &'static str,
    formats: Formats,
}

impl Perf {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read, or is not a whole, little-endian, uncompressed file with tracepoints.
    pub fn open(path: &Path) -> Result<Perf, TraceError> {
        let PerfFileReader { perf_file, .. } = checked(path)?;
        let Some(tracing) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
            let reason = "it has no tracepoint event (perf record -e sched:sched_switch)";
            return Err(damaged(path, reason));
        };
        let formats = perf_head(tracing).map_err(|e| damaged(path, e.to_string()))?;
        let first = perf_file.event_attributes().first();
        let clock = match first.map(|event| event.attr.clock) {
            Some(PerfClock::ClockId(ClockId::Monotonic)) => "mono",
            Some(PerfClock::ClockId(ClockId::MonotonicRaw)) => "mono_raw",
            Some(PerfClock::ClockId(ClockId::Boottime)) => "boot",
            Some(PerfClock::ClockId(ClockId::Realtime)) => "realtime",
            Some(PerfClock::ClockId(_)) => "other",
            Some(PerfClock::Default) | None => "perf",
        };
        Ok(Perf {
            path: path.to_owned(),
            clock,
            formats,
        })
    }

    /// The clock that [`crate::Event::ticks`] are nanoseconds of, as the kernel's trace clocks are called: `perf` unless
    /// `perf record --clockid` asked for `mono`, `mono_raw`, `boot` or `realtime`.
    pub fn clock(&self) -> &str {
        self.clock
    }

    /// The kinds of events.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// All events, from the first.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read.
    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        Ok(Events::decoded(Samples {
            perf: self,
            reader: checked(&self.path)?,
            record: Vec::new(),
            lost: 0,
        }))
    }
}

/// The events of one file.
struct Samples<'p> {
    perf: &'p Perf,
    reader: Reader,
    record: Vec<u8>,
    /// Number of events that perf counted as lost when it ended; it includes those of its records of losses.
    lost: u64,
}

impl Decoder for Samples<'_> {
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError> {
        let record = match self
            .reader
            .record_iter
            .next_record(&mut self.reader.perf_file)
        {
            Ok(Some(PerfFileRecord::EventRecord { record, .. })) => record,
            Ok(Some(PerfFileRecord::UserRecord(_))) => return Ok(DecoderStep::Nothing),
            // A loss at the end of a buffer has no record of its own, only its share of the sum.
            Ok(None) => {
                return Ok(DecoderStep::End {
                    lost: self.lost.checked_sub(counts.lost).filter(|&more| more > 0),
                });
            }
            Err(_) => return Ok(DecoderStep::Damaged { ends: true }),
        };
        if record.record_type == RecordType::LOST_SAMPLES {
            let data = record.data.as_slice();
            let lost = data
                .first_chunk()
                .map_or(0, |lost| u64::from_le_bytes(*lost));
            self.lost = self.lost.saturating_add(lost);
        }
        if !matches!(record.record_type, RecordType::SAMPLE | RecordType::LOST) {
            return Ok(DecoderStep::Nothing);
        }
        Ok(match record.parse() {
            Ok(EventRecord::Sample(SampleRecord {
                timestamp: Some(ticks),
                cpu,
                raw: Some(raw),
                ..
            })) => {
                self.record.clear();
                self.record.extend_from_slice(&raw.as_slice());
                let cpu = cpu.unwrap_or(0);
                let kind = self.perf.formats.kind(&self.record, counts);
                kind.map_or(DecoderStep::Nothing, |_| DecoderStep::Event { ticks, cpu })
            }
            Ok(EventRecord::Lost(lost)) => DecoderStep::Lost {
                ticks: record.timestamp(),
                cpu: record.common_data().ok().and_then(|common| common.cpu),
                events: Some(lost.count),
            },
            Ok(_) => {
                counts.unknown += 1;
                DecoderStep::Nothing
            }
            Err(_) => DecoderStep::Damaged { ends: false },
        })
    }

    fn record(&self) -> &[u8] {
        &self.record
    }
}

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
        let (mut opened, data) = head_checked(path)?;
        let file = parse(path)?.perf_file;
        let events = file.event_attributes();
        heads(&mut opened, &data, events, each).map_err(|e| failed(path, e))?;
        let events = events.iter().enumerate().map(|(number, event)| PerfEvent {
            name: event
                .name()
                .map_or_else(|| format!("event {number}"), str::to_owned),
            hz: match event.attr.sampling_policy {
                SamplingPolicy::Frequency(hz) => Some(hz),
                _ => None,
            },
        });
        let events = events.collect();
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
                    return Err(damaged(&self.path, BUILD_ID_TOO_LONG));
                }
                Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                    each(attr_index, record)
                }
                Ok(Some(PerfFileRecord::UserRecord(_))) => {}
                Ok(None) => return Ok(()),
                Err(e) => return Err(damaged(&self.path, e.to_string())),
            }
        }
    }
}

/// Hands over the records without their stacks.
fn heads(
    opened: &mut BufReader<File>,
    data: &Data,
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
    file::records(opened, data, |kind, misc, body| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOUND: &[u8] = include_bytes!("../../../tests/data/perf/perf.data");

    fn read(file: &[u8]) -> Result<Counts, TraceError> {
        let stored = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(stored.path(), file).unwrap();
        let perf = Perf::open(stored.path())?;
        let mut events = perf.events()?;
        while events.next()?.is_some() {}
        Ok(*events.counts())
    }

    /// The record at which the data begin.
    fn first_record() -> usize {
        u64::from_le_bytes(*SOUND[40..].first_chunk().unwrap()) as usize
    }

    #[test]
    fn what_is_wrong_is_told() {
        let says = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
            let mut file = SOUND.to_vec();
            change(&mut file);
            let error = read(&file).unwrap_err();
            assert!(
                matches!(error, TraceError::Damaged { .. }) && error.to_string().contains(expected),
                "{error}"
            );
        };
        // Nothing is wrong with these, so that recording again in the same way would not help.
        let advises = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
            let mut file = SOUND.to_vec();
            change(&mut file);
            let error = read(&file).unwrap_err();
            assert!(
                matches!(error, TraceError::Unsupported { .. })
                    && error.to_string().ends_with(expected),
                "{error}"
            );
        };
        let first = first_record();
        says(&|file| file.truncate(7), "truncated");
        says(&|file| file.truncate(first + 100), "truncated");
        says(&|file| file[0] = b'Q', "not a perf.data file");
        advises(
            &|file| file[..8].copy_from_slice(b"2ELIFREP"),
            "record on x86-64",
        );
        advises(
            &|file| file[8..16].copy_from_slice(&16_u64.to_le_bytes()),
            "record with `perf record -o FILE`",
        );
        advises(&|file| file[first] = 81, "record without `perf record -z`");
        says(&|file| file[48..56].fill(0), "did not finish");
        says(&|file| file[48..56].fill(0xff), "truncated");
        says(&|file| file[72] &= !2, "invalid size"); // The sections no longer belong to their features.
        says(
            &|file| file[first + 6..first + 8].fill(0),
            "without a length",
        );
        // The size of an event's attributes, which the file and the event itself tell.
        let number = |at: usize| u32::from_le_bytes(*SOUND[at..].first_chunk().unwrap());
        let told_twice =
            |at: &usize| (64..200).contains(&number(*at)) && number(*at) == number(at + 8);
        let end = first + number(48) as usize;
        let attributes = (end..SOUND.len() - 12).find(told_twice).unwrap() + 8;
        says(
            &|file| file[attributes] = 68,
            "invalid size of an event's attributes: 68",
        );
        says(
            &|file| file[attributes] += 8,
            "invalid size of an event's attributes",
        );
        says(&|file| file[first] = 68, "FINISHED_ROUND with a body");
        says(
            &|file| {
                file[first..first + 16].copy_from_slice(&[
                    71, 0, 0, 0, 0, 0, 16, 0, 255, 255, 255, 255, 255, 255, 255, 127,
                ])
            },
            "truncated",
        );
        assert!(matches!(
            Perf::open(Path::new("/nonexistent/perf.data")).map(|_| ()),
            Err(TraceError::Read { .. })
        ));
    }

    #[test]
    fn a_look_at_the_heads_sees_what_the_records_say() {
        let stored = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(stored.path(), SOUND).unwrap();
        let said = |event, record: &RawEventRecord<'_>| {
            let common = record.common_data().unwrap();
            (
                common.timestamp,
                event,
                record.record_type.0,
                common.pid,
                common.tid,
                record.misc,
            )
        };
        let (mut heads, mut whole) = (Vec::new(), Vec::new());
        let records =
            PerfRecords::open(stored.path(), |event, head| heads.push(said(event, &head))).unwrap();
        records
            .each(|event, record| whole.push(said(event, &record)))
            .unwrap();
        heads.sort_unstable();
        whole.sort_unstable();
        assert_eq!(heads, whole);
        let events = |number| {
            heads
                .iter()
                .filter(|(_, event, kind, ..)| (*event, *kind) == (number, 9))
                .count()
        };
        assert_eq!(
            (
                records.events.len(),
                [0, 1, 2].map(events).iter().sum::<usize>()
            ),
            (3, 113)
        );
        assert!(
            [0, 1, 2].map(events).iter().all(|&n| n > 0),
            "of one event only"
        );
    }

    /// The recording with samples, by their place, made records of another kind that tell of lost events.
    fn losing(kinds: &[(usize, u8, u64)]) -> Counts {
        let mut file = SOUND.to_vec();
        let end = first_record() + u64::from_le_bytes(*SOUND[48..].first_chunk().unwrap()) as usize;
        let (mut at, mut sample) = (first_record(), 0);
        while at < end {
            let length = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
            if file[at] == 9 {
                if let Some((_, kind, lost)) = kinds.iter().find(|(place, ..)| *place == sample) {
                    file[at] = *kind;
                    // The count is the second word of LOST, the first of LOST_SAMPLES.
                    let count = at + if *kind == 2 { 16 } else { 8 };
                    file[count..count + 8].copy_from_slice(&lost.to_le_bytes());
                }
                sample += 1;
            }
            at += length;
        }
        read(&file).unwrap()
    }

    #[test]
    fn lost_events_are_counted_once() {
        assert_eq!(losing(&[]).losses, 0);
        let counts = losing(&[(3, 2, 77), (9, 2, 3)]);
        assert_eq!((counts.events, counts.losses, counts.lost), (111, 2, 80));
        // perf's sum at the end has what the records told, and what no record told.
        let counts = losing(&[(3, 2, 77), (9, 2, 3), (20, 13, 70), (21, 13, 15)]);
        assert_eq!((counts.events, counts.losses, counts.lost), (109, 3, 85));
        let counts = losing(&[(3, 2, 77), (20, 13, 50)]);
        assert_eq!((counts.losses, counts.lost), (1, 77));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn any_change_is_survived(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = SOUND.to_vec();
            for (at, with, head) in changes {
                // Half of the changes in the header, whose lengths do the most harm.
                let at = at.index(if head { 600 } else { file.len() });
                file[at] = with;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            let _ = read(&file);
        }
    }
}
