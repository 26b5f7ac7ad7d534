//! The pictures of requests through the layers.

mod heat;
mod stack;
mod variants;
mod waterfall;

pub use heat::Heat;
pub use stack::{Medians, Stack};
pub use variants::Variants;
pub use waterfall::Falls;

use crate::engine::Chart;
use crate::view::layers as view;
use maud::{Markup, html};
use vmtax_model::{Layer, State};

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
    let pattern = match state {
        State::Running | State::NotDistinguished => return html! {},
        State::Runnable => "runnable",
        State::GuestRunnable => "guest-runnable",
        State::CpuWakeUp => "cpu-wake-up",
        State::GuestCpuWakeUp => "guest-cpu-wake-up",
        State::Lock => "lock",
        State::Waiting => "waiting",
        State::InRing => "in-ring",
        State::Queued => "queued",
    };
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
