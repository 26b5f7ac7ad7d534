//! Latency distributions side by side: a lane for each machine on one logarithmic axis.

use super::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{count, nanoseconds, nanoseconds_tick};
use maud::{Markup, html};
use std::fmt::Write as _;
use vmtax_model::{Latency, Machine};

const MOST_BINS: f64 = 84.0;
/// Fraction of the operations that a picture leaves out at each end, so that one outlier does not squeeze all the
/// rest; the table has the maximum.
const CUT: f64 = 0.001;

/// Text on how to read the picture.
pub const INTRO: &str = "How long single operations took, all rounds together, on a logarithmic axis. Each machine's area is \
     scaled to its own peak; the solid line is its median (p50), the dotted one p99. The slowest and fastest thousandth are \
     outside the picture, the maximum is in the table. The timer's own cost is included.";

/// A distribution for each machine.
pub struct Densities(pub Vec<(Machine, Latency)>);

impl Chart for Densities {
    fn svg(&self) -> Markup {
        let ends = self
            .0
            .iter()
            .flat_map(|(_, l)| [l.quantile(CUT) as f64, l.quantile(1.0 - CUT) as f64]);
        let axis = Axis::log(&ends.map(|ns| ns.max(1.0)).collect::<Vec<_>>());
        let ticks = axis.ticks(5);
        html! {
            @for (machine, latency) in &self.0 {
                div.lane { span.key.(machine) { (machine) } (lane(*machine, latency, &axis, &ticks)) }
            }
            div.lane { span {} (axis.labels(&ticks, nanoseconds_tick)) }
        }
    }
}

fn lane(machine: Machine, latency: &Latency, axis: &Axis, ticks: &[f64]) -> Markup {
    let heights = bins(latency, axis);
    let (p50, p99) = (latency.quantile(0.5) as f64, latency.quantile(0.99) as f64);
    html! {
        svg.density.(machine) role="img" aria-label={ (machine) ": median " (nanoseconds(p50)) ", p99 " (nanoseconds(p99)) ", " (count(latency.count())) " operations" } {
            title { (machine) ": p50 " (nanoseconds(p50)) ", p99 " (nanoseconds(p99)) }
            (axis.grid(ticks))
            svg viewBox={ "0 0 " (heights.len()) " 100" } preserveAspectRatio="none" { path d=(outline(&heights)) {} }
            @for (class, ns) in [("p50", p50), ("p99", p99)] {
                @let x = percent(axis.at(ns));
                line.(class) x1=(x) x2=(x) y1="0" y2="100%" {}
            }
        }
    }
}

/// Shares of the operations in bins of equal factors, the highest 1. A bin is never narrower than the histogram's own
/// nanosecond steps at the low end: that would draw a comb that is not in the data.
fn bins(latency: &Latency, axis: &Axis) -> Vec<f64> {
    let (low, high) = axis.ends();
    let finest = (high / low).ln() / (1.0 + 1.5 / low).ln();
    let n = finest.clamp(8.0, MOST_BINS) as usize;
    let mut bins = vec![0.0; n];
    for (ns, count) in latency.buckets() {
        let ns = ns.max(1) as f64;
        if (low..high).contains(&ns) {
            let i = (axis.at(ns) / 100.0 * n as f64) as usize;
            bins[i.min(n - 1)] += count as f64;
        }
    }
    let peak = bins.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    bins.iter().map(|b| b / peak).collect()
}

fn outline(heights: &[f64]) -> String {
    let mut d = "M0 100".to_owned();
    for (i, h) in heights.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(d, "V{:.1}H{}", 100.0 - h * 94.0, i + 1);
    }
    d.push_str("V100Z");
    d
}
