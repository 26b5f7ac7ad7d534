//! The samples of tracepoints.

use super::file::{Reader, read};
use crate::events::Entries;
use crate::format::UNKNOWN;
use crate::import::dat::perf_head;
use crate::{Counts, Entry, Event, EventId, Events, Formats, Lost, TraceError};
use linux_perf_data::linux_perf_event_reader::{ClockId, EventRecord, PerfClock, RecordType, SampleRecord};
use linux_perf_data::{Feature, PerfFileReader, PerfFileRecord};
use std::path::{Path, PathBuf};

/// What `perf record -e sched:sched_switch …` recorded. Records are sorted within what perf wrote in one round.
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
        let PerfFileReader { perf_file, .. } = read(path)?;
        let damaged = |reason: String| TraceError::Damaged { path: path.to_owned(), reason };
        let Some(tracing) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
            return Err(damaged("it holds no tracepoint (perf record -e sched:sched_switch)".to_owned()));
        };
        let formats = perf_head(tracing).map_err(|e| damaged(e.to_string()))?;
        let clock = match perf_file.event_attributes().first().map(|event| event.attr.clock) {
            Some(PerfClock::ClockId(ClockId::Monotonic)) => "mono",
            Some(PerfClock::ClockId(ClockId::MonotonicRaw)) => "mono_raw",
            Some(PerfClock::ClockId(ClockId::Boottime)) => "boot",
            Some(PerfClock::ClockId(ClockId::Realtime)) => "realtime",
            Some(PerfClock::ClockId(_)) => "other",
            Some(PerfClock::Default) | None => "perf",
        };
        Ok(Perf { path: path.to_owned(), clock, formats })
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
        let reader = read(&self.path)?;
        let samples = Samples {
            perf: self,
            reader,
            record: Vec::new(),
            last: 0,
            lost_samples: 0,
            ended: false,
            counts: Counts::default(),
        };
        Ok(Events::of(samples))
    }
}

/// The events of one file.
struct Samples<'p> {
    perf: &'p Perf,
    reader: Reader,
    /// The record of the event given last.
    record: Vec<u8>,
    last: u64,
    /// What perf counted as lost when it ended, with what its records of losses tell.
    lost_samples: u64,
    ended: bool,
    counts: Counts,
}

/// What a record of the file gave.
enum Step {
    Nothing,
    Sample { ticks: u64, cpu: u32 },
    Lost { ticks: Option<u64>, events: Option<u64> },
    Damaged,
    End,
}

impl Entries for Samples<'_> {
    fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        while !self.ended {
            match self.step() {
                Step::Nothing => {}
                Step::Sample { ticks, cpu } => {
                    let Some((id, pid)) = self.known() else { continue };
                    self.counts.time(&mut self.last, ticks);
                    self.counts.events += 1;
                    return Ok(Some(Entry::Event(Event { ticks, cpu, input: 0, id, pid, data: &self.record })));
                }
                Step::Lost { ticks, events } => return Ok(Some(self.lost(ticks, events))),
                Step::Damaged => {
                    self.counts.damaged_pages += 1;
                    return Ok(Some(self.lost(None, None)));
                }
                Step::End => {
                    self.ended = true;
                    // A loss at the end of a buffer has no record of its own, only its share of the sum.
                    if let Some(more) = self.lost_samples.checked_sub(self.counts.lost).filter(|&more| more > 0) {
                        return Ok(Some(self.lost(None, Some(more))));
                    }
                }
            }
        }
        Ok(None)
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Samples<'_> {
    fn lost(&mut self, ticks: Option<u64>, events: Option<u64>) -> Entry<'static> {
        self.last = self.last.max(ticks.unwrap_or(0));
        self.counts.loss(events);
        Entry::Lost(Lost { ticks: self.last, cpu: 0, input: 0, events })
    }

    fn step(&mut self) -> Step {
        let record = match self.reader.record_iter.next_record(&mut self.reader.perf_file) {
            Ok(Some(PerfFileRecord::EventRecord { record, .. })) => record,
            Ok(Some(PerfFileRecord::UserRecord(_))) => return Step::Nothing,
            Ok(None) => return Step::End,
            // Where one record makes no sense, nobody knows where the next begins.
            Err(_) => {
                self.ended = true;
                return Step::Damaged;
            }
        };
        if !matches!(record.record_type, RecordType::SAMPLE | RecordType::LOST | RecordType::LOST_SAMPLES) {
            return Step::Nothing;
        }
        if record.record_type == RecordType::LOST_SAMPLES {
            let lost = record.data.as_slice().first_chunk().map_or(0, |lost| u64::from_le_bytes(*lost));
            self.lost_samples = self.lost_samples.saturating_add(lost);
            return Step::Nothing;
        }
        match record.parse() {
            Ok(EventRecord::Sample(SampleRecord { timestamp: Some(ticks), cpu, raw: Some(raw), .. })) => {
                self.record.clear();
                self.record.extend_from_slice(&raw.as_slice());
                Step::Sample { ticks, cpu: cpu.unwrap_or(0) }
            }
            Ok(EventRecord::Lost(lost)) => Step::Lost { ticks: record.timestamp(), events: Some(lost.count) },
            Ok(_) => {
                self.counts.unknown += 1;
                Step::Nothing
            }
            Err(_) => Step::Damaged,
        }
    }

    /// The kind and thread of the record; `None` when there is no format that it fits, which is counted.
    fn known(&mut self) -> Option<(EventId, i32)> {
        let id = self.record.first_chunk().map_or(EventId(0), |id| EventId(u16::from_le_bytes(*id)));
        let least = self.perf.formats.least(id);
        if self.record.len() < least as usize {
            *(if least == UNKNOWN { &mut self.counts.unknown } else { &mut self.counts.short }) += 1;
            return None;
        }
        let pid = self.record.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |pid| i32::from_le_bytes(*pid));
        Some((id, pid))
    }
}
