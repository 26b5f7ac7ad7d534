//! `perf.data`, the file of `perf record`: the samples of tracepoints in it, and all its records.

mod check;
mod file;
mod records;

#[cfg(test)]
mod tests;

pub use records::{PerfEvent, PerfRecords};

use crate::events::{Decoder, DecoderStep};
use crate::format::pid;
use crate::import::dat::perf_head;
use crate::{Counts, Events, Formats, TraceError};
use file::{Reader, read};
use linux_perf_data::linux_perf_event_reader::{
    ClockId, EventRecord, PerfClock, RecordType, SampleRecord,
};
use linux_perf_data::{Feature, PerfFileReader, PerfFileRecord};
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
        let PerfFileReader { perf_file, .. } = read(path)?;
        let damaged = |reason: String| TraceError::Damaged {
            path: path.to_owned(),
            reason,
        };
        let Some(tracing) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
            return Err(damaged(
                "it has no tracepoint event (perf record -e sched:sched_switch)".to_owned(),
            ));
        };
        let formats = perf_head(tracing).map_err(|e| damaged(e.to_string()))?;
        let clock = match perf_file
            .event_attributes()
            .first()
            .map(|event| event.attr.clock)
        {
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
        let reader = read(&self.path)?;
        Ok(Events::of(Samples {
            perf: self,
            reader,
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
            let lost = record
                .data
                .as_slice()
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
                let pid = pid(&self.record);
                let kind = self.perf.formats.kind(&self.record, counts);
                kind.map_or(DecoderStep::Nothing, |id| DecoderStep::Event {
                    ticks,
                    cpu: cpu.unwrap_or(0),
                    id,
                    pid,
                })
            }
            Ok(EventRecord::Lost(lost)) => DecoderStep::Lost {
                ticks: record.timestamp(),
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
