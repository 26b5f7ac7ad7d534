//! Outcome of a command: its exit status, its times, and the figures that it prints of itself, named by the tool that
//! printed them or by the person who asked for them.

use crate::{Better, PlanError, Unit};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The status of a command whose time was over, as timeout(1) has it.
pub const TIMED_OUT: i32 = 124;
/// The status of a program that is there and cannot be run.
pub const NOT_EXECUTABLE: i32 = 126;
/// The status of a program that is not there.
pub const NOT_FOUND: i32 = 127;

/// Outcome of a command, and what only the machine itself knows of its run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// Exit status of the command; 128 + n where signal n ended it, 124 on timeout, 126 or 127 where it could not be
    /// started.
    pub status: i32,
    /// Processes that it left running: they were ended with it.
    #[serde(default)]
    pub left: u32,
    /// From its begin to its end by the controller's clock, seconds; natively `None`. What it cost the host's CPUs
    /// is of the same while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// Seconds that the guest's vCPUs were busy meanwhile, all work counted, by the guest's own account; natively
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_s: Option<f64>,
    /// Seconds that the guest knows were taken from its CPUs; 0 under a hypervisor that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_s: Option<f64>,
    /// Figures that the command printed, as far as its output is understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<Printed>,
}

/// One figure of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Printed {
    /// Source of the figure: the tool and its test; empty where a person named it.
    pub of: String,
    /// Name of the figure among those of one source.
    pub name: String,
    /// Unit of the number.
    pub unit: Unit,
    /// Direction that is better; `None` where neither the tool nor a person said it.
    pub better: Option<Better>,
    /// Value of the figure; it is finite.
    pub value: f64,
}

impl Printed {
    /// Returns true if both are values of one and the same figure.
    pub fn is_like(&self, other: &Printed) -> bool {
        (&self.of, &self.name, self.unit, self.better)
            == (&other.of, &other.name, other.unit, other.better)
    }
}

/// A figure that a person finds in a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricPattern {
    /// Name of the figure, 1 to 40 characters.
    pub name: String,
    /// A regular expression; its first group, or all of it where it has none, is the number.
    pub pattern: String,
    /// Direction that is better, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
}

impl FromStr for MetricPattern {
    type Err = String;

    /// `NAME=REGEX`, or `NAME:higher=REGEX` and `NAME:lower=REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pattern) = text
            .split_once('=')
            .ok_or("write NAME=REGEX, as in latency:lower=(\\S+) ms")?;
        let (name, better) = match name.rsplit_once(':') {
            Some((name, "higher")) => (name, Some(Better::Higher)),
            Some((name, "lower")) => (name, Some(Better::Lower)),
            Some((_, other)) => {
                return Err(format!(
                    "'{other}' is no direction: write NAME:higher or NAME:lower"
                ));
            }
            None => (name, None),
        };
        Ok(MetricPattern {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            better,
        })
    }
}

impl MetricPattern {
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let plain = |text: &str| {
            !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control)
        };
        if plain(&self.name) && plain(&self.pattern) && self.name.chars().count() <= 40 {
            return Ok(());
        }
        let name: String = self.name.escape_default().take(60).collect();
        Err(PlanError::Invalid(format!(
            "metric '{name}': give a name of 1 to 40 characters and an expression of 1 to 256, without control characters"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_a_direction_and_an_expression() {
        let read = |text: &str| text.parse::<MetricPattern>();
        let pattern_named = |name: &str, better| MetricPattern {
            name: name.into(),
            pattern: "a=(.*)".into(),
            better,
        };
        assert_eq!(read("x=a=(.*)"), Ok(pattern_named("x", None)));
        assert_eq!(
            read("x y:higher=a=(.*)"),
            Ok(pattern_named("x y", Some(Better::Higher)))
        );
        assert_eq!(
            read("x:lower=a=(.*)"),
            Ok(pattern_named("x", Some(Better::Lower)))
        );
        assert!(read("x").is_err() && read("x:best=1").unwrap_err().contains("best"));
        assert!(read("x=1").unwrap().check().is_ok());
        for bad in ["=1", "x=", "x\n=1"] {
            assert!(read(bad).unwrap().check().is_err(), "{bad:?}");
        }
    }
}
