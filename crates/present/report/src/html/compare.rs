//! `compare`'s page: for each side a picture of the ratios with their intervals, and the figures.

use super::axis::{Axis, percent};
use super::facts;
use super::notices::{notices, prose};
use super::{Head, document};
use crate::compare::words;
use crate::number::{percent as share, ratio, significant, value};
use crate::view::{self, by_workload, when};
use maud::{Markup, html as markup};
use vmtax_model::{Against, CompareFindings, Compared, Shown};
use vmtax_recording::Recording;

/// What this page has that others have not.
const STYLE: &str = "
.faster { --is: var(--good); } .slower { --is: var(--bad); } .same { --is: var(--native); } .open { --is: var(--soft); }
.chart.compared .row, .chart.compared .group { grid-template-columns: 13rem minmax(0, 1fr) 17rem; }
.compared rect.matters { fill: var(--grid); }
.compared line.ends { stroke: var(--is); stroke-width: 3; } .compared circle { fill: var(--is); }
.compared .open line.ends { stroke-opacity: .5; }
.compared .time { font-size: .85rem; white-space: nowrap; border-left: 3px solid var(--is); padding-left: .5rem; }
.compared .row { padding: 3px 0; }
@media (max-width: 720px) { .chart.compared .row, .chart.compared .group { grid-template-columns: 1fr; } }
";

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &CompareFindings) -> String {
    let manifest = &recording.manifest;
    let title = format!("Did it help? {}, {}", recording.plan.name, when(&manifest.started));
    let body = markup! {
        header {
            p.kicker { (when(&manifest.started)) " · " (words::rounds(findings)) }
            h1 { "Compared with " (findings.baseline) }
            p.where { (recording.host.cpu.model) " · Linux " (recording.host.kernel) }
        }
        section.answer aria-label="The answer" {
            div.tiles {
                @for against in &findings.against {
                    div.tile.(tone(against)) {
                        p { b { (against.side) } }
                        p.lead { (words::summary(against)) }
                        @if let Some(open) = words::open(findings, against) { p.counts { (prose(&open)) } }
                    }
                }
            }
        }
        div.notices { (notices("What to know", "warnings", &words::warnings(Some(recording), findings))) }
        @for against in &findings.against { (section(against, findings, &view::report_command(recording))) }
        @if let Some(cut) = words::warming_up(findings) { p.method { (cut) } }
        p.method { b { "Method. " } (findings.method) }
        (facts::facts(recording, &[]))
    };
    document(&Head::of(recording, &title), STYLE, &body)
}

/// The colour of a side's answer.
fn tone(against: &Against) -> &'static str {
    let any = |shown| against.rows.iter().any(|r| r.shown == shown);
    match (any(Shown::Slower), any(Shown::Faster)) {
        (true, false) => "slower",
        (false, true) => "faster",
        (true, true) => "tcg",
        (false, false) if against.rows.iter().all(|r| r.shown == Shown::Same) => "same",
        (false, false) => "open",
    }
}

fn class(shown: Shown) -> &'static str {
    match shown {
        Shown::Faster => "faster",
        Shown::Slower => "slower",
        Shown::Same => "same",
        Shown::NotShown | Shown::TooFewRounds => "open",
    }
}

