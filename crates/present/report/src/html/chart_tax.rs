//! The normalised comparison: native is 1, a bar for each guest and metric, a whisker for its interval.

use super::Page;
use crate::charts::axis::{Axis, percent};
use crate::number::{NONE, range, ratio, significant};
use crate::row::{self, Row};
use crate::view;
use maud::{Markup, html as markup};
use vmtax_model::{Machine, Tax, Verdict};

/// Height of a guest's lane, CSS pixels; style.css gives the figures beside it the same.
const LANE: f64 = 20.0;
/// Air above and below a metric's lanes; the same in style.css.
const AIR: f64 = 4.0;

pub fn chart(page: &Page) -> Markup {
    let guests = view::guests(page.findings);
    let taxes = page.rows.iter().flat_map(|row| row.machines).filter_map(|c| c.tax.as_ref());
    let ends = taxes.flat_map(|t| {
        let i = t.ratio.interval;
        [t.ratio.median, i.map_or(t.ratio.median, |i| i.low), i.map_or(t.ratio.median, |i| i.high)]
    });
    let ends: Vec<f64> = ends.collect();
    if ends.is_empty() {
        return markup! {};
    }
    let axis = Axis::for_ratios(&ends);
    let ticks = axis.ticks(7);
    markup! {
        section {
            h2 { "Cost against native" }
            figure {
                p.legend {
                    @for g in &guests { span.key.(g) { (g) } }
                    span.key.native { "native = ×1" }
                    @if view::has_intervals(page.findings) { span.key.pale { "pale: no difference shown" } }
                }
                div.chart {
                    @for (group, rows) in row::groups(&page.rows) {
                        @let rows: Vec<&Row> = rows.iter().filter(|r| has_tax(r)).collect();
                        @if !rows.is_empty() {
                            div.group { h3 { (group) } div { (axis.labels(&ticks, |t| format!("×{}", tick(t)))) } span {} }
                            @for row in rows { (row_of_bars(row, &guests, &axis, &ticks)) }
                        }
                    }
                }
                figcaption {
                    "Cost on the guest over cost on native, medians over rounds; right of the line is slower. "
                    @if axis.log { "The scale is logarithmic, bars start at native." } @else { "The scale is linear from 0." }
                    @if view::has_intervals(page.findings) { " The whisker is the 95 % interval. " } @else { " Too few rounds for intervals. " }
                    (page.source())
                }
            }
        }
    }
}

fn has_tax(row: &Row) -> bool {
    row.machines.iter().any(|c| c.tax.is_some())
}

fn tick(t: f64) -> String {
    let text = significant(t);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn row_of_bars(row: &Row, guests: &[Machine], axis: &Axis, ticks: &[f64]) -> Markup {
    let found: Vec<(Machine, Option<&Tax>)> =
        guests.iter().map(|g| (*g, row.column(*g).and_then(|c| c.tax.as_ref()))).collect();
    let height = LANE * guests.len() as f64 + 2.0 * AIR;
    let spoken: Vec<String> =
        found.iter().map(|(g, t)| format!("{g} {}", t.map_or("no figure".to_owned(), figure))).collect();
    markup! {
        div.row {
            span.name { (row.label) }
            svg.bars height=(height) role="img" aria-label={ (row.label) ": " (spoken.join(", ")) } {
                (axis.grid(ticks))
                @for (i, (machine, tax)) in found.iter().enumerate() {
                    @if let Some(tax) = tax { (bar(*machine, tax, axis, AIR + i as f64 * LANE)) }
                }
                @let one = percent(axis.at(1.0));
                line.one x1=(one) x2=(one) y1="0" y2="100%" {}
            }
            span.figures {
                @for (machine, tax) in &found {
                    span.(machine) {
                        @match tax {
                            Some(t) => { (median(t)) " " span.range { (ends(t)) } }
                            None => { (NONE) " " span.range { (missing(row, *machine)) } }
                        }
                    }
                }
            }
        }
    }
}

fn missing(row: &Row, machine: Machine) -> &'static str {
    match row.column(machine) {
        Some(c) if c.unsupported.is_some() => "unsupported",
        _ => "no figure",
    }
}

fn median(tax: &Tax) -> Markup {
    let text = ratio(tax.ratio.median);
    if tax.verdict == Verdict::NoDifferenceShown {
        markup! { span.open { (text) } }
    } else {
        markup! { b { (text) } }
    }
}

fn ends(tax: &Tax) -> String {
    tax.ratio.interval.as_ref().map(range).unwrap_or_default()
}

fn figure(tax: &Tax) -> String {
    format!("{} {} {}, n = {}", ratio(tax.ratio.median), ends(tax), view::verdict(tax.verdict), tax.rounds)
}

fn bar(machine: Machine, tax: &Tax, axis: &Axis, top: f64) -> Markup {
    let shade = if tax.verdict == Verdict::NoDifferenceShown { "pale" } else { "full" };
    markup! {
        g.(machine).(shade) {
            title { (machine) " " (figure(tax)) }
            (axis.bar(&tax.ratio, top + LANE / 2.0, LANE - 8.0))
        }
    }
}
