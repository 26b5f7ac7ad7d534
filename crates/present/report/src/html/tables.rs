//! The table of every figure: medians, spread, n, taxes and differences with their intervals.

use super::Page;
use crate::number::{difference, difference_range, plus_minus, range, ratio, value};
use crate::row::{self, Row};
use crate::view;
use maud::{Markup, html as markup};
use vmtax_model::{MachineColumn, Unit, Verdict};

const COMPARED: [&str; 4] = ["tax", "95 % interval", "difference", "95 % interval"];

pub fn taxes(page: &Page) -> Markup {
    let compared = !view::guests(page.findings).is_empty();
    markup! {
        section {
            h2 { "Every figure" }
            p.intro {
                "Medians over n rounds. Spread is half the distance between the quartiles over the median. "
                (page.source())
            }
            div.scroll tabindex="0" role="region" aria-label="Table of every figure" {
                table.taxes {
                    caption.hidden { "Medians, spread, taxes and differences of every metric on every machine" }
                    thead { tr {
                        th scope="col" { "metric" }
                        th scope="col" { "machine" }
                        @for name in ["n", "median", "spread"] { th.number scope="col" { (name) } }
                        @if compared {
                            @for name in COMPARED { th.number scope="col" { (name) } }
                            th scope="col" { "verdict" }
                        }
                    } }
                    @for (group, rows) in row::groups(&page.rows) {
                        tbody {
                            tr.workload { th colspan="10" scope="rowgroup" { (group) } }
                            @for row in rows { (lines(row, compared)) }
                        }
                    }
                }
            }
            p.method {
                b { "Method. " } (page.findings.method)
                @if compared {
                    " A tax is the cost on the machine over the cost on native, whichever way the metric counts: above ×1 the machine is slower."
                }
            }
        }
    }
}

fn lines(row: &Row, compared: bool) -> Markup {
    markup! {
        @for (i, column) in row.machines.iter().enumerate() {
            tr.first[i == 0] {
                @if i == 0 { th.metric scope="row" rowspan=(row.machines.len()) { (row.label) } }
                td { span.key.(column.machine) { (column.machine) } }
                (figures(row.unit, column, compared))
            }
        }
    }
}

fn figures(unit: Unit, column: &MachineColumn, compared: bool) -> Markup {
    let Some(s) = &column.spread else {
        return markup! { td.none colspan="8" { (view::absence(column)) } };
    };
    markup! {
        td.number { (s.n) }
        td.number.median { (value(unit, s.median)) }
        td.number { (s.relative_spread.map_or_else(|| "–".to_owned(), plus_minus)) }
        @match &column.tax {
            None if compared => { td colspan="5" {} }
            None => {}
            Some(t) => {
                td.number.median { (ratio(t.ratio.median)) }
                td.number { @if let Some(i) = &t.ratio.interval { (range(i)) } }
                td.number { (difference(unit, t.difference.median)) }
                td.number { @if let Some(i) = &t.difference.interval { (difference_range(unit, i)) } }
                td.verdict.(class(t.verdict)) { (view::verdict(t.verdict)) }
            }
        }
    }
}

fn class(v: Verdict) -> &'static str {
    match v {
        Verdict::Costs => "costs",
        Verdict::Gains => "gains",
        Verdict::Differs | Verdict::NoDifferenceShown | Verdict::TooFewRounds => "open",
    }
}
