//! Each variant compared with the first: a whisker for the interval of their ratio, and the verdict in words.

use crate::charts::axis::{Axis, percent};
use crate::engine::{Chart, prose};
use crate::number::{range, ratio};
use crate::view::verdict::class;
use maud::{Markup, html};
use vmtax_model::{Difference, LayerFindings};

/// The differences of findings.
pub struct Variants<'a> {
    /// Findings with the differences.
    pub findings: &'a LayerFindings,
    /// A sentence for each difference.
    pub sentences: Vec<String>,
}

impl Chart for Variants<'_> {
    fn svg(&self) -> Markup {
        let findings = self.findings;
        let ends = |d: &Difference| {
            let r = &d.comparison.ratio;
            [
                r.median,
                r.interval.map_or(r.median, |i| i.low),
                r.interval.map_or(r.median, |i| i.high),
                1.0,
            ]
        };
        let axis = Axis::around(
            &findings
                .differences
                .iter()
                .flat_map(ends)
                .collect::<Vec<_>>(),
        );
        let ticks = axis.ticks(6);
        html! {
                    div.chart.forest {
                        div.group { h3 { "untraced latency ÷ the first variant's" } div { (axis.labels(&ticks, ratio)) } span {} }
                        @for (d, sentence) in findings.differences.iter().zip(&self.sentences) {
                            div.row {
                                span.name { (prose(&d.variant)) @if findings.columns.iter().any(|c| c.machine != d.machine) { " " small { "on " (d.machine) } } }
                                svg height="28" role="img" aria-label=(sentence) {
                                    (axis.grid(&ticks))
                                    g.(class(d.comparison.verdict)) {
                                        (axis.whisker(&d.comparison.ratio, 14.0, 6.0))
                                        circle cx=(percent(axis.at(d.comparison.ratio.median))) cy="14" r="5" {}
                                    }
                                    @let one = percent(axis.at(1.0));
                                    line.one x1=(one) x2=(one) y1="0" y2="100%" {}
                                }
                                span.figures { span { b { (ratio(d.comparison.ratio.median)) } " " span.range { (d.comparison.ratio.interval.as_ref().map(range).unwrap_or_default()) } } }
                                p.said { (sentence) }
                            }
                        }
                    }
        }
    }
}
