//! Runs, waits and system calls of a process's threads, from the scheduler's events: each switch of a CPU, each
//! wake-up and each system call, not samples.

mod findings;
mod timeline;

pub use findings::findings;

use crate::ProfileError;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use timeline::Timeline;
use vmtax_model::samples::{ScheduleFacts, ThreadState};
use vmtax_trace::{Entry, Folder, KernelDecoder};

/// Threads' runs, waits and system calls.
#[derive(Debug)]
pub struct Schedule {
    timeline: Timeline,
    facts: ScheduleFacts,
    /// Duration of the trace.
    time: Duration,
    /// Events that there was no room for.
    lost: u64,
}

impl Schedule {
    /// Reads the trace in a folder.
    ///
    /// # Errors
    /// [`ProfileError`] when it is damaged.
    pub fn read(folder: &Path, facts: ScheduleFacts) -> Result<Schedule, ProfileError> {
        let mut timeline = Timeline::default();
        facts
            .states
            .iter()
            .for_each(|(tid, state)| timeline.add(*tid, *state, facts.begin));
        let folder = Folder::open(folder)?;
        let lost: u64 = folder
            .stats()
            .iter()
            .map(|cpu| cpu.dropped + cpu.overrun + cpu.commit_overrun)
            .sum();
        let end = if lost == 0 {
            facts.end
        } else {
            whole(&folder, facts.end)?
        };
        let decoder = KernelDecoder::new(folder.formats());
        let mut events = folder.events()?;
        while let Some(entry) = events.next()? {
            let Entry::Event(event) = entry else { continue };
            if event.ticks > end {
                break;
            }
            // Threads that began meanwhile did so with their first event.
            if facts.names.contains_key(&event.pid) && !timeline.threads.contains_key(&event.pid) {
                timeline.add(event.pid, ThreadState::Runs, event.ticks);
            }
            if let Some(what) = decoder.decode(&event) {
                timeline.take(event.ticks, event.pid, what);
            }
        }
        timeline.end(end);
        let time = Duration::from_nanos(end.saturating_sub(facts.begin));
        Ok(Schedule {
            timeline,
            facts,
            time,
            lost,
        })
    }
}

/// Until when no CPU's events are lost: each keeps the first ones.
fn whole(folder: &Folder, end: u64) -> Result<u64, ProfileError> {
    let mut last: HashMap<u32, u64> = HashMap::new();
    let mut events = folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            last.insert(event.cpu, event.ticks);
        }
    }
    let full = folder
        .stats()
        .iter()
        .filter(|cpu| cpu.dropped + cpu.overrun > 0);
    Ok(full
        .filter_map(|cpu| last.get(&cpu.cpu).copied())
        .fold(end, u64::min))
}
