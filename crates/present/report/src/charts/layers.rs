//! Requests through the layers: stacked into bars, compared by variant, one by one as waterfalls, and over the run as a
//! heat map.

use super::{Axis, ends, percent};
use crate::engine::{Chart, prose};
use crate::number::{count, nanoseconds, range, ratio};
use crate::text::{columns as width_of, distinct};
use crate::view::layers::{self as view, Scale};
use crate::view::verdict::class as verdict_class;
use maud::{Markup, html};
use std::fmt::Write as _;
use vmtax_findings::{HeatMap, LayerColumn, LayerFindings, Row, Span, State, Summary, Waterfall};
use vmtax_model::Layer;

/// The class that gives a layer its colour.
pub fn class(layer: Layer) -> &'static str {
    match layer {
        Layer::GuestApplication => "l-app",
        Layer::GuestKernel => "l-guest",
        Layer::Notify => "l-notify",
        Layer::Kvm => "l-kvm",
        Layer::Qemu | Layer::BelowVirtqueue | Layer::BelowGuest => "l-qemu",
        Layer::HostKernel => "l-host",
        Layer::Device => "l-device",
        Layer::Interrupt => "l-irq",
        Layer::Server => "l-server",
        Layer::Passt => "l-passt",
        Layer::Vhost => "l-vhost",
    }
}

/// A segment's name in its layer's colour, with its state.
pub fn segment(layer: Layer, label: &str, state: State) -> Markup {
    html! { span.key.(class(layer)) { (label) } @if !view::state(state).is_empty() { " " small { (view::state(state)) } } }
}

/// Legend of the patterns: states of a request.
pub struct States(pub Vec<State>);

impl Chart for States {
    fn svg(&self) -> Markup {
        html! {
            p.legend { @for state in self.0.iter().filter(|state| **state != State::Running) { span.state-key { svg { rect width="100%" height="100%" {} (veil(*state, "0", "100%", "0", "100%")) } (state.label()) } } }
        }
    }
}

/// Draws the pattern over a layer's colour in a state other than running.
pub fn veil(state: State, x: &str, width: &str, y: &str, height: &str) -> Markup {
    if matches!(state, State::Running | State::NotDistinguished) {
        return html! {};
    }
    let pattern = <&str>::from(state);
    html! { rect.veil x=(x) width=(width) y=(y) height=(height) style={ "fill:url(#" (pattern) ")" } {} }
}

/// The patterns of [`veil`], drawn in the colour of the page over the layer's.
pub fn patterns() -> Markup {
    let lines = [
        ("runnable", "M0 8L8 0M-2 2L2 -2M6 10L10 6"),
        ("guest-runnable", "M0 0L8 8M-2 6L2 10M6 -2L10 2"),
        ("cpu-wake-up", "M4 0V8"),
        ("guest-cpu-wake-up", "M2 0V3M6 4V7"),
        ("lock", "M0 8L8 0M0 0L8 8"),
        ("waiting", "M2 0V8M6 0V8"),
        ("in-ring", "M0 2H8M0 6H8"),
        ("queued", "M0 4H8"),
    ];
    html! {
        svg.patterns aria-hidden="true" width="0" height="0" {
            defs {
                @for (id, path) in lines {
                    pattern id=(id) width="8" height="8" patternUnits="userSpaceOnUse" { path d=(path) {} }
                }
            }
        }
    }
}

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
        let traced = columns.iter().map(|column| column.traced.mean_ns);
        let controls = columns
            .iter()
            .filter_map(|column| Some(column.control?.mean_ns));
        let wholes = traced.chain(controls).chain(host.map(|host| host.mean_ns));
        let longest = wholes.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let axis = Axis::from_zero(longest * 1.02);
        let ticks = axis.ticks(5);
        html! {
            (patterns())
                p.legend { @for (layer, _) in view::layers_of(columns) { span.key.(class(layer)) { (layer.label()) } } span.key.rest { (columns.first().map_or("unexplained", |column| view::unexplained(column))) } }
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
                    @for column in columns { (stacked(column, &axis, &ticks, &scale)) }
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
    let states = columns.iter().flat_map(|column| view::states_of(column));
    let mut states: Vec<State> = states.map(|(state, ..)| state).collect();
    states.sort_unstable();
    states.dedup();
    states
}

