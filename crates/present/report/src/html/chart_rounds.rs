//! Each round's value as a dot: drift and outliers are to be seen, not summed away.

use super::Page;
use crate::charts::axis::percent;
use crate::number::value;
use crate::row::Row;
use crate::view;
use maud::{Markup, html as markup};
use vmtax_model::Machine;

/// Values of one metric: the machine with its rounds' values.
type Lines = Vec<(Machine, Vec<(u32, f64)>)>;

/// Deviations smaller than this do not fill a picture: noise of a percent must look like a percent.
const LEAST_SPAN: f64 = 0.05;
const HEIGHT: f64 = 76.0;

pub fn charts(page: &Page) -> Markup {
    let rounds = page.findings.rounds_planned.max(1);
    let machines = view::machines(page.findings);
    let all: Vec<(&Row, Lines)> = page.rows.iter().map(|row| (row, lines(page, row, &machines))).collect();
    markup! {
        section {
            h2 { "Round by round" }
            p.intro {
                "Each dot is one round's value against its own machine's median, rounds from left to right. A slope is drift, a lone "
                "dot an outlier. " (page.source())
            }
            p.legend { @for m in &machines { span.key.(m) { (m) } } }
            div.multiples.small { @for (row, lines) in &all { (picture(row, lines, rounds)) } }
            details {
                summary { "The values of every round" }
                div.scroll tabindex="0" role="region" aria-label="Values of every round" { (table(&all, rounds)) }
            }
        }
    }
}

fn lines(page: &Page, row: &Row, machines: &[Machine]) -> Lines {
    machines.iter().map(|m| (*m, row.rounds(&page.recording.trials, *m))).collect()
}

fn picture(row: &Row, lines: &Lines, rounds: u32) -> Markup {
    let median = |m: Machine| row.column(m).and_then(|c| c.spread.as_ref()).map(|s| s.median);
    let mut dots = Vec::new();
    for (place, (machine, values)) in lines.iter().enumerate() {
        let Some(median) = median(*machine).filter(|m| *m > 0.0) else { continue };
        // Side by side within a round, so that equal values do not hide each other.
        let shift = (place as f64 - (lines.len() as f64 - 1.0) / 2.0) * 14.0 / f64::from(rounds).max(4.0);
        for (round, v) in values {
            dots.push((*machine, *round, *v, v / median - 1.0, shift));
        }
    }
    let span = dots.iter().map(|d| d.3.abs()).filter(|d| d.is_finite()).fold(LEAST_SPAN, f64::max) * 1.08;
    let y = |deviation: f64| HEIGHT / 2.0 - deviation / span * (HEIGHT / 2.0 - 6.0);
    let x = |round: u32| (f64::from(round) + 0.5) / f64::from(rounds) * 100.0;
    let span_text = format!("{:.0} %", span * 100.0);
    markup! {
        figure.card {
            h3 { (row.label) }
            div.dots {
                span.scale aria-hidden="true" { span { "+" (span_text) } span { "0" } span { "−" (span_text) } }
                svg height=(HEIGHT) role="img" aria-label={ (row.label) ": " (dots.len()) " values, all within " (span_text) " of their medians" } {
                    line.grid x1="0" x2="100%" y1=(y(0.0)) y2=(y(0.0)) {}
                    @for (machine, round, v, deviation, shift) in &dots {
                        circle.(machine) cx=(percent((x(*round) + shift).clamp(1.5, 98.5))) cy=(format!("{:.1}", y(*deviation))) r="3.2" {
                            title { (machine) ", round " (round + 1) ": " (value(row.unit, *v)) }
                        }
                    }
                }
            }
        }
    }
}

fn table(all: &[(&Row, Lines)], rounds: u32) -> Markup {
    markup! {
        table {
            caption.hidden { "Value of each round" }
            thead { tr {
                th scope="col" { "metric" } th scope="col" { "machine" }
                @for r in 1..=rounds { th.number scope="col" { "round " (r) } }
            } }
            tbody {
                @for (row, lines) in all {
                    @for (machine, values) in lines {
                        tr {
                            th scope="row" { (row.label) }
                            td { span.key.(machine) { (machine) } }
                            @for r in 0..rounds {
                                td.number {
                                    @for (_, v) in values.iter().filter(|(round, _)| *round == r) { (value(row.unit, *v)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
