//! Growth curves on logarithmic axes: each round's cost as a dot, the growth law with the band of its interval.

use super::{Axis, percent};
use crate::engine::Chart;
use crate::number::{NONE, count, nanoseconds, nanoseconds_tick};
use crate::text::{Joined, only_if};
use maud::{Markup, html as markup};
use std::fmt::Write as _;
use vmtax_findings::{CurvePoint, Growth, Law};
use vmtax_model::Unit;

const HEIGHT: f64 = 230.0;
/// Half the distance over which the columns of a step lie side by side, in percent of the width.
const APART: f64 = 1.1;

/// The curves of one metric.
pub struct Curves<'a> {
    /// A curve each, with the class that gives its colour.
    pub growths: Vec<(&'static str, &'a Growth)>,
    /// The option that grew.
    pub option: &'a str,
}

/// Returns the axes of sizes and of costs.
fn axes(growths: &[(&str, &Growth)]) -> (Axis, Axis) {
    let steps = || growths.iter().flat_map(|(_, growth)| &growth.steps);
    let sizes: Vec<f64> = steps().map(|step| step.size as f64).collect();
    let costs = steps().flat_map(|step| &step.rounds).map(|cost| cost.ns);
    let laws = growths.iter().flat_map(|(_, growth)| &growth.curve);
    let costs: Vec<f64> = costs.chain(laws.map(|point| point.ns.median)).collect();
    (Axis::log(&sizes), Axis::log(&costs))
}

impl Chart for Curves<'_> {
    fn svg(&self) -> Markup {
        picture(self)
    }
}

fn picture(curves: &Curves) -> Markup {
    let growths = &curves.growths;
    let (x, y) = axes(growths);
    let (across, up) = (x.ticks(6), y.ticks(5));
    let height = |ns: f64| HEIGHT * (1.0 - y.at(ns) / 100.0);
    let what = growths
        .first()
        .map_or(String::new(), |(_, g)| cost_label(g));
    markup! {
            p.legend {
                @for (class, g) in growths { span.key.(class) { (machine_label(g)) ": " b { (law_label(g)) } } }
            }
            div.plot {
                svg.up height=(HEIGHT) aria-hidden="true" {
                    @for t in &up { text x="100%" y=(format!("{:.1}", height(*t) + 4.0)) text-anchor="end" { (nanoseconds_tick(*t)) } }
                }
                svg height=(HEIGHT) role="img" aria-label={ (what) " by " (curves.option) ": " (spoken(growths)) } {
                    @for t in &up { @let at = format!("{:.1}", height(*t)); line.grid x1="0" x2="100%" y1=(at) y2=(at) {} }
                    (x.grid(&across))
                    @for (class, g) in growths {
                        svg.(class) viewBox="0 0 100 100" preserveAspectRatio="none" {
                            path.band d=(band(&g.curve, &x, &y)) {}
                            path.law d=(line(&g.curve, &x, &y)) {}
                        }
                    }
                    @for (at, (class, g)) in growths.iter().enumerate() {
                        @let shift = APART * (2.0 * at as f64 - (growths.len() as f64 - 1.0)) / (growths.len() as f64);
                        @for step in &g.steps {
                            @for cost in &step.rounds {
                                circle.(class) cx=(percent(x.at(step.size as f64) + shift)) cy=(format!("{:.1}", height(cost.ns))) r="3" {
                                    title { (machine_label(g)) ", " (count(step.size)) ", round " (cost.round + 1) ": " (nanoseconds(cost.ns)) }
                                }
                            }
                        }
                    }
                }
                span {}
                (x.labels(&across, |n| count(n.round() as u64)))
            }

    }
}

/// Whose cost: "stat", or of a rate "direct requests, mean".
pub fn cost_label(growth: &Growth) -> String {
    let label = growth.metric.label();
    match growth.metric.unit() {
        Unit::Nanoseconds | Unit::Seconds | Unit::Mebibytes | Unit::Count => label.to_owned(),
        Unit::PerSecond => format!("{label}, mean"),
        Unit::MebibytesPerSecond => format!("{label}, each MiB"),
    }
}

/// Where: "tcg, qemu=5.2".
pub fn machine_label(growth: &Growth) -> String {
    let gap = only_if(!growth.variant.is_empty(), ", ");
    format!("{}{gap}{}", growth.machine, growth.variant)
}

/// "O(n)", "O(n) or O(n log n)", "O(log n) to O(n²)"; without a growth law "grows", with its exponent's interval where there
/// is one; a dash where neither is known.
pub fn law_label(growth: &Growth) -> String {
    let Some(law) = growth.law else {
        return match growth.exponent {
            Some(e) => format!("n^{:.1} to n^{:.1}", e.low, e.high),
            None if growth.grows => "grows".to_owned(),
            None => NONE.to_owned(),
        };
    };
    if law == Law::Constant && !growth.or.is_empty() {
        return "no growth shown".to_owned();
    }
    let mut laws: Vec<Law> = [law].into_iter().chain(growth.or.iter().copied()).collect();
    laws.sort_unstable();
    if laws.len() > 2 {
        let [first, last] = [laws[0], laws[laws.len() - 1]].map(Law::notation);
        return format!("{first} to {last}");
    }
    laws.iter().map(|law| law.notation()).joined(" or ")
}

fn spoken(growths: &[(&str, &Growth)]) -> String {
    let growths = growths.iter();
    growths
        .map(|(_, g)| format!("{} {}", machine_label(g), law_label(g)))
        .joined(", ")
}

fn line(curve: &[CurvePoint], x: &Axis, y: &Axis) -> String {
    path(curve.iter().map(|p| (p.size, p.ns.median)), x, y)
}

/// Along the intervals' upper ends, and back along the lower ones; empty where there are none.
fn band(curve: &[CurvePoint], x: &Axis, y: &Axis) -> String {
    let ends = curve.iter().filter_map(|p| Some((p.size, p.ns.interval?)));
    let there = ends.clone().map(|(n, i)| (n, i.high));
    let back = ends.rev().map(|(n, i)| (n, i.low));
    let mut d = path(there.chain(back), x, y);
    if !d.is_empty() {
        d.push('Z');
    }
    d
}

fn path(points: impl Iterator<Item = (f64, f64)>, x: &Axis, y: &Axis) -> String {
    let mut d = String::new();
    for (n, ns) in points {
        let word = if d.is_empty() { 'M' } else { 'L' };
        // Writing to a String cannot fail.
        let _ = write!(d, "{word}{:.2} {:.2}", x.at(n), 100.0 - y.at(ns));
    }
    d
}
