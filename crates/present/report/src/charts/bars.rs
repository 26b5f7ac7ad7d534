//! Costs on an axis of ratios, as bars from ×1 with whiskers or as intervals around it; the parts of a command's time on a
//! guest as bars, beside the same parts natively.

use super::sketch::{self, Line, mark, sketch};
use super::{Axis, ends, percent};
use crate::engine::Chart;
use crate::number::{self, difference, factor, ratio, significant, value};
use crate::text::Joined;
use crate::view::by_workload;
use crate::view::verdict::{class, interval};
use maud::{Markup, html};
use vmtax_findings::{Against, Compared, Estimate, Verdict};
use vmtax_model::{Better, Machine, Unit};

/// Height of a lane, CSS pixels; style.css gives the figures beside it the same.
const LANE: f64 = 20.0;
/// Air above and below a row's lanes; the same in style.css.
const AIR: f64 = 4.0;

/// Rows of bars under headings.
#[derive(Default)]
pub struct Bars {
    /// A class beside the usual: "ways" for long names and figures.
    pub class: &'static str,
    /// Legend of the colours: class and name.
    pub legend: Vec<(&'static str, String)>,
    /// Headings with their rows.
    pub groups: Vec<(String, Vec<Row>)>,
}

/// A name with its lanes.
pub struct Row {
    /// Name beside the lanes.
    pub name: String,
    /// More to it, set small.
    pub more: &'static str,
    /// Lanes of the row, one below the other.
    pub lanes: Vec<Lane>,
}

/// A bar with its figures.
pub struct Lane {
    /// The class that gives its colour: a machine's name.
    pub class: &'static str,
    /// The cost over what ×1 stands for; `None`: no bar.
    pub cost: Option<Estimate>,
    /// True if a difference is shown; otherwise the bar is drawn pale.
    pub shown: bool,
    /// The figure beside it.
    pub figure: String,
    /// More beside it, in less weight.
    pub range: String,
}

impl Bars {
    fn costs(&self) -> Vec<f64> {
        let rows = self.groups.iter().flat_map(|(_, rows)| rows);
        let costs = rows
            .flat_map(|row| &row.lanes)
            .filter_map(|lane| lane.cost.as_ref());
        costs.flat_map(ends).collect()
    }

    /// Returns true if there is no bar.
    pub fn is_empty(&self) -> bool {
        self.costs().is_empty()
    }

    /// Returns a sentence on how to read the scale.
    pub fn scale(&self) -> &'static str {
        match Axis::for_ratios(&self.costs()).log {
            true => "The scale is logarithmic, bars start at ×1.",
            false => "The scale is linear from 0.",
        }
    }
}

impl Chart for Bars {
    fn svg(&self) -> Markup {
        let axis = Axis::for_ratios(&self.costs());
        let ticks = axis.ticks(7);
        html! {
            @if !self.legend.is_empty() { p.legend { @for (class, name) in &self.legend { span.key.(class) { (name) } } } }
            div.chart.(self.class) {
                @for (name, rows) in &self.groups {
                    div.group { h3 { (name) } div { (axis.labels(&ticks, tick)) } span {} }
                    @for one in rows { (row(one, &axis, &ticks)) }
                }
            }
        }
    }

    fn sketch(&self, width: usize) -> Option<String> {
        let rows = self.groups.iter().flat_map(|(_, rows)| rows);
        let lanes = rows.flat_map(|row| row.lanes.iter().map(move |lane| (row, lane)));
        let mut lanes: Vec<_> = lanes
            .filter_map(|(row, lane)| Some((row, lane, lane.cost?)))
            .collect();
        let left_out = lanes.len().saturating_sub(sketch::MOST);
        if left_out > 0 {
            let distance = |cost: &Estimate| cost.median.max(f64::MIN_POSITIVE).ln().abs();
            lanes.sort_by(|a, b| distance(&b.2).total_cmp(&distance(&a.2)));
            lanes.truncate(sketch::MOST);
        }
        let axis = Axis::for_ratios(&self.costs());
        let one = axis.at(1.0);
        let is_one_class = lanes
            .iter()
            .all(|(_, lane, _)| lane.class == lanes[0].1.class);
        let line = |(row, lane, cost): &(&Row, &Lane, Estimate)| {
            let bar = if lane.shown { '█' } else { '░' };
            let from = if axis.log { one } else { 0.0 };
            Line {
                name: match is_one_class {
                    true => row.name.clone(),
                    false => format!("{}, {}", row.name, lane.class),
                },
                figure: format!("{} {}", lane.figure, lane.range)
                    .trim_end()
                    .to_owned(),
                marks: vec![mark(bar, from, axis.at(cost.median)), mark('│', one, one)],
            }
        };
        let lines: Vec<Line> = lanes.iter().map(line).collect();
        let more = match left_out {
            0 => String::new(),
            n => format!(", and {n} closer to ×1 in the table"),
        };
        let legend = format!("│ ×1{more}\n");
        (!lines.is_empty()).then(|| sketch(&lines, width) + &legend)
    }
}

