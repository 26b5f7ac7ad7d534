//! Layers stacked into one bar for each machine and variant, beside the bare host.

use super::{States, class, patterns, veil};
use crate::charts::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::nanoseconds;
use crate::text::columns as width_of;
use crate::view::layers::{self as view, Scale};
use maud::{Markup, html};
use vmtax_model::{Layer, LayerColumn, Row, State, Summary};

/// Pixels of the bars' part of the picture where labels are shown at all, and of a letter.
const NARROWEST: f64 = 420.0;
const LETTER: f64 = 6.4;

/// A bar for each column.
pub struct Stack<'a> {
    /// The bare host.
    pub host: Option<&'a Summary>,
    /// Columns, a bar for each.
    pub columns: Vec<&'a LayerColumn>,
}

impl Chart for Stack<'_> {
    fn svg(&self) -> Markup {
        let (host, columns) = (self.host, &self.columns);
        let scale = Scale::for_columns(columns);
        let wholes = columns
            .iter()
            .map(|c| c.traced.mean_ns)
            .chain(columns.iter().filter_map(|c| Some(c.control?.mean_ns)));
        let longest = wholes
            .chain(host.map(|h| h.mean_ns))
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        let axis = Axis::from_zero(longest * 1.02);
        let ticks = axis.ticks(5);
        html! {
            (patterns())
                p.legend { @for (layer, _) in view::layers_of(columns) { span.key.(class(layer)) { (layer.label()) } } span.key.rest { "unexplained" } }
                (States(states(columns)).svg())
                div.chart.stack {
                    div.group { h3 {} div { (axis.labels(&ticks, |t| scale.tick(t))) } span {} }
                    @if let Some(host) = host {
                        div.row {
                            span.name { "native" }
                            svg height="30" role="img" aria-label={ "native: " (scale.text(host.mean_ns)) } {
                                (axis.grid(&ticks))
                                g.native.full { rect width=(percent(axis.at(host.mean_ns))) y="3" height="24" rx="2" { title { "native: mean " (scale.text(host.mean_ns)) } } }
                            }
                            span.figures { span.native { b { (scale.text(host.mean_ns)) } } }
                        }
                    }
                    @for column in columns { (bar(column, &axis, &ticks, &scale)) }
                }
        }
    }
}

/// Medians from the bare host to the guest, a tile each; the text is the answer's.
pub struct Medians(pub Vec<(String, f64)>);

impl Chart for Medians {
    fn svg(&self) -> Markup {
        html! {
            div.tiles.ladder {
                @for (i, (name, ns)) in self.0.iter().enumerate() {
                    div.tile.(if name.starts_with("bare") { "native" } else if i + 1 == self.0.len() { "tcg" } else { "kvm" }) {
                        p.figure { (nanoseconds(*ns)) }
                        p { (name) }
                    }
                }
            }
        }
    }
}

/// The states of all columns' requests.
fn states(columns: &[&LayerColumn]) -> Vec<State> {
    let mut states: Vec<State> = columns
        .iter()
        .flat_map(|c| view::states_of(c))
        .map(|(state, ..)| state)
        .collect();
    states.sort_unstable();
    states.dedup();
    states
}

fn bar(column: &LayerColumn, axis: &Axis, ticks: &[f64], scale: &Scale) -> Markup {
    let mut rows: Vec<&Row> = column.rows.iter().filter(|r| r.count > 0).collect();
    rows.sort_by_key(|r| (r.layer, r.state));
    let ends = rows.iter().scan(0.0, |end, r| {
        *end += r.time.mean_ns.max(0.0);
        Some(*end)
    });
    let ends: Vec<f64> = ends.collect();
    let explained = ends.last().copied().unwrap_or(0.0);
    let begin = |i: usize| if i == 0 { 0.0 } else { ends[i - 1] };
    html! {
        div.row {
            span.name {
                @if column.from_host { (column.variant) }
                @else { (view::guest(column.machine)) small { (column.machine) @if !column.variant.is_empty() { ", " (column.variant) } } }
            }
            svg height="30" role="img" aria-label={ (view::title(column)) ": " (scale.text(column.traced.mean_ns)) } {
                (axis.grid(ticks))
                @for (i, row) in rows.iter().enumerate() {
                    @let x = percent(axis.at(begin(i)));
                    @let width = percent(axis.at(ends[i]) - axis.at(begin(i)));
                    g.(class(row.layer)) {
                        title { (view::name(row.layer, &row.label, row.state)) ": mean " (scale.text(row.time.mean_ns)) ", " (format!("{:.1} %", row.percent)) }
                        rect x=(x) width=(width) y="3" height="24" {}
                        (veil(row.state, &x, &width, "3", "24"))
                    }
                }
                g.rest { title { "unexplained: " (scale.text(column.unexplained_ns)) }
                    rect x=(percent(axis.at(explained))) width=(percent(axis.at(column.traced.mean_ns) - axis.at(explained))) y="3" height="24" {} }
                @for (layer, from, to) in running(&rows, &ends) { (inside(layer.label(), axis.at(from), axis.at(to))) }
                @if let Some(control) = &column.control {
                    @let x = percent(axis.at(control.mean_ns));
                    line.control x1=(x) x2=(x) y1="0" y2="30" { title { "untraced control: mean " (scale.text(control.mean_ns)) } }
                }
            }
            span.figures { span { b { (scale.text(column.traced.mean_ns)) } " " span.range { @if let Some(c) = &column.control { (scale.number(c.mean_ns)) " untraced" } } } }
        }
    }
}

/// Where each layer's running part begins and ends.
fn running(rows: &[&Row], ends: &[f64]) -> Vec<(Layer, f64, f64)> {
    let mut parts: Vec<(Layer, f64, f64)> = Vec::new();
    for (i, row) in rows
        .iter()
        .enumerate()
        .filter(|(_, r)| r.state == State::Running)
    {
        match parts.last_mut() {
            Some((layer, _, to)) if *layer == row.layer => *to = ends[i],
            _ => parts.push((row.layer, if i == 0 { 0.0 } else { ends[i - 1] }, ends[i])),
        }
    }
    parts
}

/// A layer's name where its part of the bar has room for it.
fn inside(text: &str, from: f64, to: f64) -> Markup {
    let fits = (to - from) / 100.0 * NARROWEST > width_of(text) as f64 * LETTER + 6.0;
    html! {
        @if fits { text.inside x=(percent((from + to) / 2.0)) y="19" text-anchor="middle" { (text) } }
    }
}
