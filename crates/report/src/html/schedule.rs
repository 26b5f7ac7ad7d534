//! What the scheduler's events say of a profiled process, as tables of its page.

use crate::number::{count, nanoseconds};
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

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn threads(found: &ScheduleFindings) -> Markup {
    markup! {
        div.scroll tabindex="0" role="region" aria-label="Threads by the scheduler" {
            table {
                thead { tr { th { "thread" } th { "tid" } th { "runs" } th { "ready" } th { "blocked" } th { "on" } } }
                tbody {
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
                }
            }
        }
    }
}

fn futexes(found: &ScheduleFindings) -> Markup {
    markup! {
        div.scroll tabindex="0" role="region" aria-label="Futexes" {
            table {
                thead { tr { th { "futex" } th { "what" } th { "waits" } th { "waited" } th { "longest" } th { "who waits" } th { "who had it" } } }
                tbody {
                    @for f in &found.futexes {
                        tr {
                            th scope="row" { (f.address) }
                            td { (what(f)) } td { (count(f.waits)) } td { (nanoseconds(f.waited_ns)) } td { (nanoseconds(f.longest_ns)) }
                            td { @for (i, t) in f.waiters.iter().enumerate() { @if i > 0 { ", " } (t.name) " (" (t.tid) ")" } }
                            td { (who(f).join("; ")) }
                        }
                    }
                }
            }
        }
    }
}

fn calls(thread: &ThreadTimes) -> Markup {
    markup! {
        div.scroll tabindex="0" role="region" aria-label="System calls" {
            table {
                thead { tr { th { "call" } th { "count" } th { "mean" } th { "stddev" } th { "min" } th { "max" } th { "total" } } }
                tbody {
                    @for c in &thread.calls {
                        tr {
                            th scope="row" { (c.name) }
                            td { (count(c.count)) }
                            @for ns in [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns] { td { (nanoseconds(ns)) } }
                        }
                    }
                }
            }
        }
    }
}