fn tick(t: f64) -> String {
    let text = significant(t);
    match text.contains('.') {
        true => format!("×{}", text.trim_end_matches('0').trim_end_matches('.')),
        false => format!("×{text}"),
    }
}

fn row(row: &Row, axis: &Axis, ticks: &[f64]) -> Markup {
    let said = |lane: &Lane| format!("{} {} {}", lane.class, lane.figure, lane.range);
    let spoken = row.lanes.iter().map(said).joined(", ");
    let one = percent(axis.at(1.0));
    html! {
        div.row {
            span.name { (crate::engine::prose(&row.name)) @if !row.more.is_empty() { " " small { (row.more) } } }
            svg.bars height=(LANE * row.lanes.len() as f64 + 2.0 * AIR) role="img" aria-label={ (row.name) ": " (spoken) } {
                (axis.grid(ticks))
                @for (i, lane) in row.lanes.iter().enumerate() {
                    @if let Some(cost) = &lane.cost {
                        g.(lane.class).(if lane.shown { "full" } else { "pale" }) {
                            title { (lane.class) " " (ratio(cost.median)) " " (lane.range) }
                            (axis.bar(cost, AIR + (i as f64 + 0.5) * LANE, LANE - 8.0))
                        }
                    }
                }
                line.one x1=(one) x2=(one) y1="0" y2="100%" {}
            }
            span.figures {
                @for lane in &row.lanes {
                    span.(lane.class) {
                        @if lane.shown { b { (lane.figure) } } @else { span.open { (lane.figure) } }
                        " " span.range { (lane.range) }
                    }
                }
            }
        }
    }
}

/// The ratios of a variant to the baseline.
pub struct Intervals<'a> {
    /// Variant with its rows.
    pub against: &'a Against,
    /// The smallest difference that matters, as a fraction.
    pub min_effect: f64,
}

impl Intervals<'_> {
    fn axis(&self) -> Axis {
        let rows = &self.against.rows;
        let ends = rows.iter().flat_map(|row| ends(&deciding(row)));
        let ends = ends.chain([1.0, 1.0 + self.min_effect, 1.0 / (1.0 + self.min_effect)]);
        Axis::log(&ends.collect::<Vec<f64>>())
    }
}

impl Chart for Intervals<'_> {
    fn svg(&self) -> Markup {
        let rows = &self.against.rows;
        let axis = self.axis();
        let ticks = ticks_near_one(&axis);
        html! {
            div.chart.compared {
                @for (workload, rows) in by_workload(rows, |r| r.metric) {
                    div.group { h3 { (workload) } div { (axis.labels(&ticks, |t| format!("×{}", significant(t)))) } span {} }
                    @for row in rows { (interval_line(row, self.min_effect, &axis, &ticks)) }
                }
            }
        }
    }

    fn sketch(&self, width: usize) -> Option<String> {
        let axis = self.axis();
        let one = axis.at(1.0);
        let mut rows: Vec<&Compared> = self.against.rows.iter().collect();
        let left_out = rows.len().saturating_sub(sketch::MOST);
        if left_out > 0 {
            let is_same = |row: &&Compared| row.comparison.verdict == Verdict::Equivalent;
            rows.sort_by_key(is_same);
            rows.truncate(sketch::MOST);
        }
        let line = |row: &&Compared| {
            let (estimate, at) = (deciding(row), axis.at(row.comparison.ratio.median));
            let stroke = estimate
                .interval
                .map(|i| mark('─', axis.at(i.low), axis.at(i.high)));
            let others = [mark('│', one, one), mark('●', at, at)];
            Line {
                name: row.metric.to_string(),
                figure: ratio(row.comparison.ratio.median),
                marks: stroke.into_iter().chain(others).collect(),
            }
        };
        let lines: Vec<Line> = rows.iter().map(line).collect();
        let more = match left_out {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        let legend = format!("│ ×1, right of it slower; ─ 95 % CI{more}\n");
        (!lines.is_empty()).then(|| sketch(&lines, width) + &legend)
    }
}

