//! Where a command's time goes: a bar for each part on a guest, beside the same part natively.

use super::axis::{Axis, percent};
use crate::engine::Chart;
use crate::number::{difference, value};
use maud::{Markup, html};
use vmtax_model::{Machine, Unit};

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

/// Parts of a time, in seconds.
pub struct Parts {
    /// Machine of the guest.
    pub machine: Machine,
    /// Name, seconds natively, seconds on the guest.
    pub rows: Vec<(&'static str, Option<f64>, f64)>,
}

impl Chart for Parts {
    fn svg(&self) -> Markup {
        let longest = self
            .rows
            .iter()
            .map(|(_, native, guest)| native.unwrap_or(0.0).max(*guest))
            .fold(0.0, f64::max);
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
