//! A trial's folder, read: facts, the workload's stamps, both traces, on one clock.

use crate::error::LayersError;
use crate::event::{Element, Event, Guest, Host};
use crate::fields::Readers;
use crate::follow::View;
use crate::join::Join;
use crate::qemu_log;
use crate::trial::{JoinedTrial, Loss};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use vmtax_clock::{ClockMap, Evidence, GuestTicks, HostTicks};
use vmtax_model::{ClockFinding, Missing, Series, Stamped, TraceFacts, TrialRecord, files};
use vmtax_trace::{Counts, Entry, Events, Folder};

/// By which clock both sides have to trace.
const CLOCK: &str = "x86-tsc";
/// A bound that leaves nothing to be wished for, microseconds.
const GOOD_US: f64 = 0.5;
/// What an operation is about where the workload does not say.
const BLOCK: u64 = 4096;

/// Joins the requests of an observed trial. `folder` has the files of [`vmtax_model::files`].
///
/// # Errors
/// [`LayersError`] when a file cannot be read, or the clocks cannot be brought together.
pub fn join(folder: &Path, record: &TrialRecord) -> Result<JoinedTrial, LayersError> {
    let facts = facts(folder)?;
    let series = series(folder)?;
    let (guest, host) = (open(&folder.join(files::GUEST))?, open(&folder.join(files::HOST))?);
    let log = match &host {
        None => logged(&folder.join(files::HOST).join(files::QEMU_LOG), &facts)?,
        Some(_) => Vec::new(),
    };
    let view = match &guest {
        _ if record.machine.is_micro() => View::Driver,
        Some(guest) if facts.guest_disk.is_some() && guest.readers.has_requests() => View::Kernel,
        _ => View::Blind,
    };
    let of_guest = guest.as_ref().filter(|_| view == View::Kernel);
    let map = clock(&facts, &series, of_guest, host.as_ref(), &log)?;
    let coarse = if log.is_empty() { 0.0 } else { qemu_log::RESOLUTION_NS };
    let bound = map.bound().saturating_add((coarse * facts.tsc_mhz / 1000.0) as u64);
    let operations = in_host_ticks(&series, &map);
    let mut join = Join::new(&facts, operations, block_size(record), view, bound);

    let mut guest = guest.as_ref().map(|g| Side::begin(g, |ticks| map.host(GuestTicks(ticks)).0)).transpose()?;
    let mut host = host.as_ref().map(|h| Side::begin(h, |ticks| ticks)).transpose()?;
    let mut log = log.into_iter();
    let mut next_of_host = || match &mut host {
        None => Ok(log.next()),
        Some(_) => next(&mut host, |r, e| r.host(e, &facts)),
    };
    let mut next_guest = next(&mut guest, |r, e| r.guest(e, &facts))?;
    let mut next_host = next_of_host()?;
    loop {
        match (&next_guest, &next_host) {
            (Some(g), h) if h.as_ref().is_none_or(|h| g.at <= h.at) => {
                join.guest(g);
                next_guest = next(&mut guest, |r, e| r.guest(e, &facts))?;
            }
            (_, Some(h)) => {
                join.host(h);
                next_host = next_of_host()?;
            }
            _ => break,
        }
    }

    let mut missing = facts.missing.clone();
    let mut losses = Vec::new();
    if let Some(side) = guest {
        side.end(&mut losses, &mut missing);
    }
    if let Some(side) = host {
        side.end(&mut losses, &mut missing);
    }
    let clock = ClockFinding {
        bound_ns: bound as f64 * 1000.0 / facts.tsc_mhz,
        source: map.source().to_string(),
        drift_ns: map.moved() as f64 * 1000.0 / facts.tsc_mhz,
        violations: 0,
    };
    Ok(JoinedTrial::new(join.finish(), &losses, clock, facts.tsc_mhz, missing))
}

fn read(path: &Path) -> Result<Vec<u8>, LayersError> {
    fs::read(path).map_err(|source| LayersError::Read { path: path.to_owned(), source })
}

fn facts(folder: &Path) -> Result<TraceFacts, LayersError> {
    let path = folder.join(files::FACTS);
    let bytes = read(&path)?;
    let wrong = |reason: String| LayersError::Facts { path: path.clone(), reason };
    let facts: TraceFacts = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    if facts.schema > vmtax_model::SCHEMA {
        return Err(wrong(format!("schema {} is of a newer vmtax", facts.schema)));
    }
    // What a clock has that ticks at all.
    if !(1.0..=1e6).contains(&facts.tsc_mhz) {
        return Err(wrong(format!("a clock of {} MHz", facts.tsc_mhz)));
    }
    Ok(facts)
}

fn series(folder: &Path) -> Result<Series, LayersError> {
    let path = folder.join(files::SERIES);
    Series::from_bytes(&read(&path)?).map_err(|source| LayersError::Series { path, source })
}

fn in_host_ticks(series: &Series, map: &ClockMap) -> Vec<Stamped> {
    let host = |ticks| map.host(GuestTicks(ticks)).0;
    let of = |o: &Stamped| Stamped { begin: host(o.begin), end: host(o.end), offset: o.offset };
    let mut operations: Vec<Stamped> = series.operations.iter().map(of).collect();
    operations.sort_by_key(|o| o.begin);
    operations
}

