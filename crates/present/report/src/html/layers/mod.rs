//! `layers`' page: the answer, the picture of each kind, each with its table, and what it rests on.

mod answer;
mod heat;
mod rows;
mod stack;
mod tables;
mod waterfall;

use super::{Head, document, facts};
use crate::layers::view;
use crate::view::{report_command, when};
use maud::{Markup, html as markup};
use vmtax_model::{Layer, LayerColumn, LayerFindings, State};
use vmtax_recording::Recording;

const STYLE: &str = include_str!("style.css");

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &LayerFindings) -> String {
    let page = Page { recording, findings };
    let title =
        format!("Where the time of a request goes: {}, {}", recording.plan.name, when(&recording.manifest.started));
    let columns = view::columns(findings);
    let body = markup! {
        (patterns())
        (answer::answer(&page))
        @if !columns.is_empty() {
            (stack::stack(&page, &columns))
            @for (i, column) in columns.iter().enumerate() {
                (section_of(&page, column, i == 0))
            }
            p.method { b { "Method. " } (findings.method) }
        }
        (facts::facts(recording, &[]))
    };
    document(&Head::of(recording, &title), STYLE, &body)
}

/// One machine in one variant. All but the first are folded, so that the page can be read in one go.
fn section_of(page: &Page, column: &LayerColumn, open: bool) -> Markup {
    markup! {
        details.column open[open] {
            summary { h2 { (view::title(column)) } }
            p.legend { @for (layer, _) in view::layers_of(&[column]) { span.key.(class(layer)) { (layer.label()) } } }
            p.legend { @for state in states(column) { span.state-key { svg { rect width="100%" height="100%" {} (veil(state, "0", "100%", "0", "100%")) } (state.label()) } } }
            (waterfall::waterfalls(page, column))
            (rows::rows(page, column))
            (heat::heat(page, column))
            (tables::tables(page, column))
        }
    }
}

/// What every part of the page is made from.
struct Page<'a> {
    recording: &'a Recording,
    findings: &'a LayerFindings,
}

impl Page<'_> {
    /// What stands under a picture of one column: what it rests on and the command that makes it.
    fn source(&self, column: &LayerColumn) -> Markup {
        markup! {
            span.source {
                "n = " (crate::number::count(column.matched.joined)) " requests in " (column.rounds) " round" @if column.rounds != 1 { "s" }
                " · " code { (report_command(self.recording)) }
            }
        }
    }
}

/// The class that gives a layer its colour.
fn class(layer: Layer) -> &'static str {
    match layer {
        Layer::GuestApplication => "l-app",
        Layer::GuestKernel => "l-guest",
        Layer::Notify => "l-notify",
        Layer::Kvm => "l-kvm",
        Layer::Qemu => "l-qemu",
        Layer::HostKernel => "l-host",
        Layer::Device => "l-device",
        Layer::Interrupt => "l-irq",
    }
}

/// A stretch's name in its layer's colour, with its state.
fn stretch(layer: Layer, label: &str, state: State) -> Markup {
    markup! { span.key.(class(layer)) { (label) } @if !view::state(state).is_empty() { " " small { (view::state(state)) } } }
}

/// The states that any request was in.
fn states(column: &LayerColumn) -> Vec<State> {
    let mut states: Vec<State> = column.rows.iter().filter(|r| r.count > 0).map(|r| r.state).collect();
    states.sort_unstable();
    states.dedup();
    states
}

/// What lies over a layer's colour in a state other than running.
fn veil(state: State, x: &str, width: &str, y: &str, height: &str) -> Markup {
    let pattern = match state {
        State::Running => return markup! {},
        State::Runnable => "runnable",
        State::GuestRunnable => "guest-runnable",
        State::IdleWakes => "idle-wakes",
        State::Lock => "lock",
        State::Waiting => "waiting",
        State::InRing => "in-ring",
    };
    markup! { rect.veil x=(x) width=(width) y=(y) height=(height) style={ "fill:url(#" (pattern) ")" } {} }
}

/// The patterns of [`veil`], drawn in the colour of the page over the layer's.
fn patterns() -> Markup {
    let lines = [
        ("runnable", "M0 8L8 0M-2 2L2 -2M6 10L10 6"),
        ("guest-runnable", "M0 0L8 8M-2 6L2 10M6 -2L10 2"),
        ("idle-wakes", "M4 0V8"),
        ("lock", "M0 8L8 0M0 0L8 8"),
        ("waiting", "M2 0V8M6 0V8"),
        ("in-ring", "M0 2H8M0 6H8"),
    ];
    markup! {
        svg.patterns aria-hidden="true" width="0" height="0" {
            defs {
                @for (id, path) in lines {
                    pattern id=(id) width="8" height="8" patternUnits="userSpaceOnUse" { path d=(path) {} }
                }
            }
        }
    }
}
