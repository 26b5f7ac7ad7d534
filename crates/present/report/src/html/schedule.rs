//! What the scheduler's events say of a profiled process, as tables of its page.

use super::scrolled::table;
use crate::number::{count, nanoseconds};
use crate::profile::percent;
use crate::schedule::{on, what, who};
use maud::{Markup, html as markup};
use vmtax_model::{ScheduleFindings, ThreadTimes};

/// Tables of threads, futexes, and each thread's system calls.
pub(super) fn tables(found: &ScheduleFindings) -> Markup {
    let calling = || found.threads.iter().filter(|thread| !thread.calls.is_empty());
    markup! {
        section { h2 { (format!("Threads by the scheduler, {:.1} s", found.seconds)) } (threads(found)) }
        @if !found.futexes.is_empty() { section { h2 { "Futexes" } (futexes(found)) } }
        @if calling().next().is_some() {
            section {
                h2 { "System calls" }
                p { "With _post behind its name: the user time after a call, until the next." }
                @for thread in calling() { details { summary { (thread.name) " (" (thread.tid) ")" } (calls(thread)) } }
            }
        }
    }
}

fn threads(found: &ScheduleFindings) -> Markup {
    let rows = markup! {
        @for t in &found.threads {
            tr {
                th scope="row" { (t.name) }
                td { (t.tid) } td { (percent(t.runs)) } td { (percent(t.ready)) } td { (percent(t.blocked)) }
                td {
                    @for (i, wait) in t.on.iter().filter(|wait| wait.share >= 0.001).enumerate() {
                        @if i > 0 { br; }
                        (percent(wait.share)) " " (on(found, wait)) " ×" (count(wait.count))
                    }
                }
            }
        }
    };
    table("Threads by the scheduler", &["thread", "tid", "runs", "ready", "blocked", "on"], &rows)
}

fn futexes(found: &ScheduleFindings) -> Markup {
    let rows = markup! {
        @for f in &found.futexes {
            tr {
                th scope="row" { (f.address) }
                td { (what(f)) } td { (count(f.waits)) } td { (nanoseconds(f.waited_ns)) } td { (nanoseconds(f.longest_ns)) }
                td { @for (i, t) in f.waiters.iter().enumerate() { @if i > 0 { ", " } (t.name) " (" (t.tid) ")" } }
                td { (who(f).join("; ")) }
            }
        }
    };
    table("Futexes", &["futex", "what", "waits", "waited", "longest", "who waits", "who had it"], &rows)
}

fn calls(thread: &ThreadTimes) -> Markup {
    let rows = markup! {
        @for c in &thread.calls {
            tr {
                th scope="row" { (c.name) }
                td { (count(c.count)) }
                @for ns in [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns] { td { (nanoseconds(ns)) } }
            }
        }
    };
    table("System calls", &["call", "count", "mean", "stddev", "min", "max", "total"], &rows)
}
