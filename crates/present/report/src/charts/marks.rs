//! Distributions as marks on one axis: p50, p90, p99, the longest.

use super::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{nanoseconds, nanoseconds_tick};
use maud::{Markup, html};
use vmtax_model::Summary;

/// Text on how to read the picture.
pub const CAPTION: &str = "On a logarithmic axis: the dot is the median, the thick line ends at p90, the thin one at p99, the ring is the longest.";

/// Distributions, a line each.
pub struct Marks<'a>(pub Vec<Mark<'a>>);

/// Marks of one distribution, in one line.
pub struct Mark<'a> {
    /// For those who hear the page.
    pub name: String,
    /// As it stands beside the marks.
    pub shown: Markup,
    /// The class that gives its colour.
    pub class: &'static str,
    /// Quantiles of the distribution, in ns.
    pub figure: &'a Summary,
}

impl Chart for Marks<'_> {
    fn svg(&self) -> Markup {
        let ends: Vec<f64> = self
            .0
            .iter()
            .flat_map(|mark| [mark.figure.p50_ns, mark.figure.max_ns])
            .collect();
        let axis = Axis::log(&ends);
        let ticks = axis.ticks(7);
        html! {
            div.chart.spread {
                div.group { span {} div { (axis.labels(&ticks, nanoseconds_tick)) } span {} }
                @for mark in &self.0 { (line(mark, &axis, &ticks)) }
            }
        }
    }
}

fn line(mark: &Mark, axis: &Axis, ticks: &[f64]) -> Markup {
    let f = mark.figure;
    let [p50, p90, p99, max] =
        [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns].map(|ns| percent(axis.at(ns)));
    let spoken = [
        ("p50", f.p50_ns),
        ("p90", f.p90_ns),
        ("p99", f.p99_ns),
        ("max", f.max_ns),
    ];
    let spoken: Vec<String> = spoken
        .iter()
        .map(|(name, ns)| format!("{name} {}", nanoseconds(*ns)))
        .collect();
    html! {
        div.row {
            span.name { (mark.shown) }
            svg.(mark.class) height="18" role="img" aria-label={ (mark.name) ": " (spoken.join(", ")) } {
                title { (mark.name) ": " (spoken.join(", ")) }
                (axis.grid(ticks))
                line.to-p99 x1=(p50) x2=(p99) y1="9" y2="9" {}
                line.to-p90 x1=(p50) x2=(p90) y1="9" y2="9" {}
                circle cx=(p50) cy="9" r="4" {}
                circle.max cx=(max) cy="9" r="3" {}
            }
            span.time { b { (nanoseconds(f.p50_ns)) } " " span.range { "p99 " (nanoseconds(f.p99_ns)) } }
        }
    }
}
