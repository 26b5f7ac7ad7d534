//! Distributions: latencies of each machine as areas, quantiles as marks on one axis, each round's value as a dot; hosts as dots
//! on one axis of ratios, a lane for each class or each value of a fact.

use super::{Axis, Line, mark, percent, sketch};
use crate::engine::Chart;
use crate::number;
use crate::number::{count, counted, nanoseconds, nanoseconds_tick, ratio, significant};
use crate::text::{Paint, columns, fit, plain};
use maud::{Markup, html};
use std::fmt::Write as _;
use vmtax_findings::{HostRow, HostVerdict, Summary};
use vmtax_model::{Latency, Machine, Unit};

const MOST_BINS: f64 = 84.0;

/// Fraction of the operations that a picture leaves out at each end, so that one outlier does not squeeze all the
/// rest; the table has the maximum.
const CUT: f64 = 0.001;

/// Text on how to read [`Densities`].
pub const DENSITIES_INTRO: &str = "How long single operations took, all rounds together, on a logarithmic axis. Each machine's area is \
     scaled to its own peak; the solid line is its median (p50), the dotted one p99. The slowest and fastest thousandth are \
     outside the picture, the maximum is in the table. The timer's own cost is included.";

/// A distribution for each machine.
pub struct Densities(pub Vec<(Machine, Latency)>);

impl Chart for Densities {
    fn svg(&self) -> Markup {
        let all = self.0.iter();
        let ends = all.flat_map(|(_, l)| [CUT, 1.0 - CUT].map(|part| l.quantile(part) as f64));
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

/// Text on how to read [`Marks`].
pub const MARKS_CAPTION: &str = "On a logarithmic axis: the dot is the median, the thick line ends at p90, the thin one at p99, the ring is the longest.";

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
        let ends = self.0.iter();
        let ends = ends.flat_map(|mark| [mark.figure.p50_ns, mark.figure.max_ns]);
        let axis = Axis::log(&ends.collect::<Vec<f64>>());
        let ticks = axis.ticks(7);
        html! {
            div.chart.spread {
                div.group { span {} div { (axis.labels(&ticks, nanoseconds_tick)) } span {} }
                @for mark in &self.0 { (line(mark, &axis, &ticks)) }
            }
        }
    }

    fn sketch(&self, width: usize) -> Option<String> {
        let figures = self.0.iter().map(|mark| mark.figure);
        let ends = figures.flat_map(|figure| [figure.p50_ns, figure.p99_ns]);
        let axis = Axis::log(&ends.collect::<Vec<f64>>());
        let line = |one: &Mark| {
            let [p50, p99] = [one.figure.p50_ns, one.figure.p99_ns].map(|ns| axis.at(ns));
            Line {
                name: one.name.clone(),
                figure: nanoseconds(one.figure.p50_ns),
                marks: vec![mark('─', p50, p99), mark('●', p50, p50)],
            }
        };
        let lines: Vec<Line> = self.0.iter().map(line).collect();
        let legend = "● p50, ─ to p99, on a logarithmic axis\n";
        (!lines.is_empty()).then(|| sketch(&lines, width) + legend)
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
    let spoken = spoken
        .map(|(name, ns)| format!("{name} {}", nanoseconds(ns)))
        .join(", ");
    html! {
        div.row {
            span.name { (mark.shown) }
            svg.(mark.class) height="18" role="img" aria-label={ (mark.name) ": " (spoken) } {
                title { (mark.name) ": " (spoken) }
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

/// Deviations smaller than this do not fill a picture: noise of a percent must look like a percent.
const LEAST_SPAN: f64 = 0.05;

const ROUNDS_HEIGHT: f64 = 76.0;

/// Text on how to read [`Rounds`].
pub const ROUNDS_INTRO: &str = "Each dot is one round's value against its own machine's median, rounds from left to right. A slope is \
     drift, a lone dot an outlier.";

/// The values of one metric.
pub struct Rounds<'a> {
    /// Label of the metric.
    pub label: &'a str,
    /// Unit of the metric.
    pub unit: Unit,
    /// Number of rounds planned.
    pub rounds: u32,
    /// Each machine's median and rounds' values.
    pub values: Vec<Values>,
}

/// A machine's values.
pub struct Values {
    /// Machine of the values.
    pub machine: Machine,
    /// Median of the values; `None` if there is none.
    pub median: Option<f64>,
    /// Each round with its value.
    pub rounds: Vec<(u32, f64)>,
}

impl Chart for Rounds<'_> {
    fn svg(&self) -> Markup {
        let mut dots = Vec::new();
        for (place, values) in self.values.iter().enumerate() {
            let Some(median) = values.median.filter(|m| *m > 0.0) else {
                continue;
            };
            // Side by side within a round, so that equal values do not hide each other.
            let shift = (place as f64 - (self.values.len() as f64 - 1.0) / 2.0) * 14.0
                / f64::from(self.rounds).max(4.0);
            for (round, v) in &values.rounds {
                dots.push((values.machine, *round, *v, v / median - 1.0, shift));
            }
        }
        let spans = dots
            .iter()
            .map(|dot| dot.3.abs())
            .filter(|span| span.is_finite());
        let span = spans.fold(LEAST_SPAN, f64::max) * 1.08;
        let y =
            |deviation: f64| ROUNDS_HEIGHT / 2.0 - deviation / span * (ROUNDS_HEIGHT / 2.0 - 6.0);
        let x = |round: u32| (f64::from(round) + 0.5) / f64::from(self.rounds) * 100.0;
        let span_text = format!("{:.0} %", span * 100.0);
        html! {
                div.dots {
                    span.scale aria-hidden="true" { span { "+" (span_text) } span { "0" } span { "−" (span_text) } }
                    svg height=(ROUNDS_HEIGHT) role="img" aria-label={ (self.label) ": " (dots.len()) " values, all within " (span_text) " of their medians" } {
                        line.grid x1="0" x2="100%" y1=(y(0.0)) y2=(y(0.0)) {}
                        @for (machine, round, v, deviation, shift) in &dots {
                            circle.(machine) cx=(percent((x(*round) + shift).clamp(1.5, 98.5))) cy=(format!("{:.1}", y(*deviation))) r="3.2" {
                                title { (machine) ", round " (round + 1) ": " (number::value(self.unit, *v)) }
                            }
                        }
                    }
                }
        }
    }
}

/// More lanes are no picture.
pub const MAX_LANES: usize = 12;

/// More dots of typical hosts in a lane cover each other: every so many is drawn.
const MAX_DOTS: usize = 1000;

/// Characters of a lane's name on a terminal.
const NAME: usize = 26;

/// Text on how to read the picture.
pub const CAPTION: &str = "Each dot is a host, at its cost over that of its class's median host: right of ×1 slower. Outliers are coloured and \
     named where the pointer rests.";

/// Hosts in lanes.
pub struct Hosts<'a>(pub Vec<Lane<'a>>);

/// Hosts with something in common.
pub struct Lane<'a> {
    /// Property that the hosts have in common.
    pub name: &'a str,
    /// Hosts of the lane.
    pub hosts: Vec<&'a HostRow>,
}

impl Hosts<'_> {
    fn axis(&self) -> Axis {
        let hosts = self.0.iter().flat_map(|lane| &lane.hosts);
        let ratios = hosts.map(|host| host.ratio.median).chain([1.0]);
        Axis::spanning(&ratios.collect::<Vec<f64>>())
    }
}

