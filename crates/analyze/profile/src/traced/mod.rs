//! What a process's threads run, wait and call for, from the scheduler's events: each switch of a processor, each wake-up and
//! each system call, not samples.

mod decode;
mod findings;
mod timeline;

pub use findings::of;

use crate::ProfileError;
use crate::on_cpu::{is_gone, thread_names};
use crate::wall::now;
use decode::Decoder;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use timeline::Timeline;
use vmtax_model::Missing;
use vmtax_observe::{Looker, ProbeSet, State, Tracer};
use vmtax_trace::{Entry, FUTEX, Folder};

/// Room for events in the kernel, of all processors together, KiB. Of 60 bytes each that is a million.
const ROOM_KIB: usize = 64 << 10;
/// Until the time is over, somebody may want to stop.
const PACE: Duration = Duration::from_millis(20);

/// What was traced.
#[derive(Debug)]
pub struct Traced {
    timeline: Timeline,
    /// How long.
    time: Duration,
    /// Events that there was no room for.
    lost: u64,
    names: HashMap<i32, String>,
    /// Who held the locks of the C library's that somebody waited for at the end, by address.
    holders: HashMap<u64, i32>,
    /// What this kernel has not.
    pub missing: Vec<Missing>,
}

/// Traces a process's threads until the time is over, the process ends, or `stop` says so.
///
/// # Errors
/// [`ProfileError`] when there is no tracefs for us, or no such process.
pub fn traced(pid: i32, time: Duration, stop: &dyn Fn() -> bool) -> Result<Traced, ProfileError> {
    let looker = Looker::new(pid)?;
    let mut names: HashMap<i32, String> = thread_names(pid).into_iter().collect();
    let tids: Vec<i32> = names.keys().copied().collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let tracer = Tracer::start(&ProbeSet::schedule(&tids), (ROOM_KIB / cpus).max(1024) as u32)?;
    let mut timeline = Timeline::default();
    let begin = now();
    for (tid, state) in tids.iter().filter_map(|tid| Some((*tid, looker.state(*tid)?))) {
        timeline.add(tid, state, begin);
    }
    tracer.on()?;
    let watched = Instant::now();
    while watched.elapsed() < time && !stop() && !is_gone(pid) {
        std::thread::sleep(PACE.min(time.saturating_sub(watched.elapsed())));
    }
    tracer.off()?;
    let end = now();
    names.extend(thread_names(pid));
    let holders = holders(pid, &looker, &names);

    let scratch = tempfile::tempdir().map_err(ProfileError::Scratch)?;
    tracer.save(&mut |name, bytes| append(&scratch.path().join(name), bytes))?;
    let missing = tracer.missing().to_vec();
    drop(tracer);
    let folder = Folder::open(scratch.path())?;
    let lost: u64 = folder.stats().iter().map(|cpu| cpu.dropped + cpu.overrun + cpu.commit_overrun).sum();
    let end = if lost == 0 { end } else { whole(&folder, end)? };
    let decoder = Decoder::new(folder.formats());
    let mut events = folder.events()?;
    while let Some(entry) = events.next()? {
        let Entry::Event(event) = entry else { continue };
        if event.ticks > end {
            break;
        }
        // Threads that began meanwhile did so with their first event.
        if names.contains_key(&event.pid) && !timeline.threads.contains_key(&event.pid) {
            timeline.add(event.pid, State::Runs, event.ticks);
        }
        if let Some(what) = decoder.what(&event) {
            timeline.take(event.ticks, event.pid, what);
        }
    }
    timeline.end(end);
    Ok(Traced { timeline, time: Duration::from_nanos(end.saturating_sub(begin)), lost, names, holders, missing })
}

/// Until when no processor's events are lost: each keeps the first ones.
fn whole(folder: &Folder, end: u64) -> Result<u64, ProfileError> {
    let mut last: HashMap<u32, u64> = HashMap::new();
    let mut events = folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            last.insert(event.cpu, event.ticks);
        }
    }
    let full = folder.stats().iter().filter(|cpu| cpu.dropped + cpu.overrun > 0);
    Ok(full.filter_map(|cpu| last.get(&cpu.cpu).copied()).fold(end, u64::min))
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    OpenOptions::new().create(true).append(true).open(path)?.write_all(bytes)
}

/// Who holds the locks that threads wait for now. A mutex of the C library's (`pthread_mutex_t` of glibc on x86-64) is
/// `{ int lock; unsigned count; int owner; … }`, waited for at `lock`.
fn holders(pid: i32, looker: &Looker, names: &HashMap<i32, String>) -> HashMap<u64, i32> {
    // By their numbers inside, where the process lives in a namespace of its own.
    let inside = |tid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        line.split_ascii_whitespace().last().and_then(|last| last.parse::<i32>().ok())
    };
    let numbers: HashMap<i32, i32> = names.keys().filter_map(|tid| Some((inside(tid)?, *tid))).collect();
    let mut holders = HashMap::new();
    for tid in names.keys() {
        let Some(State::Waits { call: Some(FUTEX), argument, .. }) = looker.state(*tid) else { continue };
        let mut mutex = [0; 12];
        if looker.copy(argument, &mut mutex) == mutex.len() && mutex[..4] != [0; 4] {
            let owner = i32::from_le_bytes([mutex[8], mutex[9], mutex[10], mutex[11]]);
            holders.extend(numbers.get(&owner).map(|owner| (argument, *owner)));
        }
    }
    holders
}
