//! What the scheduler's events say of a profiled process, for a terminal.

use crate::number::{count, nanoseconds};
use crate::profile::percent;
use crate::table::{self, right};
use crate::text::{Paint, fit, plain};
use comfy_table::Cell;
use vmtax_model::{BlockedOn, FutexWaits, NamedThread, ScheduleFindings};

/// Threads that a terminal shows.
const THREADS: usize = 12;
/// Futexes that a terminal shows.
const FUTEXES: usize = 8;
/// Threads whose system calls a terminal shows, and how many rows of each.
const CALLS: (usize, usize) = (2, 8);

/// The tables with their titles.
pub(crate) fn terminal(found: &ScheduleFindings, width: usize, paint: &Paint) -> String {
    let title = |text: &str| format!("\n{}\n", paint.bold(text));
    let mut out = title(&format!("Threads by the scheduler, {:.1} s", found.seconds)) + &threads(found, width, paint.0);
    if !found.futexes.is_empty() {
        out += &(title("Futexes") + &futexes(found, width, paint.0));
    }
    for thread in found.threads.iter().filter(|thread| !thread.calls.is_empty()).take(CALLS.0) {
        let mut table = table::empty(paint.0);
        let head = ["count", "mean", "stddev", "min", "max", "total"].map(right);
        table.set_header([Cell::new("call")].into_iter().chain(head));
        for call in thread.calls.iter().take(CALLS.1) {
            let times = [call.mean_ns, call.stddev_ns, call.min_ns, call.max_ns, call.total_ns];
            let times = times.map(|ns| right(nanoseconds(ns)));
            table.add_row([Cell::new(fit(&plain(&call.name), 20)), right(count(call.count))].into_iter().chain(times));
        }
        let name = format!("System calls of {} ({}); _post: the user time after one", plain(&thread.name), thread.tid);
        out += &(title(&name) + &table::lines(table) + "\n");
    }
    out
}

fn threads(found: &ScheduleFindings, width: usize, color: bool) -> String {
    let mut table = table::empty(color);
    let head = ["tid", "runs", "ready", "blocked"].map(right);
    table.set_header([Cell::new("thread")].into_iter().chain(head).chain([Cell::new("on")]));
    let room = width.saturating_sub(50).max(16);
    for thread in found.threads.iter().take(THREADS) {
        let told = |wait: &BlockedOn| Cell::new(fit(&format!("{} {}", percent(wait.share), on(found, wait)), room));
        let mut waits = thread.on.iter().filter(|on| on.share >= 0.01).take(3).map(told);
        table.add_row([
            Cell::new(fit(&plain(&thread.name), 16)),
            right(thread.tid.to_string()),
            right(percent(thread.runs)),
            right(percent(thread.ready)),
            right(percent(thread.blocked)),
            waits.next().unwrap_or(Cell::new("")),
        ]);
        for wait in waits {
            let empty = || Cell::new("");
            table.add_row([empty(), empty(), empty(), empty(), empty(), wait]);
        }
    }
    let more = found.threads.len().saturating_sub(THREADS);
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    table::lines(table) + "\n" + &rest
}

/// "futex 0x7f10 (a lock)", "ppoll", "no system call".
pub(crate) fn on(found: &ScheduleFindings, on: &BlockedOn) -> String {
    match &on.futex {
        Some(address) => {
            let what = found.futexes.iter().find(|futex| futex.address == *address).map(what).unwrap_or_default();
            if what.is_empty() { format!("futex {address}") } else { format!("{what}, {address}") }
        }
        None if on.call.is_empty() => "no system call".to_owned(),
        None => plain(&on.call),
    }
}

/// "QEMU's big lock", "a lock below f"; empty where nobody was seen there.
pub(crate) fn what(futex: &FutexWaits) -> String {
    let Some(what) = futex.what else { return String::new() };
    let words = what.words().trim_start_matches("for ");
    let below = if futex.below.is_empty() { String::new() } else { format!(" below {}", plain(&futex.below)) };
    format!("{words}{below}")
}

/// "held by a (12)", "woken by b (13) ×4": of a lock, who wakes is who held it.
pub(crate) fn who(futex: &FutexWaits) -> Vec<String> {
    let named = |thread: &NamedThread| format!("{} ({})", plain(&thread.name), thread.tid);
    let held = futex.holder.iter().map(|thread| format!("held by {}", named(thread)));
    let woken = futex.wakers.iter().take(3).map(|waker| format!("woken by {} ×{}", named(&waker.thread), waker.count));
    held.chain(woken).collect()
}

fn futexes(found: &ScheduleFindings, width: usize, color: bool) -> String {
    let mut table = table::empty(color);
    table.set_header([
        Cell::new("futex"),
        right("waits"),
        right("waited"),
        right("longest"),
        Cell::new("what, and who had it"),
    ]);
    for futex in found.futexes.iter().take(FUTEXES) {
        let told = [what(futex)].into_iter().chain(who(futex)).filter(|text| !text.is_empty());
        let mut told = told.map(|text| Cell::new(fit(&text, width.saturating_sub(46).max(16))));
        table.add_row([
            Cell::new(&futex.address),
            right(count(futex.waits)),
            right(nanoseconds(futex.waited_ns)),
            right(nanoseconds(futex.longest_ns)),
            told.next().unwrap_or(Cell::new("")),
        ]);
        for text in told {
            let empty = || Cell::new("");
            table.add_row([empty(), empty(), empty(), empty(), text]);
        }
    }
    let more = found.futexes.len().saturating_sub(FUTEXES);
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    table::lines(table) + "\n" + &rest
}
