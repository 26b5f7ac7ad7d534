//! The scheduler's events and system calls of a process, traced: each switch, each wake-up and each call, not samples.

use crate::clock::monotonic_ns;
use crate::process::{has_ended, own_tids, thread_names};
use crate::{ProbeError, ProbeSet, Sink, ThreadReader, Tracer, cpu_buffer_kib};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmtax_model::Missing;
use vmtax_model::samples::{ScheduleFacts, ThreadState};
use vmtax_trace::FUTEX;

/// Room for events in the kernel, of all CPUs together, KiB. Of 60 bytes each that is a million.
const ROOM_KIB: usize = 64 << 10;
/// Until the timeout, somebody may want to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Traces a process's threads until the timeout, the process ends, or `stop` says so. The trace goes to `sink`, file by
/// file. What this kernel does not trace is among what is missing.
///
/// # Errors
/// [`ProbeError`] when there is no tracefs for us, or no such process.
pub fn schedule(
    pid: i32,
    time: Duration,
    stop: &dyn Fn() -> bool,
    sink: Sink<'_>,
) -> Result<(ScheduleFacts, Vec<Missing>), ProbeError> {
    let reader = ThreadReader::new(pid)?;
    let mut names: BTreeMap<i32, String> = thread_names(pid).into_iter().collect();
    let tids: Vec<i32> = names.keys().copied().collect();
    let buffer_kib = cpu_buffer_kib(ROOM_KIB, 1024..=ROOM_KIB);
    let tracer = Tracer::start(&ProbeSet::schedule(&tids), buffer_kib)?;
    let begin = monotonic_ns();
    let states = tids
        .iter()
        .filter_map(|tid| Some((*tid, reader.state(*tid)?)))
        .collect();
    tracer.on()?;
    let watched = Instant::now();
    while watched.elapsed() < time && !stop() && !has_ended(pid) {
        std::thread::sleep(POLL_INTERVAL.min(time.saturating_sub(watched.elapsed())));
    }
    tracer.off()?;
    let end = monotonic_ns();
    names.extend(thread_names(pid));
    let facts = ScheduleFacts {
        begin,
        end,
        states,
        holders: holders(pid, &reader, &names),
        names,
    };
    let missing = tracer.missing().to_vec();
    tracer.save(sink)?;
    Ok((facts, missing))
}

/// Who holds the locks that threads wait for now. A mutex of the C library's (`pthread_mutex_t` of glibc on x86-64) is
/// `{ int lock; unsigned count; int owner; … }`, waited for at `lock`.
fn holders(pid: i32, reader: &ThreadReader, names: &BTreeMap<i32, String>) -> BTreeMap<u64, i32> {
    let numbers = own_tids(pid);
    let mut holders = BTreeMap::new();
    for tid in names.keys() {
        let Some(ThreadState::Waits {
            call: Some(FUTEX),
            argument,
            ..
        }) = reader.state(*tid)
        else {
            continue;
        };
        let mut mutex = [0; 12];
        if reader.copy(argument, &mut mutex) == mutex.len() && mutex[..4] != [0; 4] {
            let owner = i32::from_le_bytes([mutex[8], mutex[9], mutex[10], mutex[11]]);
            holders.extend(numbers.get(&owner).map(|owner| (argument, *owner)));
        }
    }
    holders
}
