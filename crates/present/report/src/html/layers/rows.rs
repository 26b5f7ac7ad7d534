//! Each row's distribution: p50, p90, p99 and the maximum on one logarithmic axis, and the table of rows.

use super::{Page, class, stretch};
use crate::charts::marks::{CAPTION, Mark, Marks};
use crate::engine::Chart;
use crate::layers::view::{self, Scale};
use crate::layers::words;
use crate::number::count;
use maud::{Markup, html as markup};
use vmtax_model::{LayerColumn, Row, Summary};

pub fn rows(page: &Page, column: &LayerColumn) -> Markup {
    let rows: Vec<&Row> = column.rows.iter().filter(|r| r.count > 0 && !view::is_negligible(r)).collect();
    let mark = |row: &&'_ Row| {
        (view::name(row.layer, &row.label, row.state), stretch(row.layer, &row.label, row.state), class(row.layer))
    };
    let mut marks: Vec<Mark> = Vec::new();
    for row in &rows {
        let (name, shown, class) = mark(row);
        marks.push(Mark { name, shown, class, figure: &row.time });
    }
    let whole = |name: &str, figure| Mark {
        name: name.to_owned(),
        shown: markup! { b { "the whole, " (name) } },
        class: "whole",
        figure,
    };
    marks.push(whole("traced", &column.traced));
    marks.extend(column.control.as_ref().map(|control| whole("untraced", control)));
    let scale = Scale::for_columns(&[column]);
    markup! {
        section {
            h3 { "How each row is distributed" }
            figure {
                (Marks(marks).svg())
                figcaption {
                    "Over all requests. " (CAPTION) " "
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

fn figures(f: &Summary, scale: &Scale) -> Markup {
    markup! { @for ns in [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, f.mean_ns] { td.number { (scale.number(ns)) } } }
}

fn sum(name: &str, figure: Option<&Summary>, mean_ns: f64, scale: &Scale) -> Markup {
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
