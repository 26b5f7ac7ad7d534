//! Findings from the scheduler's events, in figures.

use super::Schedule;
use super::timeline::{Futex, Thread};
use crate::waits;
use vmtax_model::samples::WallClock;
use vmtax_model::{
    BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule, WaitFor, Waker,
};
use vmtax_trace::{CallPhase, call_rows, system_call_name};

/// The figures. What stands at a futex is named by the stacks that were sampled there by wall-clock.
pub fn findings(schedule: &Schedule, wall: Option<&WallClock>) -> ScheduleFindings {
    let mut threads: Vec<ThreadSchedule> = schedule
        .timeline
        .threads
        .iter()
        .map(|(tid, thread)| times(schedule, *tid, thread))
        .collect();
    threads.sort_by(|a, b| b.runs.total_cmp(&a.runs).then(a.tid.cmp(&b.tid)));
    let futexes = schedule
        .timeline
        .futexes
        .iter()
        .filter(|(_, futex)| futex.waits > 0);
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
    let calls = schedule.timeline.calls.times.range(
        (
            tid,
            CallPhase {
                call: i64::MIN,
                after: false,
            },
        )..,
    );
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
    let mut wakers: Vec<Waker> = futex
        .wakers
        .iter()
        .map(|(tid, count)| Waker {
            thread: named(*tid),
            count: *count,
        })
        .collect();
    wakers.sort_by_key(|waker| std::cmp::Reverse(waker.count));
    // A condition is no lock, whatever lies beside it.
    let is_lock = matches!(what, None | Some(WaitFor::Lock | WaitFor::BigLock));
    FutexWaits {
        address: address(at),
        what,
        below,
        waits: futex.waits,
        waited_ns: futex.waited as f64,
        longest_ns: futex.longest as f64,
        waiters: futex.waiters.iter().map(|tid| named(*tid)).collect(),
        wakers,
        holder: schedule
            .facts
            .holders
            .get(&at)
            .filter(|_| is_lock)
            .map(|tid| named(*tid)),
    }
}

fn name(schedule: &Schedule, tid: i32) -> String {
    schedule
        .facts
        .names
        .get(&tid)
        .cloned()
        .unwrap_or_else(|| "ended".to_owned())
}

fn address(at: u64) -> String {
    format!("{at:#x}")
}