/// How much of the disk an operation is about: the workload's block size, with K and M as it writes them.
fn block_size(record: &TrialRecord) -> u64 {
    let spec = record.result().map_or(&record.workload, |r| &r.workload);
    let parse = |text: &String| {
        let shift = match text.as_bytes().last()? {
            b'K' | b'k' => 10,
            b'M' | b'm' => 20,
            b'G' | b'g' => 30,
            _ => 0,
        };
        let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
        digits.parse::<u64>().ok()?.checked_shl(shift)
    };
    spec.options.get("block-size").and_then(parse).filter(|b| *b > 0).unwrap_or(BLOCK)
}

/// One side's trace, opened.
struct Trace {
    folder: Folder,
    readers: Readers,
}

/// QEMU's own log; empty where there is none.
fn logged(path: &Path, facts: &TraceFacts) -> Result<Vec<Event<Host>>, LayersError> {
    if path.exists() { qemu_log::read(path, &facts.moments) } else { Ok(Vec::new()) }
}

/// Opens a trace; `None` where this side's kernel was not traced.
fn open(path: &Path) -> Result<Option<Trace>, LayersError> {
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

/// How both sides' clocks compare: by what was recorded of it; where that is missing or says little, also by causes and
/// effects among the requests.
fn clock(
    facts: &TraceFacts,
    series: &Series,
    guest: Option<&Trace>,
    host: Option<&Trace>,
    log: &[Event<Host>],
) -> Result<ClockMap, LayersError> {
    let mut evidence = Evidence::new(&facts.pings, facts.kvm_offset);
    let recorded = evidence.map();
    if recorded.as_ref().is_ok_and(|map| map.bound() as f64 <= GOOD_US * facts.tsc_mhz) {
        return Ok(recorded?);
    }
    let (mut issues, mut completes) = (Places::default(), Places::default());
    let (mut pops, mut pushes) = (Places::default(), Places::default());
    match guest {
        Some(trace) => each(trace, |r, e| match r.guest(e, facts).map(|e| (e.at, e.what)) {
            Some((at, Guest::Issue { offset, .. })) => issues.add(offset, at),
            Some((at, Guest::Complete { offset })) => completes.add(offset, at),
            _ => {}
        })?,
        None => {
            for o in &series.operations {
                issues.add(o.offset, o.begin);
                completes.add(o.offset, o.end);
            }
        }
    }
    let mut of_host = |event: &Event<Host>| match event.what {
        Host::Pop(Element { offset: Some(offset), .. }) => pops.add(offset, event.at),
        Host::Push(Element { offset: Some(offset), .. }) => pushes.add(offset, event.at),
        _ => {}
    };
    if let Some(trace) = host {
        each(trace, |r, e| r.host(e, facts).iter().for_each(&mut of_host))?;
    }
    log.iter().for_each(of_host);
    issues.pairs(&pops).for_each(|(guest, host)| evidence.guest_first(GuestTicks(guest), HostTicks(host)));
    completes.pairs(&pushes).for_each(|(guest, host)| evidence.host_first(HostTicks(host), GuestTicks(guest)));
    // Events that were lost pair what does not belong together; then what was recorded stands alone.
    Ok(evidence.map().or(recorded)?)
}

fn each(trace: &Trace, mut take: impl FnMut(&Readers, &vmtax_trace::Event<'_>)) -> Result<(), LayersError> {
    let mut events = trace.folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            take(&trace.readers, &event);
        }
    }
    Ok(())
}

/// When something happened to each place of the disk.
#[derive(Default)]
struct Places(HashMap<u64, Vec<u64>>);

impl Places {
    fn add(&mut self, offset: u64, at: u64) {
        self.0.entry(offset).or_default().push(at);
    }

    /// What happened in both, first with first; only where both were seen as often.
    fn pairs<'a>(&'a self, other: &'a Places) -> impl Iterator<Item = (u64, u64)> + 'a {
        let both = self.0.iter().filter_map(|(offset, times)| Some((times, other.0.get(offset)?)));
        both.filter(|(a, b)| a.len() == b.len()).flat_map(|(a, b)| a.iter().copied().zip(b.iter().copied()))
    }
}

/// One side's trace, while it is read.
struct Side<'f, M> {
    trace: &'f Trace,
    events: Events<'f>,
    /// From its ticks to the host's.
    map: M,
    /// When the last entry of each input was, host ticks.
    last: Vec<u64>,
    losses: Vec<Loss>,
}

impl<'f, M: Fn(u64) -> u64> Side<'f, M> {
    fn begin(trace: &'f Trace, map: M) -> Result<Self, LayersError> {
        let last = vec![0; trace.folder.inputs().len()];
        Ok(Side { trace, events: trace.folder.events()?, map, last, losses: Vec::new() })
    }

    /// What ends with the trace: buffers that were full lose all that comes after.
    fn end(self, losses: &mut Vec<Loss>, missing: &mut Vec<Missing>) {
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
fn next<M: Fn(u64) -> u64, W>(
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