/// Returns true if a host stands out in the picture.
fn stands_out(host: &HostRow) -> bool {
    host.verdict != HostVerdict::Typical
}

fn class(verdict: HostVerdict) -> &'static str {
    match verdict {
        HostVerdict::Slower => "slower",
        HostVerdict::Faster => "faster",
        HostVerdict::TooFewRuns => "few-runs",
        HostVerdict::Typical => "same",
    }
}

impl Chart for Hosts<'_> {
    fn svg(&self) -> Markup {
        let axis = self.axis();
        let ticks = axis.ticks(6);
        html! {
            div.chart.hosts {
                div.group { span {} div { (axis.labels(&ticks, |t| format!("×{}", significant(t)))) } span {} }
                @for lane in &self.0 { (row(lane, &axis, &ticks)) }
            }
        }
    }

    fn text(&self, width: usize, paint: Paint) -> Option<String> {
        let axis = self.axis();
        let names = self.0.iter().map(|lane| columns(&plain(lane.name)));
        let longest = names.max().unwrap_or(0).min(NAME);
        let room = width.saturating_sub(longest + 3).max(10);
        let column =
            |r: f64| ((axis.at(r) / 100.0 * (room - 1) as f64).round() as usize).min(room - 1);
        let mut out = String::new();
        for lane in &self.0 {
            let mut counts = vec![0_usize; room];
            let mut outliers = vec![false; room];
            for host in &lane.hosts {
                counts[column(host.ratio.median)] += 1;
                outliers[column(host.ratio.median)] |= stands_out(host);
            }
            let mark = |(outlier, count)| match (outlier, count) {
                (true, _) => paint.with("31", "◆"),
                (false, 0) => " ".to_owned(),
                (false, 1..=3) => "·".to_owned(),
                (false, 4..=20) => "•".to_owned(),
                (false, _) => "●".to_owned(),
            };
            let name = fit(&plain(lane.name), longest);
            let marks: String = outliers.into_iter().zip(counts).map(mark).collect();
            let gap = " ".repeat(longest - columns(&name));
            out += &format!("{name}{gap} │{}\n", marks.trim_end());
        }
        let (low, high) = axis.ends();
        let (low, high) = (ratio(low), ratio(high));
        let gap = room.saturating_sub(columns(&low) + columns(&high));
        Some(out + &format!("{} └{low}{}{high}\n", " ".repeat(longest), " ".repeat(gap)))
    }
}

fn row(lane: &Lane, axis: &Axis, ticks: &[f64]) -> Markup {
    let typical = lane.hosts.iter().filter(|host| !stands_out(host)).count();
    let step = typical.div_ceil(MAX_DOTS).max(1);
    let dots = lane.hosts.iter().enumerate();
    let dots = dots.filter(|(i, host)| stands_out(host) || i % step == 0);
    // Beside each other where they would cover each other.
    let height = |i: usize| 6 + (i * 11) % 23;
    let outliers = lane.hosts.len() - typical;
    html! {
        div.row {
            span.name { (lane.name) }
            svg height="34" role="img" aria-label={ (lane.name) ": " (counted(lane.hosts.len() as u64, "host")) ", " (outliers) " marked" } {
                (axis.grid(ticks))
                line.one x1=(percent(axis.at(1.0))) x2=(percent(axis.at(1.0))) y1="0" y2="100%" {}
                @for (i, host) in dots {
                    circle.(class(host.verdict)) cx=(percent(axis.at(host.ratio.median))) cy=(height(i)) r=(if stands_out(host) { 4 } else { 2 }) {
                        @if stands_out(host) { title { (host.host) ": " (ratio(host.ratio.median)) } }
                    }
                }
            }
            span.time { (count(lane.hosts.len() as u64)) " hosts" }
        }
    }
}
