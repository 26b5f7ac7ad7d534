//! Findings from the scheduler's events and the system calls of a profiled process.

use super::samples::percent;
use crate::engine::{Cell, Section, Table, figures, words};
use crate::number::{count, nanoseconds};
use crate::text::{Joined, only_if};
use vmtax_findings::{BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule};

/// Rows of threads, futexes and system calls that a terminal shows without details.
const SHOWN: (usize, usize, usize) = (24, 16, 8);
/// Threads whose system calls a terminal shows without details.
const CALLING: usize = 2;

/// Tables of threads, futexes, and each thread's system calls.
pub fn sections(found: &ScheduleFindings) -> Vec<Section<'_>> {
    let when = format!("first {:.1} s, traced", found.seconds);
    let title = format!("Threads by scheduler events ({when})");
    let mut sections = vec![Section::detail(title, [threads(found)])];
    if !found.futexes.is_empty() {
        sections.push(Section::new(format!("Futexes ({when})"), [futexes(found)]));
    }
    let calling = found
        .threads
        .iter()
        .filter(|thread| !thread.calls.is_empty());
    sections.extend(calling.enumerate().map(|(i, thread)| {
        let title = format!(
            "System calls of {}, and time between them (tid {}; {when})",
            thread.name, thread.tid
        );
        Section {
            detail: i >= CALLING,
            ..Section::new(title, [calls(thread)])
        }
    }));
    sections
}

fn threads(found: &ScheduleFindings) -> Table {
    let columns = vec![
        words("thread").cut(16, 10),
        figures("tid").spare(2),
        figures("running"),
        figures("runnable").spare(1),
        figures("blocked"),
        words("on").cut(24, 16),
    ];
    let mut table = Table::new("Threads by scheduler events", columns).most(SHOWN.0);
    for thread in &found.threads {
        let blocked = |wait: &BlockedOn| {
            let (share, count) = (percent(wait.share), count(wait.count));
            format!("{share} {} ×{count}", on(found, wait))
        };
        let waits = thread.on.iter().filter(|on| on.share >= 0.01);
        let shares = [thread.runs, thread.ready, thread.blocked].map(percent);
        let named = [thread.name.clone(), thread.tid.to_string()];
        let cells = named.into_iter().chain(shares).map(Cell::from);
        table.first_with(cells.collect(), waits.take(3).map(blocked));
    }
    table
}

/// "futex 0x7f10 (a lock)", "ppoll", "no system call".
fn on(found: &ScheduleFindings, on: &BlockedOn) -> String {
    match &on.futex {
        Some(address) => {
            let mut futexes = found.futexes.iter();
            let futex = futexes.find(|futex| futex.address == *address);
            match futex.map(what).unwrap_or_default() {
                what if what.is_empty() => format!("futex {address}"),
                what => format!("{what}, {address}"),
            }
        }
        None if on.call.is_empty() => "no system call".to_owned(),
        None => on.call.clone(),
    }
}

/// "the BQL", "a lock (f)"; empty where no waiter was sampled.
fn what(futex: &FutexWaits) -> String {
    let Some(what) = futex.what else {
        return String::new();
    };
    let below = only_if(!futex.below.is_empty(), format!(" ({})", futex.below));
    format!("{}{below}", what.label())
}

/// "a (12)".
fn named(thread: &NamedThread) -> String {
    format!("{} ({})", thread.name, thread.tid)
}

/// "held by a (12)", "woken by b (13) ×4": the waker of a lock is who held it.
fn who(futex: &FutexWaits) -> impl Iterator<Item = String> {
    let held = futex.holder.iter();
    let held = held.map(move |thread| format!("held by {}", named(thread)));
    let woken = futex.wakers.iter().take(3);
    let woken = woken.map(move |one| format!("woken by {} ×{}", named(&one.thread), one.count));
    held.chain(woken)
}

fn futexes(found: &ScheduleFindings) -> Table {
    let columns = vec![
        words("futex"),
        figures("waits"),
        figures("waited"),
        figures("longest").spare(1),
        words("reason, holder or waker, waiters").cut(24, 16),
    ];
    let mut table = Table::new("Futexes", columns).most(SHOWN.1);
    for futex in &found.futexes {
        let waiters = futex.waiters.iter().map(named).joined(", ");
        let waiters = (!waiters.is_empty()).then(|| format!("waiters: {waiters}"));
        let what = what(futex);
        let reason = (!what.is_empty()).then(|| format!("wait for {what}"));
        let about = reason.into_iter().chain(who(futex)).chain(waiters);
        let cells = [
            futex.address.clone(),
            count(futex.waits),
            nanoseconds(futex.waited_ns),
            nanoseconds(futex.longest_ns),
        ];
        table.first_with(cells.map(Cell::from).to_vec(), about);
    }
    table
}

fn calls(thread: &ThreadSchedule) -> Table {
    let times = [
        ("mean", 0),
        ("stddev", 1),
        ("min", 2),
        ("max", 0),
        ("total", 0),
    ];
    let times = times.map(|(name, spare)| figures(name).spare(spare));
    Table::of(format!("System calls of {}", thread.name), &thread.calls)
        .column(words("call").cut(20, 12), |call| {
            let after = call.name.strip_suffix("_post");
            after.map_or_else(|| call.name.clone(), |name| format!("time after {name}"))
        })
        .column(figures("count").samples(), |call| count(call.count))
        .columns(times, |c| {
            [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns].map(nanoseconds)
        })
        .done()
        .most(SHOWN.2)
        .notes(vec![
            "Time after NAME: between that call and the next.".to_owned(),
        ])
}
