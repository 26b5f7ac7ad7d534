//! Hosts as dots on one axis of ratios, a lane for each class or each value of a fact: SVG, and with characters.

use super::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{count, counted, ratio, significant};
use crate::text::{Paint, columns, fit, plain};
use maud::{Markup, html};
use vmtax_findings::{HostRow, HostVerdict};

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
