//! `share`'s page: the ways beside each other, by workload and by metric, what took effect, and which to take.

use super::notices::{breakable, notices};
use super::{Head, document, facts};
use crate::charts::axis::{Axis, percent};
use crate::number::{NONE, range, ratio, significant, value};
use crate::shares::{effects, heading, processor, title};
use crate::view::{by_workload, first_five, report_command, warnings, when};
use maud::{Markup, html as markup};
use vmtax_model::{Estimate, Keeping, Kept, ShareColumn, ShareFindings, ShareRow};
use vmtax_recording::Recording;

/// A way's name and its figure with cost and interval take more room than a machine's.
const STYLE: &str = ".ways .row, .ways .group { grid-template-columns: 14rem minmax(0, 1fr) 17.5rem; }
.ways .row .figures { padding: 0; }
@media screen and (max-width: 720px) {
  .ways .row, .ways .group { grid-template-columns: minmax(0, 1fr); }
  .ways .row .figures { grid-row: 3; }
}
";

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &ShareFindings) -> String {
    let name =
        format!("How to share files with a guest: {}, {}", recording.plan.name, when(&recording.manifest.started));
    let body = markup! {
        header {
            p.kicker { (when(&recording.manifest.started)) }
            h1 { "How to share files with a guest" }
            p.where { (heading(recording, findings)) }
        }
        div.notices {
            (notices("What to do", "advice", &first_five(&findings.advice)))
            (notices("What to know", "warnings", &warnings(recording, &findings.warnings)))
            (notices("What took effect", "effects", &effects(findings)))
        }
        @if !findings.scores.is_empty() { (scores(recording, findings)) }
        @for (workload, rows) in by_workload(&findings.rows, |r| r.metric) { (metrics(recording, findings, workload.as_str(), &rows)) }
        (keeping(findings))
        (processors(findings))
        p.method { b { "Method. " } (findings.method) }
        (facts::facts(recording, &[]))
    };
    document(&Head::of(recording, &name), STYLE, &body)
}

/// One bar: a way's cost over the base's.
struct Bar {
    name: String,
    cost: Option<Estimate>,
    /// What stands beside it: the figure itself.
    figure: String,
    machine: &'static str,
    base: bool,
}

fn scores(recording: &Recording, findings: &ShareFindings) -> Markup {
    let charts = findings.scores.iter().map(|score| {
        let bars = findings.columns.iter().enumerate().map(|(i, column)| Bar {
            name: title(column),
            cost: score.cells.get(i).copied().flatten(),
            figure: String::new(),
            machine: column.machine.as_str(),
            base: i == findings.base,
        });
        (score.workload.as_str().to_owned(), bars.collect::<Vec<_>>())
    });
    chart("All figures of a workload in one", recording, findings, &charts.collect::<Vec<_>>())
}

fn metrics(recording: &Recording, findings: &ShareFindings, workload: &str, rows: &[&ShareRow]) -> Markup {
    let charts = rows.iter().map(|row| {
        let bars = findings.columns.iter().zip(&row.cells).enumerate().map(|(i, (column, cell))| Bar {
            name: title(column),
            cost: cell.against.as_ref().map(|t| t.ratio),
            figure: cell.spread.as_ref().map_or(NONE.to_owned(), |s| value(row.metric.unit(), s.median)),
            machine: column.machine.as_str(),
            base: i == findings.base,
        });
        (row.metric.label().to_owned(), bars.collect::<Vec<_>>())
    });
    chart(&format!("Figure by figure: {workload}"), recording, findings, &charts.collect::<Vec<_>>())
}

