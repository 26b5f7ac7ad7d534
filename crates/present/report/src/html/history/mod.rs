//! `history`'s page: a picture and a table for each series, the changes in words.

mod chart;

use super::notices::{notices, prose};
use super::{Head, document};
use crate::history::words;
use crate::number::{NONE, value};
use crate::view::when;
use maud::{Markup, html as markup};
use vmtax_model::{HistoryFindings, PastFigure, SeriesFindings};

const STYLE: &str = include_str!("style.css");

/// The report as one HTML file. `vmtax`: the version that draws it; `command`: what makes it again.
pub fn html(findings: &HistoryFindings, notes: &[String], vmtax: &str, command: &str) -> String {
    let metric = findings.metric;
    let runs = || findings.series.iter().flat_map(|s| &s.figures).map(|f| f.run.started.as_str());
    let last = runs().max().unwrap_or_default();
    let title = format!("{} over the runs", metric.label());
    let changes: usize = findings.series.iter().map(|s| s.changes.len()).sum();
    let shared = words::shared(findings);
    let body = markup! {
        header {
            p.kicker { (metric) " · until " (when(last)) }
            h1 { (title) }
            @if !shared.is_empty() { p.where { (shared) } }
        }
        @if changes > 0 {
            section.answer aria-label="The answer" {
                div.tiles {
                    @for series in &findings.series {
                        @for (i, change) in series.changes.iter().enumerate() {
                            div.tile.(series.key.machine) {
                                p.figure { (words::size(change)) }
                                p { b { (words::place(series)) ". " } (prose(&words::sentence(i + 1, change, series, metric))) }
                            }
                        }
                    }
                }
            }
        } @else {
            p.lead { "No change is shown in any series." }
        }
        div.notices { (notices("What to know", "warnings", notes)) }
        section {
            h2 { "Run by run" }
            p.intro {
                "Each dot is the median over one run's rounds, its stroke the 95 % interval; runs from left to right in order of time. A dashed line is "
                "a change, a level line the median between changes; a ring is a run whose recording is gone. "
                @if let Some(split) = words::split(findings) { (split) " " }
                span.source { code { (command) } }
            }
            @for series in &findings.series { (one(series, findings)) }
        }
        p.method { b { "Method. " } (findings.method) }
    };
    document(&Head { title: &title, vmtax, started: last, command: command.to_owned() }, STYLE, &body)
}

fn one(series: &SeriesFindings, findings: &HistoryFindings) -> Markup {
    markup! {
        figure.card {
            h3 { (words::place(series)) " " small { (words::conditions(series, &findings.series)) } }
            (chart::chart(series, findings.metric))
            figcaption {
                @if series.changes.is_empty() { (words::unchanged(series)) " " }
                (words::extent(series)) "."
            }
            details {
                summary { "Every run" }
                div.scroll tabindex="0" role="region" aria-label={ "Runs of " (words::place(series)) } { (table(series, findings)) }
            }
        }
    }
}

fn table(series: &SeriesFindings, findings: &HistoryFindings) -> Markup {
    let unit = findings.metric.unit();
    let interval = |f: &PastFigure| match f.value.interval {
        Some(i) => format!("{} to {}", value(unit, i.low), value(unit, i.high)),
        None => NONE.to_owned(),
    };
    markup! {
        table {
            caption.hidden { "The figures of every run" }
            thead { tr {
                th scope="col" { "run" } th scope="col" { "began" }
                @for name in ["rounds", "median", "95 % interval"] { th.number scope="col" { (name) } }
                th scope="col" { "otherwise than the run before" }
            } }
            tbody {
                @for (i, f) in series.figures.iter().enumerate() {
                    @let change = series.changes.iter().position(|c| c.at == i);
                    tr.changed[change.is_some()] {
                        th scope="row" { (words::run(&f.run)) }
                        td { (when(&f.run.started)) }
                        td.number { (f.n) }
                        td.number { (value(unit, f.value.median)) }
                        td.number { (interval(f)) }
                        td {
                            @if let Some(number) = change { b { "change " (number + 1) ": " (words::size(&series.changes[number])) } br; }
                            @if i > 0 { (others(&series.figures[i - 1], f)) }
                        }
                    }
                }
            }
        }
    }
}

fn others(before: &PastFigure, after: &PastFigure) -> String {
    let differ = after.facts.iter().filter(|(name, value)| before.facts.get(*name) != Some(value));
    differ.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join("; ")
}
