//! One side's trace, while it is read.

use crate::error::LayersError;
use crate::event::Event;
use crate::fields::Readers;
use crate::trial::Loss;
use std::path::Path;
use vmtax_model::Missing;
use vmtax_trace::{Counts, Entry, Events, Folder};

/// By which clock both sides have to trace.
const CLOCK: &str = "x86-tsc";

/// One side's trace, opened.
pub(crate) struct Trace {
    folder: Folder,
    pub readers: Readers,
}

/// Opens a trace; `None` where this side's kernel was not traced.
pub(crate) fn open(path: &Path) -> Result<Option<Trace>, LayersError> {
    // Where raw pages are, this is too.
    if !path.join("header_page").exists() {
        return Ok(None);
    }
    let folder = Folder::open(path)?;
    if folder.clock() != CLOCK {
        return Err(LayersError::Clock { path: path.to_owned(), clock: folder.clock().to_owned() });
    }
    let readers = Readers::new(folder.formats());
    Ok(Some(Trace { folder, readers }))
}

/// Gives every event of a trace to a function.
pub(crate) fn each(trace: &Trace, mut take: impl FnMut(&Readers, &vmtax_trace::Event<'_>)) -> Result<(), LayersError> {
    let mut events = trace.folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            take(&trace.readers, &event);
        }
    }
    Ok(())
}

/// One side's trace, while it is read.
pub(crate) struct Side<'f, M> {
    trace: &'f Trace,
    events: Events<'f>,
    /// From its ticks to the host's.
    map: M,
    /// When the last entry of each input was, host ticks.
    last: Vec<u64>,
    losses: Vec<Loss>,
}

impl<'f, M: Fn(u64) -> u64> Side<'f, M> {
    pub fn begin(trace: &'f Trace, map: M) -> Result<Self, LayersError> {
        let last = vec![0; trace.folder.inputs().len()];
        Ok(Side { trace, events: trace.folder.events()?, map, last, losses: Vec::new() })
    }

    /// What ends with the trace: buffers that were full lose all that comes after.
    pub fn end(self, losses: &mut Vec<Loss>, missing: &mut Vec<Missing>) {
        losses.extend(self.losses);
        for stats in self.trace.folder.stats() {
            let of_cpu =
                |(_, raw): &(&u64, &vmtax_trace::RawFile)| raw.instance == stats.instance && raw.cpu == stats.cpu;
            let last = self.last.iter().zip(self.trace.folder.inputs()).find(of_cpu).map(|(last, _)| *last);
            if stats.dropped > 0 {
                losses.push(Loss { from: last.unwrap_or(0), to: u64::MAX, events: stats.dropped });
            }
        }
        let Counts { backwards, leaps, unknown, short, .. } = *self.events.counts();
        let mut note = |count: u64, what: &str, why: &str| {
            if count > 0 {
                missing.push(Missing { what: what.to_owned(), why: format!("{count} {why}"), mend: AGAIN.to_owned() });
            }
        };
        note(backwards + leaps, "a steady clock", "events of one processor's trace go back, or far ahead");
        note(unknown + short, "some events", "records fit no format file: it is of another kernel");
    }
}

const AGAIN: &str = "make the trial again; see `vmtax doctor` for the clock";

/// The next event that matters, its time in host ticks.
pub(crate) fn next<M: Fn(u64) -> u64, W>(
    side: &mut Option<Side<'_, M>>,
    read: impl Fn(&Readers, &vmtax_trace::Event<'_>) -> Option<Event<W>>,
) -> Result<Option<Event<W>>, LayersError> {
    let Some(side) = side else { return Ok(None) };
    while let Some(entry) = side.events.next()? {
        match entry {
            Entry::Event(event) => {
                let at = (side.map)(event.ticks);
                side.last[event.input as usize] = at;
                if let Some(found) = read(&side.trace.readers, &event) {
                    return Ok(Some(Event { at, ..found }));
                }
            }
            Entry::Lost(lost) => {
                let to = (side.map)(lost.ticks);
                let from = std::mem::replace(&mut side.last[lost.input as usize], to);
                side.losses.push(Loss { from, to, events: lost.events.unwrap_or(1) });
            }
        }
    }
    Ok(None)
}
