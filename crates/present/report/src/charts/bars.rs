//! Costs as bars from ×1, with whiskers for their intervals; a lane each, side by side under one name.

use super::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{ratio, significant};
use maud::{Markup, html};
use vmtax_model::Estimate;

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
        let lanes = self
            .groups
            .iter()
            .flat_map(|(_, rows)| rows)
            .flat_map(|row| &row.lanes);
        let ends = |cost: Estimate| {
            [
                Some(cost.median),
                cost.interval.map(|i| i.low),
                cost.interval.map(|i| i.high),
            ]
        };
        lanes
            .filter_map(|lane| lane.cost)
            .flat_map(ends)
            .flatten()
            .collect()
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
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("×{text}")
}

fn row(row: &Row, axis: &Axis, ticks: &[f64]) -> Markup {
    let said = |lane: &Lane| format!("{} {} {}", lane.class, lane.figure, lane.range);
    let spoken: Vec<String> = row.lanes.iter().map(said).collect();
    let one = percent(axis.at(1.0));
    html! {
        div.row {
            span.name { (crate::engine::prose(&row.name)) @if !row.more.is_empty() { " " small { (row.more) } } }
            svg.bars height=(LANE * row.lanes.len() as f64 + 2.0 * AIR) role="img" aria-label={ (row.name) ": " (spoken.join(", ")) } {
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