fn section(against: &Against, findings: &CompareFindings, command: &str) -> Markup {
    let ends: Vec<f64> = against
        .rows
        .iter()
        .flat_map(|r| [Some(r.ratio.median), r.ratio.interval.map(|i| i.low), r.ratio.interval.map(|i| i.high)])
        .flatten()
        .chain([1.0, 1.0 + findings.detect, 1.0 / (1.0 + findings.detect)])
        .collect();
    let axis = Axis::log(&ends);
    let ticks = near_one(&axis);
    markup! {
        section {
            h2 { (against.side) " against " (findings.baseline) }
            @if against.rows.is_empty() {
                p { "No metric that both sides have." }
            } @else {
                figure {
                    div.chart.compared {
                        @for (workload, rows) in by_workload(&against.rows, |r| r.metric) {
                            div.group { h3 { (workload) } div { (axis.labels(&ticks, |t| format!("×{}", significant(t)))) } span {} }
                            @for row in rows { (line(row, findings.detect, &axis, &ticks)) }
                        }
                    }
                    figcaption {
                        "The side's cost over the baseline's, on a logarithmic axis: left of the line is faster, right of it slower. The dot is the "
                        "median over rounds, the stroke its 95 % interval, the band what does not matter (±" (share(findings.detect)) "). "
                        span.source { (words::rounds(findings)) " · " code { (command) } }
                    }
                }
                details {
                    summary { "All figures" }
                    div.scroll tabindex="0" role="region" aria-label={ "Figures of " (against.side) } { (table(against, findings)) }
                }
            }
        }
    }
}

/// Ticks of an axis that may be narrow: where there are no round decades, shares of 1.
fn near_one(axis: &Axis) -> Vec<f64> {
    let (low, high) = axis.ends();
    let usual = axis.ticks(7);
    if usual.len() > 2 {
        return usual;
    }
    let reach = (high.ln()).max(-low.ln());
    let step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].into_iter().find(|s| reach / s <= 5.0).unwrap_or(1.0);
    (-8..=8).map(|i| 1.0 + f64::from(i) * step).filter(|t| (low..=high).contains(t)).collect()
}

fn line(row: &Compared, detect: f64, axis: &Axis, ticks: &[f64]) -> Markup {
    let verdict = words::verdict(row, detect);
    let at = |v: f64| percent(axis.at(v));
    let (from, to) = (axis.at(1.0 / (1.0 + detect)), axis.at(1.0 + detect));
    let spoken = format!("{} {}: {verdict}", ratio(row.ratio.median), words::interval(row));
    markup! {
        div.row.(class(row.shown)) {
            span.name { (row.metric.label()) }
            svg height="20" role="img" aria-label={ (row.metric.label()) ": " (spoken) } {
                title { (spoken) }
                rect.matters x=(percent(from)) width=(percent(to - from)) y="0" height="100%" {}
                (axis.grid(ticks))
                line.one x1=(at(1.0)) x2=(at(1.0)) y1="0" y2="100%" {}
                @if let Some(i) = &row.ratio.interval {
                    line.ends x1=(at(i.low)) x2=(at(i.high)) y1="10" y2="10" {}
                }
                circle cx=(at(row.ratio.median)) cy="10" r="5" {}
            }
            span.time { b { (ratio(row.ratio.median)) } " " (verdict) }
        }
    }
}

fn table(against: &Against, findings: &CompareFindings) -> Markup {
    markup! {
        table {
            caption.hidden { "The figures of " (against.side) }
            thead { tr {
                th scope="col" { "metric" }
                @for name in [findings.baseline.as_str(), against.side.as_str(), "cost", "95 % interval", "p", "p of all", "permutation", "slower in", "noise of a round", "rounds"] {
                    th.number scope="col" { (name) }
                }
                th scope="col" { "verdict" }
            } }
            tbody {
                @for r in &against.rows {
                    tr {
                        th scope="row" { (r.metric.id()) }
                        td.number { (value(r.metric.unit(), r.base.median)) }
                        td.number { (value(r.metric.unit(), r.other.median)) }
                        td.number { (ratio(r.ratio.median)) }
                        td.number { (words::interval(r)) }
                        td.number { (format!("{:.4}", r.p)) }
                        td.number { (format!("{:.4}", r.p_adjusted)) }
                        td.number { (format!("{:.4}", r.permutation)) }
                        td.number { (share(r.superiority)) }
                        td.number { "±" (share(r.noise)) }
                        td.number { (r.rounds) }
                        td { (words::verdict(r, findings.detect)) }
                    }
                }
            }
        }
    }
}
