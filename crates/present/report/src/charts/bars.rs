//! Bars: costs from ×1 with whiskers for their intervals, a lane each, side by side under one name; the parts of a
//! command's time on a guest, beside the same parts natively.

use super::axis::{Axis, ends, percent};
use crate::engine::Chart;
use crate::number::{difference, ratio, significant, value};
use crate::text::Joined;
use maud::{Markup, html};
use vmtax_model::{Estimate, Machine, Unit};

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
}
