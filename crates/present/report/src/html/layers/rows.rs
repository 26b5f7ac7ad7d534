//! Each row's distribution: p50, p90, p99 and the maximum on one logarithmic axis, and the table of rows.

use super::super::axis::Axis;
use super::super::marks::marks;
use super::{Page, class, stretch};
use crate::layers::view::{self, Scale};
use crate::layers::words;
use crate::number::{count, nanoseconds_tick};
use maud::{Markup, html as markup};
use vmtax_model::{Figure, LayerColumn, Row};

pub fn rows(page: &Page, column: &LayerColumn) -> Markup {
    let rows: Vec<&Row> = column.rows.iter().filter(|r| r.count > 0 && !view::is_negligible(r)).collect();
    let ends =
        rows.iter().flat_map(|r| [r.time.p50_ns, r.time.max_ns]).chain([column.traced.p50_ns, column.traced.max_ns]);
    let axis = Axis::log(&ends.collect::<Vec<_>>());
    let ticks = axis.ticks(7);
    let scale = Scale::for_columns(&[column]);
    markup! {
        section {
            h3 { "How each row is distributed" }
            figure {
                div.chart.spread {
                    div.group { h4 {} div { (axis.labels(&ticks, nanoseconds_tick)) } span {} }
                    @for row in &rows {
                        (marks(&view::name(row.layer, &row.label, row.state), &stretch(row.layer, &row.label, row.state), class(row.layer), &row.time, &axis, &ticks))
                    }
                    (marks("traced", &markup! { b { "the whole, traced" } }, "whole", &column.traced, &axis, &ticks))
                    @if let Some(control) = &column.control { (marks("untraced", &markup! { b { "the whole, untraced" } }, "whole", control, &axis, &ticks)) }
                }
                figcaption {
                    "Over all requests, on a logarithmic axis: the dot is the median, the thick line ends at p90, the thin one at p99, the ring is the longest. "
                    "A row whose median is 0 begins at the picture's edge; waits that are next to nothing are in the table alone. " (page.source(column))
                }
            }
            (table(column, &scale))
        }
    }
}

fn table(column: &LayerColumn, scale: &Scale) -> Markup {
    markup! {
        div.scroll tabindex="0" role="region" aria-label={ "Rows of " (view::title(column)) } {
            table.taxes {
                caption.hidden { "Every row of " (view::title(column)) ", " (scale.unit) }
                thead { tr {
                    @for name in ["layer", "what", "state"] { th scope="col" { (name) } }
                    th.number scope="col" { "requests" }
                    @for name in ["p50", "p90", "p99", "max", "mean"] { th.number scope="col" { (name) ", " (scale.unit) } }
                    th.number scope="col" { "95 % interval" }
                    th.number scope="col" { "share" }
                } }
                tbody {
                    @for (i, row) in column.rows.iter().enumerate() {
                        @let again = i > 0 && column.rows[i - 1].layer == row.layer;
                        tr.first[!again] {
                            td { @if !again { span.key.(class(row.layer)) { (row.layer.label()) } } }
                            th scope="row" { (row.label) @if row.below_bound { " †" } }
                            td { (view::state(row.state)) }
                            td.number { (count(row.count)) }
                            (figures(&row.time, scale))
                            td.number { (scale.range(&row.mean)) }
                            td.number { (format!("{:.1} %", row.percent)) }
                        }
                    }
                    (sum("unexplained", None, column.unexplained_ns, scale))
                    (sum("total, traced", Some(&column.traced), column.traced.mean_ns, scale))
                    @if let Some(control) = &column.control { (sum("untraced control", Some(control), control.mean_ns, scale)) }
                }
            }
        }
        @if let Some(note) = words::below_bound(&[column]) { p.intro { (note) } }
    }
}

fn figures(f: &Figure, scale: &Scale) -> Markup {
    markup! { @for ns in [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, f.mean_ns] { td.number { (scale.number(ns)) } } }
}

fn sum(name: &str, figure: Option<&Figure>, mean_ns: f64, scale: &Scale) -> Markup {
    markup! {
        tr.first {
            td {} th.median scope="row" { (name) } td {} td {}
            @match figure {
                Some(f) => (figures(f, scale)),
                None => { td colspan="4" {} td.number { (scale.number(mean_ns)) } }
            }
            td {} td {}
        }
    }
}
