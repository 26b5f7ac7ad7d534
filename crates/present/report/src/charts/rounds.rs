//! Each round's value as a dot: drift and outliers are to be seen, not summed away.

use super::axis::percent;
use crate::engine::Chart;
use crate::number;
use maud::{Markup, html};
use vmtax_model::{Machine, Unit};

/// Deviations smaller than this do not fill a picture: noise of a percent must look like a percent.
const LEAST_SPAN: f64 = 0.05;
const HEIGHT: f64 = 76.0;

/// Text on how to read the picture.
pub const INTRO: &str = "Each dot is one round's value against its own machine's median, rounds from left to right. A slope is \
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
        for (
            place,
            Values {
                machine,
                median,
                rounds,
            },
        ) in self.values.iter().enumerate()
        {
            let Some(median) = median.filter(|m| *m > 0.0) else {
                continue;
            };
            // Side by side within a round, so that equal values do not hide each other.
            let shift = (place as f64 - (self.values.len() as f64 - 1.0) / 2.0) * 14.0
                / f64::from(self.rounds).max(4.0);
            for (round, v) in rounds {
                dots.push((*machine, *round, *v, v / median - 1.0, shift));
            }
        }
        let span = dots
            .iter()
            .map(|d| d.3.abs())
            .filter(|d| d.is_finite())
            .fold(LEAST_SPAN, f64::max)
            * 1.08;
        let y = |deviation: f64| HEIGHT / 2.0 - deviation / span * (HEIGHT / 2.0 - 6.0);
        let x = |round: u32| (f64::from(round) + 0.5) / f64::from(self.rounds) * 100.0;
        let span_text = format!("{:.0} %", span * 100.0);
        html! {
                div.dots {
                    span.scale aria-hidden="true" { span { "+" (span_text) } span { "0" } span { "−" (span_text) } }
                    svg height=(HEIGHT) role="img" aria-label={ (self.label) ": " (dots.len()) " values, all within " (span_text) " of their medians" } {
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
