//! Ratios with their intervals, a line for each metric, around 1.

use super::axis::{Axis, ends, percent};
use crate::engine::Chart;
use crate::number::{self, factor, ratio, significant};
use crate::view::by_workload;
use crate::view::verdict::{class, interval};
use maud::{Markup, html as markup};
use vmtax_model::{Against, Better, Compared, Estimate, Verdict};

/// The ratios of a variant to the baseline.
pub struct Intervals<'a> {
    /// Variant with its rows.
    pub against: &'a Against,
    /// The smallest difference that matters, as a fraction.
    pub min_effect: f64,
}

impl Chart for Intervals<'_> {
    fn svg(&self) -> Markup {
        let rows = &self.against.rows;
        let ends = rows.iter().flat_map(|row| ends(&deciding(row)));
        let ends = ends.chain([1.0, 1.0 + self.min_effect, 1.0 / (1.0 + self.min_effect)]);
        let axis = Axis::log(&ends.collect::<Vec<f64>>());
        let ticks = near_one(&axis);
        markup! {
            div.chart.compared {
                @for (workload, rows) in by_workload(rows, |r| r.metric) {
                    div.group { h3 { (workload) } div { (axis.labels(&ticks, |t| format!("×{}", significant(t)))) } span {} }
                    @for row in rows { (line(row, self.min_effect, &axis, &ticks)) }
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
    let mut steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].into_iter();
    let step = steps.find(|s| reach / s <= 5.0).unwrap_or(1.0);
    let all = (-8..=8).map(|i| 1.0 + f64::from(i) * step);
    all.filter(|t| (low..=high).contains(t)).collect()
}

fn line(row: &Compared, min_effect: f64, axis: &Axis, ticks: &[f64]) -> Markup {
    let verdict = verdict(row, min_effect);
    let axis_percent = |v: f64| percent(axis.at(v));
    let (from, to) = (axis.at(1.0 / (1.0 + min_effect)), axis.at(1.0 + min_effect));
    let median = ratio(row.comparison.ratio.median);
    let spoken = format!("{median} {}: {verdict}", interval(&deciding(row)));
    markup! {
        div.row.(class(row.comparison.verdict)) {
            span.name { (row.metric.label()) }
            svg height="20" role="img" aria-label={ (row.metric.label()) ": " (spoken) } {
                title { (spoken) }
                rect.matters x=(percent(from)) width=(percent(to - from)) y="0" height="100%" {}
                (axis.grid(ticks))
                line.one x1=(axis_percent(1.0)) x2=(axis_percent(1.0)) y1="0" y2="100%" {}
                @if let Some(i) = deciding(row).interval {
                    line.ends x1=(axis_percent(i.low)) x2=(axis_percent(i.high)) y1="10" y2="10" {}
                }
                circle cx=(axis_percent(row.comparison.ratio.median)) cy="10" r="5" {}
            }
            span.time { b { (median) } " " (verdict) }
        }
    }
}

/// The ratio with its interval where that agrees with the verdict. The interval is of one metric alone, the verdict of all
/// (Holm): an inconclusive metric's interval may exclude ×1, and would contradict what stands beside it.
pub fn deciding(row: &Compared) -> Estimate {
    let ratio = row.comparison.ratio;
    Estimate {
        interval: ratio.interval.filter(|_| !row.is_left_open_by_correction()),
        ..ratio
    }
}

/// "3.1 % lower", "2.47 times as high": what became of the value itself, also of a rate.
pub fn verdict(row: &Compared, min_effect: f64) -> String {
    let cost = row.comparison.ratio.median;
    // A rate is the inverse of its cost.
    let times = match row.metric.better() {
        Better::Higher => 1.0 / cost,
        _ => cost,
    };
    match row.comparison.verdict {
        Verdict::Slower | Verdict::Faster if times > 2.0 => {
            format!("{} times as high", factor(times))
        }
        Verdict::Slower | Verdict::Faster => {
            let direction = if times > 1.0 { "higher" } else { "lower" };
            format!("{} {direction}", number::percent((times - 1.0).abs()))
        }
        Verdict::Equivalent => format!("equivalent within ±{}", number::percent(min_effect)),
        Verdict::Differs | Verdict::Inconclusive => "inconclusive".to_owned(),
        Verdict::TooFewRounds => "too few rounds".to_owned(),
    }
}