fn chart(what: &str, recording: &Recording, findings: &ShareFindings, charts: &[(String, Vec<Bar>)]) -> Markup {
    let costs = charts.iter().flat_map(|(_, bars)| bars).filter_map(|b| b.cost);
    let ends: Vec<f64> = costs
        .flat_map(|c| [c.median, c.interval.map_or(c.median, |i| i.low), c.interval.map_or(c.median, |i| i.high)])
        .collect();
    if ends.is_empty() {
        return markup! {};
    }
    let axis = Axis::for_ratios(&ends);
    let ticks = axis.ticks(7);
    let base = findings.columns.get(findings.base).map_or_else(String::new, title);
    markup! {
        section {
            h2 { (what) }
            figure {
                div.chart.ways {
                    @for (name, bars) in charts {
                        div.group { h3 { (name) } div { (axis.labels(&ticks, |t| format!("×{}", significant(t).trim_end_matches('0').trim_end_matches('.')))) } span {} }
                        @for bar in bars { (row(bar, &axis, &ticks)) }
                    }
                }
                figcaption {
                    "Cost over " b { (base) } ", medians over rounds; left of the line is faster. "
                    @if axis.log { "The scale is logarithmic, bars start at the line." } @else { "The scale is linear from 0." }
                    " The whisker is the 95 % interval, where there are rounds enough; a pale bar shows no difference. "
                    span.source { code { (report_command(recording)) } }
                }
            }
        }
    }
}

fn row(bar: &Bar, axis: &Axis, ticks: &[f64]) -> Markup {
    let cost = bar.cost.map_or(String::new(), |c| ratio(c.median));
    let ends = bar.cost.and_then(|c| c.interval).map_or(String::new(), |i| range(&i));
    markup! {
        div.row {
            span.name { (breakable(&bar.name)) @if bar.base { " " small { "(×1)" } } }
            svg.bars height="24" role="img" aria-label={ (bar.name) ": " (bar.figure) " " (cost) " " (ends) } {
                (axis.grid(ticks))
                @if let Some(cost) = bar.cost.filter(|_| !bar.base) { (drawn(bar, cost, axis)) }
                @let one = percent(axis.at(1.0));
                line.one x1=(one) x2=(one) y1="0" y2="100%" {}
            }
            span.figures { span.(bar.machine) { b { (bar.figure) } @if !bar.base { " " (cost) " " span.range { (ends) } } } }
        }
    }
}

fn drawn(bar: &Bar, cost: Estimate, axis: &Axis) -> Markup {
    let shown = cost.interval.is_none_or(|i| i.low > 1.0 || i.high < 1.0);
    markup! { g.(bar.machine).(if shown { "full" } else { "pale" }) { (axis.bar(&cost, 12.0, 12.0)) } }
}

/// Who worked for it: a way that is fast by burning the host is not free.
fn processors(findings: &ShareFindings) -> Markup {
    markup! {
        section {
            h2 { "Processor time of one round, seconds" }
            div.scroll tabindex="0" role="region" aria-label="Processor time" {
                table.taxes {
                    thead { tr { th scope="col" { "way" } @for name in ["guest", "QEMU", "server", "all"] { th.number scope="col" { (name) } } } }
                    tbody {
                        @for column in &findings.columns {
                            @if let Some((guest, qemu, server)) = processor(column) {
                                tr {
                                    th scope="row" { (title(column)) }
                                    @for s in [guest, qemu, server, guest + qemu + server] { td.number { (significant(s)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What each way keeps of a file's properties; the detail is the cell's title.
fn keeping(findings: &ShareFindings) -> Markup {
    let ways: Vec<&ShareColumn> = findings.columns.iter().filter(|c| !c.kept.is_empty()).collect();
    let mut tried: Vec<&str> = Vec::new();
    for kept in ways.iter().flat_map(|c| &c.kept) {
        if !tried.contains(&kept.what.as_str()) {
            tried.push(&kept.what);
        }
    }
    if tried.is_empty() {
        return markup! {};
    }
    markup! {
        section {
            h2 { "What each way keeps" }
            p.intro { "Each tried in the guest on the share. Rest the pointer on a cell for what was found." }
            div.scroll tabindex="0" role="region" aria-label="What each way keeps" {
                table.taxes {
                    thead { tr { th scope="col" { "tried" } @for way in &ways { th scope="col" { (title(way)) } } } }
                    tbody {
                        @for what in tried {
                            tr {
                                th scope="row" { (what) }
                                @for way in &ways { (kept(way.kept.iter().find(|k| k.what == what))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn kept(kept: Option<&Kept>) -> Markup {
    let Some(kept) = kept else { return markup! { td.none { (NONE) } } };
    let (class, word) = match kept.keeping {
        Keeping::Kept => ("gains", "kept"),
        Keeping::Lost => ("costs", "lost"),
        Keeping::Refused => ("open", "refused"),
    };
    markup! { td.(class) title=(kept.detail) { (word) } }
}
