//! The runs from left to right.

use crate::charts::axis::{Axis, percent};
use crate::history::words;
use crate::number::value;
use crate::view::when;
use maud::{Markup, html as markup};
use vmtax_model::{Metric, SeriesFindings};

const HEIGHT: f64 = 210.0;

pub fn chart(series: &SeriesFindings, metric: Metric) -> Markup {
    let axis = Axis::of_figures(series);
    let ticks = axis.ticks(5);
    let count = series.figures.len();
    let x = |i: f64| (i + 0.5) / count.max(1) as f64 * 100.0;
    let y = |v: f64| format!("{:.1}", 6.0 + (HEIGHT - 12.0) * (1.0 - axis.at(v) / 100.0));
    let text = |v: f64| value(metric.unit(), v);
    // The level between changes: from which run, to which, and how much.
    let mut levels = Vec::new();
    if let Some(first) = series.changes.first() {
        levels.push((0, first.at, first.before));
    }
    for (i, c) in series.changes.iter().enumerate() {
        levels.push((c.at, series.changes.get(i + 1).map_or(count, |next| next.at), c.after));
    }
    let days: Vec<usize> = (0..count).step_by(count.div_ceil(8).max(1)).collect();
    markup! {
        div.plot.(series.key.machine) {
            svg.up height=(HEIGHT) aria-hidden="true" {
                @for t in &ticks { text x="100%" y=(y(*t)) dy="4" text-anchor="end" { (text(*t)) } }
            }
            svg height=(HEIGHT) role="img" aria-label={ (metric.label()) " on " (words::place(series)) ": " (words::extent(series)) ", " (series.changes.len()) " changes" } {
                @for t in &ticks { @let at = y(*t); line.grid x1="0" x2="100%" y1=(at) y2=(at) {} }
                @for (i, c) in series.changes.iter().enumerate() {
                    @let at = percent(x(c.at as f64 - 0.5));
                    line.change x1=(at) x2=(at) y1="0" y2="100%" {}
                    text.change x=(at) dx="5" y="12" { (i + 1) ": " (words::size(c)) }
                }
                @for (from, to, level) in &levels {
                    line.level x1=(percent(x(*from as f64 - 0.4))) x2=(percent(x(*to as f64 - 0.6))) y1=(y(*level)) y2=(y(*level)) {}
                }
                @for (i, f) in series.figures.iter().enumerate() {
                    @let at = percent(x(i as f64));
                    @if let Some(interval) = f.value.interval {
                        line.stroke x1=(at) x2=(at) y1=(y(interval.low)) y2=(y(interval.high)) {}
                    }
                    circle.gone[!f.run.recorded] cx=(at) cy=(y(f.value.median)) r="4" {
                        title { (words::run(&f.run)) ", " (when(&f.run.started)) ": " (text(f.value.median)) ", n = " (f.n) }
                    }
                }
            }
            span {}
            svg.ticks aria-hidden="true" {
                @for i in &days {
                    text x=(percent(x(*i as f64))) y="12" text-anchor="middle" { (day(&series.figures[*i].run.started)) }
                }
            }
        }
    }
}

/// The day of a time: `2026-11-20`.
fn day(started: &str) -> String {
    started.chars().take(10).collect()
}