/// Ticks of an axis that may be narrow: where there are no round decades, shares of 1.
fn ticks_near_one(axis: &Axis) -> Vec<f64> {
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

fn interval_line(row: &Compared, min_effect: f64, axis: &Axis, ticks: &[f64]) -> Markup {
    let change = change(row, min_effect);
    let axis_percent = |v: f64| percent(axis.at(v));
    let (from, to) = (axis.at(1.0 / (1.0 + min_effect)), axis.at(1.0 + min_effect));
    let median = ratio(row.comparison.ratio.median);
    let spoken = format!("{median} {}: {change}", interval(&deciding(row)));
    html! {
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
            span.time { b { (median) } " " (change) }
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
pub fn change(row: &Compared, min_effect: f64) -> String {
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

/// A difference below this, seconds, is rounding of the accounts.
pub const NEGLIGIBLE_S: f64 = 5e-7;

/// A part of a time, as text.
pub fn seconds(s: f64) -> String {
    if s.abs() < NEGLIGIBLE_S {
        "0".to_owned()
    } else if s < 0.0 {
        difference(Unit::Seconds, s)
    } else {
        value(Unit::Seconds, s)
    }
}

/// Name of a part, seconds natively, seconds on the guest.
pub type PartTimes = (&'static str, Option<f64>, f64);

/// Parts of a time, in seconds.
pub struct Parts {
    /// Machine of the guest.
    pub machine: Machine,
    /// Parts from top to bottom.
    pub rows: Vec<PartTimes>,
}

impl Chart for Parts {
    fn svg(&self) -> Markup {
        let longer = |(_, native, guest): &PartTimes| native.unwrap_or(0.0).max(*guest);
        let longest = self.rows.iter().map(longer).fold(0.0, f64::max);
        let axis = Axis::from_zero(longest.max(f64::MIN_POSITIVE));
        let ticks = axis.ticks(5);
        html! {
            p.legend {
                span.key.(self.machine.as_str()) { (self.machine) }
                @if self.rows.iter().any(|row| row.1.is_some()) { span.key.native { "native" } }
            }
            div.chart {
                div.group { span {} div { (axis.labels(&ticks, seconds)) } span {} }
                @for (name, native, guest) in &self.rows {
                    div.row {
                        span.name { (name) }
                        svg height="28" role="img" aria-label={ (name) ": " (seconds(*guest)) } {
                            (axis.grid(&ticks))
                            g.(self.machine.as_str()).full { rect width=(percent(axis.at(guest.max(0.0)))) y="4" height="11" rx="2" {} }
                            @if let Some(native) = native {
                                g.native.full { rect width=(percent(axis.at(native.max(0.0)))) y="17" height="7" rx="2" {} }
                            }
                        }
                        span.figures { span.(self.machine.as_str()) { b { (seconds(*guest)) } } }
                    }
                }
            }
        }
    }
    fn sketch(&self, width: usize) -> Option<String> {
        let longest = self.rows.iter().map(|row| row.2).fold(0.0, f64::max);
        let axis = Axis::from_zero(longest.max(f64::MIN_POSITIVE));
        let line = |(name, native, guest): &PartTimes| {
            let [guest_end, native_end] =
                [*guest, native.unwrap_or(0.0)].map(|s| axis.at(s.max(0.0)));
            let native = (native_end > 0.0).then(|| mark('▒', 0.0, native_end.min(guest_end)));
            let guest_bar = (guest_end > 0.0).then(|| mark('█', 0.0, guest_end));
            Line {
                name: (*name).to_owned(),
                figure: seconds(*guest),
                marks: guest_bar.into_iter().chain(native).collect(),
            }
        };
        let lines: Vec<Line> = self.rows.iter().take(sketch::MOST).map(line).collect();
        let natively = self.rows.iter().any(|row| row.1.is_some());
        let natively = if natively {
            ", ▒ the part that native takes, too"
        } else {
            ""
        };
        let legend = format!("█ {}{natively}\n", self.machine);
        (!lines.is_empty()).then(|| sketch(&lines, width) + &legend)
    }
}
