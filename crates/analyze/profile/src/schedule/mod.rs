//! Runs, waits and system calls of a process's threads, from the scheduler's events: each switch of a CPU, each
//! wake-up and each system call, not samples.

mod timeline;

use self::timeline::{Futex, Thread, Timeline};
use crate::{ProfileError, waits};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use vmtax_findings::{
    BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule, WaitFor, Waker,
};
use vmtax_model::samples::{ScheduleFacts, ThreadState, WallClock};
use vmtax_trace::{CallPhase, Entry, Folder, KernelDecoder, call_rows, system_call_name};

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

/// The figures. What stands at a futex is named by the stacks that were sampled there by wall-clock.
pub fn findings(schedule: &Schedule, wall: Option<&WallClock>) -> ScheduleFindings {
    let threads = schedule.timeline.threads.iter();
    let mut threads: Vec<ThreadSchedule> = threads
        .map(|(tid, thread)| times(schedule, *tid, thread))
        .collect();
    threads.sort_by(|a, b| b.runs.total_cmp(&a.runs).then(a.tid.cmp(&b.tid)));
    let futexes = schedule.timeline.futexes.iter();
    let futexes = futexes.filter(|(_, futex)| futex.waits > 0);
    let mut futexes: Vec<FutexWaits> = futexes
        .map(|(at, futex)| self::futex(schedule, wall, *at, futex))
        .collect();
    futexes.sort_by(|a, b| {
        b.waited_ns
            .total_cmp(&a.waited_ns)
            .then_with(|| a.address.cmp(&b.address))
    });
    ScheduleFindings {
        seconds: schedule.time.as_secs_f64(),
        lost: schedule.lost,
        threads,
        futexes,
    }
}

fn times(schedule: &Schedule, tid: i32, thread: &Thread) -> ThreadSchedule {
    let share = |ns: u64| ns as f64 / schedule.time.as_nanos().max(1) as f64;
    let mut on: Vec<BlockedOn> = (thread.on.iter())
        .map(|(on, (count, ns))| BlockedOn {
            call: on
                .call
                .map(system_call_name)
                .unwrap_or_default()
                .into_owned(),
            futex: on.futex.map(address),
            count: *count,
            share: share(*ns),
        })
        .collect();
    on.sort_by(|a, b| b.share.total_cmp(&a.share));
    let first = CallPhase {
        call: i64::MIN,
        after: false,
    };
    let calls = schedule.timeline.calls.times.range((tid, first)..);
    let calls = calls
        .take_while(|((of, _), _)| *of == tid)
        .map(|((_, phase), moments)| (*phase, moments));
    let calls = call_rows(calls, system_call_name);
    let blocked = share(thread.on.values().map(|(_, ns)| ns).sum());
    ThreadSchedule {
        tid,
        name: name(schedule, tid),
        runs: share(thread.ran),
        ready: share(thread.ready),
        blocked,
        on,
        calls,
    }
}

fn futex(schedule: &Schedule, wall: Option<&WallClock>, at: u64, futex: &Futex) -> FutexWaits {
    let seen = wall.and_then(|wall| waits::at_futex(&wall.profile, *wall.futexes.get(&at)?));
    let (what, below) = seen.map_or((None, String::new()), |(what, below)| (Some(what), below));
    let named = |tid: i32| NamedThread {
        tid,
        name: name(schedule, tid),
    };
    let waker = |(tid, count): (&i32, &u64)| Waker {
        thread: named(*tid),
        count: *count,
    };
    let mut wakers: Vec<Waker> = futex.wakers.iter().map(waker).collect();
    wakers.sort_by_key(|waker| std::cmp::Reverse(waker.count));
    // A condition is no lock, whatever lies beside it.
    let is_lock = matches!(what, None | Some(WaitFor::Lock | WaitFor::BigLock));
    let holder = schedule.facts.holders.get(&at);
    FutexWaits {
        address: address(at),
        what,
        below,
        waits: futex.waits,
        waited_ns: futex.waited as f64,
        longest_ns: futex.longest as f64,
        waiters: futex.waiters.iter().map(|tid| named(*tid)).collect(),
        wakers,
        holder: holder.filter(|_| is_lock).map(|tid| named(*tid)),
    }
}

fn name(schedule: &Schedule, tid: i32) -> String {
    let name = schedule.facts.names.get(&tid).cloned();
    name.unwrap_or_else(|| "ended".to_owned())
}

fn address(at: u64) -> String {
    format!("{at:#x}")
}