fn stacked(column: &LayerColumn, axis: &Axis, ticks: &[f64], scale: &Scale) -> Markup {
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
                g.rest { title { (view::unexplained(column)) ": " (scale.text(column.unexplained_ns)) }
                    rect x=(percent(axis.at(explained))) width=(percent((axis.at(column.traced.mean_ns) - axis.at(explained)).max(0.0))) y="3" height="24" {} }
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
    let running = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.state == State::Running);
    for (i, row) in running {
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
        let differences = findings.differences.iter();
        let ends = differences.flat_map(|d| ends(&d.comparison.ratio).chain([1.0]));
        let axis = Axis::around(&ends.collect::<Vec<f64>>());
        let ticks = axis.ticks(6);
        html! {
                    div.chart.forest {
                        div.group { h3 { "untraced latency ÷ the first variant's" } div { (axis.labels(&ticks, ratio)) } span {} }
                        @for (d, sentence) in findings.differences.iter().zip(&self.sentences) {
                            div.row {
                                span.name { (prose(&d.variant)) @if findings.columns.iter().any(|c| c.machine != d.machine) { " " small { "on " (d.machine) } } }
                                svg height="28" role="img" aria-label=(sentence) {
                                    (axis.grid(&ticks))
                                    g.(verdict_class(d.comparison.verdict)) {
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

/// Waterfall of one request.
pub struct Falls<'a>(pub &'a Waterfall);

impl Chart for Falls<'_> {
    fn svg(&self) -> Markup {
        let w = self.0;
        let ends = w.spans.iter().map(|span| span.end_ns).chain([w.total_ns]);
        let axis = Axis::from_zero(ends.filter(|v| v.is_finite()).fold(0.0, f64::max));
        let ticks = axis.ticks(6);
        let scale = Scale::for_total(w.total_ns);
        let threads = distinct(w.spans.iter().map(lane));
        html! {
            div.waterfall { div.chart {
                div.group { span {} div { (axis.labels(&ticks, |t| scale.tick(t))) } span {} }
                @for thread in &threads {
                    div.row.lane-of {
                        span.name { (thread) }
                        svg height="18" role="img" aria-label={ "When " (thread) " has the request" } {
                            (axis.grid(&ticks))
                            @for span in w.spans.iter().filter(|s| lane(s) == *thread) { (span_bar(span, &axis, &scale)) }
                        }
                        span {}
                    }
                }
                div.apart {}
                @for span in &w.spans {
                    div.row.stretch {
                        span.name { (segment(span.layer, &span.label, span.state)) }
                        svg height="18" role="img" aria-label={ (view::name(span.layer, &span.label, span.state)) ": from " (scale.text(span.begin_ns)) " to " (scale.text(span.end_ns)) } {
                            (axis.grid(&ticks))
                            (span_bar(span, &axis, &scale))
                        }
                        span.time { b { (scale.text(span.end_ns - span.begin_ns)) } " " span.range { (lane(span)) } }
                    }
                }
            }
            }
        }
    }
}

/// Who has the request: the disk is nobody's thread.
fn lane(span: &Span) -> &str {
    if span.layer == Layer::Device {
        Layer::Device.label()
    } else {
        &span.thread
    }
}

fn span_bar(span: &Span, axis: &Axis, scale: &Scale) -> Markup {
    let (begin, end) = (axis.at(span.begin_ns), axis.at(span.end_ns));
    let (x, width) = (percent(begin.min(99.75)), percent((end - begin).max(0.25)));
    html! {
        g.(class(span.layer)) {
            title { (view::name(span.layer, &span.label, span.state)) ", " (span.thread) ": " (scale.text(span.end_ns - span.begin_ns)) " from " (scale.text(span.begin_ns)) }
            rect x=(x) width=(width) y="2" height="14" rx="1.5" {}
            (veil(span.state, &x, &width, "2", "14"))
        }
    }
}

/// Steps of darkness; equal steps are equal factors of the count.
const SHADES: usize = 6;

/// The heat map of one column.
pub struct Heat<'a> {
    column: &'a LayerColumn,
    /// The most requests that a cell holds.
    pub most: u32,
    rows: usize,
}

impl<'a> Heat<'a> {
    /// `None` where there is nothing to draw.
    pub fn new(column: &'a LayerColumn) -> Option<Heat<'a>> {
        let map = &column.heat;
        let rows = map.counts.iter().map(Vec::len).max().unwrap_or(0);
        let most = map.counts.iter().flatten().copied().max().unwrap_or(0);
        let is_within = |v: f64, low: f64| v > low && v.is_finite();
        let edges_hold = is_within(map.lowest_ns, 0.0) && is_within(map.row_factor, 1.0);
        (most > 0 && edges_hold).then_some(Heat { column, most, rows })
    }
}

impl Chart for Heat<'_> {
    fn svg(&self) -> Markup {
        let Heat { column, rows, most } = *self;
        let map = &column.heat;
        let highest_ns = map.lowest_ns * map.row_factor.powf(rows as f64);
        let latency = Axis::between(map.lowest_ns, highest_ns);
        let length = map.column_ns * map.counts.len() as f64;
        let (time, scale) = (Axis::from_zero(length), Scale::for_total(length));
        let ticks = latency.ticks(5);
        html! {
                div.chart.heat {
                    svg.scale-of aria-hidden="true" {
                        @for t in &ticks { text x="100%" y=(percent(100.0 - latency.at(*t))) dy="4" text-anchor="end" { (nanoseconds(*t)) } }
                    }
                    svg.cells role="img" aria-label={ "Latency of " (count(column.matched.joined)) " requests over " (scale.text(length)) } {
                        svg viewBox={ "0 0 " (map.counts.len()) " " (rows) } preserveAspectRatio="none" {
                            @for shade in 1..=SHADES { path.{ "shade-" (shade) } d=(cells(map, rows, most, shade)) {} }
                        }
                        @for t in &ticks { @let y = percent(100.0 - latency.at(*t)); line.grid x1="0" x2="100%" y1=(y) y2=(y) {} }
                    }
                    span {}
                    div { (time.labels(&time.ticks(8), |t| scale.tick(t))) }
                }
        }
    }
}

/// The cells of one shade as one path.
fn cells(map: &HeatMap, rows: usize, most: u32, shade: usize) -> String {
    let mut path = String::new();
    for (x, column) in map.counts.iter().enumerate() {
        for (row, n) in column.iter().enumerate().filter(|(_, n)| **n > 0) {
            if shade_of(*n, most) == shade {
                // Writing to a String cannot fail.
                let _ = write!(path, "M{x} {}h1v1h-1z", rows - 1 - row);
            }
        }
    }
    path
}

fn shade_of(n: u32, most: u32) -> usize {
    let share = f64::from(n).ln_1p() / f64::from(most).ln_1p();
    ((share * SHADES as f64).ceil() as usize).clamp(1, SHADES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_lie_at_the_bottom_and_the_fullest_are_darkest() {
        let map = HeatMap {
            column_ns: 1.0,
            lowest_ns: 1.0,
            row_factor: 2.0,
            counts: vec![vec![0, 100, 1], vec![3]],
        };
        assert_eq!(cells(&map, 3, 100, SHADES), "M0 1h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 1), "M0 0h1v1h-1z");
        assert_eq!(cells(&map, 3, 100, 2), "M1 2h1v1h-1z");
    }
}
