//! Findings from the scheduler's events and the system calls of a profiled process.

use super::share::percent;
use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{count, nanoseconds};
use vmtax_model::{BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule};

/// Rows of threads, futexes and system calls that a terminal shows without details.
const SHOWN: (usize, usize, usize) = (24, 16, 8);
/// Threads whose system calls a terminal shows without details.
const CALLING: usize = 2;

/// Tables of threads, futexes, and each thread's system calls.
pub fn sections(found: &ScheduleFindings) -> Vec<Section<'_>> {
    let when = format!("first {:.1} s, traced", found.seconds);
    let title = format!("Threads by scheduler events ({when})");
    let mut sections = vec![Section::detail(title, vec![Block::Table(threads(found))])];
    if !found.futexes.is_empty() {
        sections.push(Section::new(
            format!("Futexes ({when})"),
            vec![Block::Table(futexes(found))],
        ));
    }
    let calling = found
        .threads
        .iter()
        .filter(|thread| !thread.calls.is_empty())
        .enumerate();
    sections.extend(calling.map(|(i, thread)| {
        let title = format!(
            "System calls of {}, and time between them (tid {}; {when})",
            thread.name, thread.tid
        );
        Section {
            detail: i >= CALLING,
            ..Section::new(title, vec![Block::Table(calls(thread))])
        }
    }));
    sections
}

fn threads(found: &ScheduleFindings) -> Table {
    let columns = vec![
        Column::words("thread").cut(16, 10),
        Column::figures("tid").spare(2),
        Column::figures("running"),
        Column::figures("runnable").spare(1),
        Column::figures("blocked"),
        Column::words("on").cut(24, 16),
    ];
    let mut table = Table::new("Threads by scheduler events", columns).most(SHOWN.0);
    for thread in &found.threads {
        let blocked = |wait: &BlockedOn| {
            format!(
                "{} {} ×{}",
                percent(wait.share),
                on(found, wait),
                count(wait.count)
            )
        };
        let mut waits = thread
            .on
            .iter()
            .filter(|on| on.share >= 0.01)
            .take(3)
            .map(blocked);
        let shares = [thread.runs, thread.ready, thread.blocked].map(percent);
        let named = [thread.name.clone(), thread.tid.to_string()]
            .into_iter()
            .chain(shares);
        table.first(
            named
                .chain([waits.next().unwrap_or_default()])
                .map(Cell::from)
                .collect(),
        );
        waits.for_each(|wait| {
            table.row(
                vec![""; 5]
                    .into_iter()
                    .map(Cell::from)
                    .chain([wait.into()])
                    .collect(),
            )
        });
    }
    table
}

/// "futex 0x7f10 (a lock)", "ppoll", "no system call".
fn on(found: &ScheduleFindings, on: &BlockedOn) -> String {
    match &on.futex {
        Some(address) => {
            let what = found
                .futexes
                .iter()
                .find(|futex| futex.address == *address)
                .map(what)
                .unwrap_or_default();
            if what.is_empty() {
                format!("futex {address}")
            } else {
                format!("{what}, {address}")
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
    let below = if futex.below.is_empty() {
        String::new()
    } else {
        format!(" ({})", futex.below)
    };
    format!("{}{below}", what.label())
}

/// "held by a (12)", "woken by b (13) ×4": the waker of a lock is who held it.
fn who(futex: &FutexWaits) -> impl Iterator<Item = String> {
    let named = |thread: &NamedThread| format!("{} ({})", thread.name, thread.tid);
    let held = futex
        .holder
        .iter()
        .map(move |thread| format!("held by {}", named(thread)));
    let woken = futex.wakers.iter().take(3);
    held.chain(
        woken.map(move |waker| format!("woken by {} ×{}", named(&waker.thread), waker.count)),
    )
}

fn futexes(found: &ScheduleFindings) -> Table {
    let columns = vec![
        Column::words("futex"),
        Column::figures("waits"),
        Column::figures("waited"),
        Column::figures("longest").spare(1),
        Column::words("reason, holder or waker, waiters").cut(24, 16),
    ];
    let mut table = Table::new("Futexes", columns).most(SHOWN.1);
    for futex in &found.futexes {
        let waiters: Vec<String> = futex
            .waiters
            .iter()
            .map(|t| format!("{} ({})", t.name, t.tid))
            .collect();
        let waiters = (!waiters.is_empty()).then(|| format!("waiters: {}", waiters.join(", ")));
        let reason = Some(what(futex))
            .filter(|what| !what.is_empty())
            .map(|what| format!("wait for {what}"));
        let about = reason.into_iter().chain(who(futex)).chain(waiters);
        let mut about = about.collect::<Vec<String>>().into_iter();
        let figures = [
            count(futex.waits),
            nanoseconds(futex.waited_ns),
            nanoseconds(futex.longest_ns),
        ];
        let named = [futex.address.clone()]
            .into_iter()
            .chain(figures)
            .chain([about.next().unwrap_or_default()]);
        table.first(named.map(Cell::from).collect());
        about.for_each(|text| {
            table.row(
                vec![""; 4]
                    .into_iter()
                    .map(Cell::from)
                    .chain([text.into()])
                    .collect(),
            )
        });
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
    Table::of(format!("System calls of {}", thread.name), &thread.calls)
        .column(Column::words("call").cut(20, 12), |call| {
            match call.name.strip_suffix("_post") {
                Some(name) => format!("time after {name}"),
                None => call.name.clone(),
            }
        })
        .column(Column::figures("count"), |call| count(call.count))
        .columns(
            times.map(|(name, spare)| Column::figures(name).spare(spare)),
            |call| {
                [
                    call.mean_ns,
                    call.stddev_ns,
                    call.min_ns,
                    call.max_ns,
                    call.total_ns,
                ]
                .map(nanoseconds)
            },
        )
        .done()
        .most(SHOWN.2)
        .notes(vec![
            "Time after NAME: between that call and the next.".to_owned(),
        ])
}
