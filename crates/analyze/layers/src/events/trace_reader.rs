//! One side's trace, while it is read.

use super::Event;
use super::decode::Readers;
use crate::error::LayersError;
use std::path::Path;
use vmtax_model::{CheckpointInfo, IMPORTED_CLOCK, Missing, Side};
use vmtax_trace::{CpuStats, Entry, Events, Folder};

/// The trace clock that both sides have to use.
const CLOCK: &str = "x86-tsc";

/// A period in which events were lost, host ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    pub from: u64,
    pub to: u64,
    pub events: u64,
}

/// One side's trace, opened.
pub(crate) struct Trace {
    folder: Folder,
    pub readers: Readers,
}

/// Opens a trace; `None` where this side's kernel was not traced.
pub(crate) fn open(
    path: &Path,
    table: &[CheckpointInfo],
    side: Side,
) -> Result<Option<Trace>, LayersError> {
    // Where raw pages are, this is too.
    if !path.join("header_page").exists() {
        return Ok(None);
    }
    let folder = Folder::open(path)?;
    if ![CLOCK, IMPORTED_CLOCK].contains(&folder.clock()) {
        return Err(LayersError::Clock {
            path: path.to_owned(),
            clock: folder.clock().to_owned(),
        });
    }
    let readers = Readers::new(folder.formats(), table, side);
    Ok(Some(Trace { folder, readers }))
}

/// Calls a function with every event of a trace.
pub(crate) fn each(
    trace: &Trace,
    mut take: impl FnMut(&Readers, &vmtax_trace::Event<'_>),
) -> Result<(), LayersError> {
    let mut events = trace.folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            take(&trace.readers, &event);
        }
    }
    Ok(())
}

/// One side's trace, while it is read.
pub(crate) struct TraceReader<'f, M> {
    trace: &'f Trace,
    events: Events<'f>,
    /// From its ticks to the host's.
    map: M,
    /// One for each of the trace's inputs.
    inputs: Vec<Input>,
    losses: Vec<Loss>,
}

/// One CPU's part of a trace.
#[derive(Debug, Clone, Copy, Default)]
struct Input {
    /// Time of its last event, host ticks.
    last: u64,
    /// Events lost since, if any.
    lost: Option<u64>,
}

impl<'f, M: Fn(u64) -> u64> TraceReader<'f, M> {
    pub fn begin(trace: &'f Trace, map: M) -> Result<Self, LayersError> {
        let inputs = vec![Input::default(); trace.folder.inputs().len()];
        Ok(TraceReader {
            trace,
            events: trace.folder.events()?,
            map,
            inputs,
            losses: Vec::new(),
        })
    }

    /// Host ticks of an event. Events reported as lost before it were lost after the previous one.
    fn event(&mut self, ticks: u64, input: u32) -> u64 {
        let at = (self.map)(ticks);
        if let Some(input) = self.inputs.get_mut(input as usize) {
            self.losses.extend(input.lost.take().map(|events| Loss {
                from: input.last,
                to: at,
                events,
            }));
            input.last = at;
        }
        at
    }

    /// Ends the trace. A full buffer drops all later events.
    pub fn end(self, losses: &mut Vec<Loss>, missing: &mut Vec<Missing>) {
        losses.extend(self.losses);
        let folder = &self.trace.folder;
        for (input, raw) in self.inputs.iter().zip(folder.inputs()) {
            let of_cpu = |s: &&CpuStats| s.instance == raw.instance && s.cpu == raw.cpu;
            let dropped = folder.stats().iter().find(of_cpu).map_or(0, |s| s.dropped);
            let events = input.lost.unwrap_or(0).saturating_add(dropped);
            if events > 0 {
                losses.push(Loss {
                    from: input.last,
                    to: u64::MAX,
                    events,
                });
            }
        }
        let counts = self.events.counts();
        let nested: u64 = folder.stats().iter().map(|s| s.commit_overrun).sum();
        let clock = (
            counts.backwards + counts.leaps,
            "a monotonic trace clock",
            "events of one CPU's trace are out of order or far ahead",
        );
        let records = (
            counts.unknown + counts.short,
            "some events",
            "records match no format file, which is from another kernel",
        );
        let overrun = (
            nested,
            "some events",
            "events were lost at an unknown time (commit overrun by nested interrupts)",
        );
        let seen = [clock, records, overrun].into_iter();
        missing.extend(
            seen.filter(|(count, ..)| *count > 0)
                .map(|(count, what, why)| invalid(count, what.to_owned(), why)),
        );
        let unreadable = self.trace.readers.unreadable().iter();
        missing.extend(unreadable.map(|event| {
            let what = format!("the event {event}");
            invalid(1, what, "format file lacks required fields")
        }));
    }
}

/// Data that a trace lacks because of this many invalid events.
fn invalid(count: u64, what: String, why: &str) -> Missing {
    Missing {
        what,
        why: format!("{count} {why}"),
        fix: RECORD_AGAIN.to_owned(),
    }
}

const RECORD_AGAIN: &str = "record the trial again; `vmtax doctor` checks the clock";

/// The next event, in host ticks.
pub(crate) fn next<M: Fn(u64) -> u64, W>(
    side: &mut Option<TraceReader<'_, M>>,
    read: impl Fn(&Readers, &vmtax_trace::Event<'_>) -> Event<W>,
) -> Result<Option<Event<W>>, LayersError> {
    let Some(side) = side else { return Ok(None) };
    loop {
        let (ticks, input, found) = match side.events.next()? {
            None => return Ok(None),
            Some(Entry::Event(event)) => {
                (event.ticks, event.input, read(&side.trace.readers, &event))
            }
            Some(Entry::Lost(lost)) => {
                if let Some(input) = side.inputs.get_mut(lost.input as usize) {
                    // At least one where the number is unknown.
                    let events = lost.events.unwrap_or(1);
                    input.lost = Some(input.lost.unwrap_or(0).saturating_add(events));
                }
                continue;
            }
        };
        let at = side.event(ticks, input);
        return Ok(Some(Event { at, ..found }));
    }
}
