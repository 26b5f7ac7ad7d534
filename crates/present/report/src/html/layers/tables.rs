//! The tables without a picture: nested layers, the life of a request, QEMU's system calls, the tail.

use super::Page;
use crate::layers::view::{self, Scale};
use crate::layers::words;
use crate::number::{count, nanoseconds};
use maud::{Markup, html as markup};
use vmtax_model::{CallRow, LayerColumn};

pub fn tables(page: &Page, column: &LayerColumn) -> Markup {
    let scale = Scale::for_columns(&[column]);
    markup! {
        section {
            h3 { "More tables" }
            p.intro { (page.source(column)) }
            (folded("From each layer's entry to its exit", nested(column, &scale)))
            (folded("The life of a request", lifecycle(column, &scale)))
            (folded("QEMU's system calls, thread by thread", calls(column)))
            (folded("The slowest 1 % against the requests around the median", tail(column, &scale)))
            (folded("What it rests on", markup! {
                dl {
                    dt { "Requests" } dd { (words::matched(column)) }
                    dt { "Clocks" } dd { (words::clock(column)) }
                    dt { "Observer effect" } dd { (words::observer(column)) }
                }
            }))
        }
    }
}

fn folded(title: &str, content: Markup) -> Markup {
    markup! {
        details {
            summary { (title) }
            div.scroll tabindex="0" role="region" aria-label=(title) { (content) }
        }
    }
}

/// The header of a table: `words` columns of words, then figures.
fn head(words: &[&str], figures: &[&str]) -> Markup {
    markup! {
        thead { tr {
            @for name in words { th scope="col" { (name) } }
            @for name in figures { th.number scope="col" { (name) } }
        } }
    }
}

fn nested(column: &LayerColumn, scale: &Scale) -> Markup {
    markup! {
        table {
            (head(&["layer"], &["cumulative", "p50", "p90", "p99", "max", "delta", "percent", "untraced control"]))
            tbody {
                @for (i, n) in column.nested.iter().enumerate() {
                    @let f = &n.cumulative;
                    tr {
                        th scope="row" { (n.label) }
                        @for ns in [f.mean_ns, f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, n.delta_ns] { td.number { (scale.text(ns)) } }
                        td.number { (format!("{:.2} %", n.percent)) }
                        td.number { @if let Some(c) = column.control.filter(|_| i == 0) { (scale.text(c.mean_ns)) } }
                    }
                }
            }
        }
    }
}

fn lifecycle(column: &LayerColumn, scale: &Scale) -> Markup {
    markup! {
        table {
            (head(&["event", "thread"], &["since the previous, median"]))
            tbody {
                @for step in &column.lifecycle {
                    tr { th scope="row" { (step.label) } td { (step.thread) } td.number { (scale.text(step.since_previous_ns)) } }
                }
            }
        }
    }
}

fn calls(column: &LayerColumn) -> Markup {
    markup! {
        p.intro { "A row ending in _post is the time in user space after that call." }
        table {
            (head(&["call"], &["count", "mean", "stddev", "min", "max", "total"]))
            @for thread in &column.calls {
                tbody {
                    tr.workload { th colspan="7" scope="rowgroup" { (view::role(&thread.role)) } }
                    @for c in &thread.calls { (call(&c.name, c)) }
                    @if let Some(locks) = &thread.locks { (call("of these, lock waits", locks)) }
                }
            }
        }
    }
}

fn call(name: &str, c: &CallRow) -> Markup {
    markup! {
        tr {
            th scope="row" { (name) }
            td.number { (count(c.count)) }
            @for ns in [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns] { td.number { (nanoseconds(ns)) } }
        }
    }
}

fn tail(column: &LayerColumn, scale: &Scale) -> Markup {
    markup! {
        table {
            (head(&["row"], &["around the median", "slowest 1 %", "more"]))
            tbody {
                @for row in &column.tail {
                    tr {
                        th scope="row" { (row.label) }
                        @for ns in [row.median_ns, row.slowest_ns, row.slowest_ns - row.median_ns] { td.number { (scale.text(ns)) } }
                    }
                }
            }
        }
    }
}
