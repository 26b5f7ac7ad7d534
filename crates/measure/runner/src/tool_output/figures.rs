//! Figures as they are figures: bounded, finite, each with a name of its own.

use vmtax_model::{Better, Printed, Unit};

/// More than any tool prints in one run.
const MAX_FIGURES: usize = 200;
/// So that a table stays one, characters.
const MAX_NAME: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Printed>);

impl Figures {
    /// Adds one; of the same tool's second run it gets a number behind its name.
    pub fn add(&mut self, of: &str, name: &str, unit: Unit, better: Better, value: f64) {
        if self.0.len() == MAX_FIGURES || !value.is_finite() {
            return;
        }
        let (of, name) = (plain(of), plain(name));
        let of_name = |again: usize| {
            if again == 1 {
                name.clone()
            } else {
                format!("{name} ({again})")
            }
        };
        let again = (1..=MAX_FIGURES)
            .find(|n| !self.0.iter().any(|p| p.of == of && p.name == of_name(*n)))
            .unwrap_or(MAX_FIGURES);
        let name = of_name(again);
        self.0.push(Printed {
            of,
            name,
            unit,
            better: Some(better),
            value,
        });
    }

    pub fn rate(&mut self, of: &str, name: &str, per_second: f64) {
        self.add(of, name, Unit::PerSecond, Better::Higher, per_second);
    }

    pub fn time(&mut self, of: &str, name: &str, seconds: f64) {
        self.add(of, name, Unit::Seconds, Better::Lower, seconds);
    }

    pub fn bandwidth(&mut self, of: &str, name: &str, mib_per_second: f64) {
        self.add(
            of,
            name,
            Unit::MebibytesPerSecond,
            Better::Higher,
            mib_per_second,
        );
    }

    pub fn all(self) -> Vec<Printed> {
        self.0
    }
}

/// One line of a table.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_NAME)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// The number with which a text begins.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse().ok()
}
