//! The user's command: as a plan has it, its outcome, and the figures that it prints of itself, named by the tool that printed
//! them or by the person who asked for them.

use super::{PlanError, range};
use crate::{Better, Unit};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The command of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory: an absolute path, the same on every machine.
    pub directory: PathBuf,
    /// Shell command that runs once after boot, not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Shell command that runs before each measured run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Shell command that runs after each measured run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
    /// Runs that are not measured, before each measured run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup: u32,
    /// Folders of the host in which what is written stays: guests share them read-write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// True if a native command works on the host's files themselves, so that its writes stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Continue after a failure of the command on the baseline, and count its failing runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_failure: bool,
    /// Size of the scratch disk for a guest's writes, MiB; without one they stay in a tmpfs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_mib: Option<u32>,
    /// True if each guest runs the command once more after the rounds, to trace its requests to the scratch disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layers: bool,
    /// The guest's network besides its loopback interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<Net>,
    /// TCP ports of 127.0.0.1 that are forwarded to guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// Figures to extract from its output, besides those of known tools.
    #[serde(default, rename = "metric", skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricPattern>,
}

/// Warm-up runs before a measured run, at most.
const MAX_WARMUP: u32 = 1000;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl CommandSpec {
    /// A command without further settings.
    pub fn new(argv: Vec<String>, directory: PathBuf) -> CommandSpec {
        CommandSpec {
            argv,
            directory,
            ..CommandSpec::default()
        }
    }

    /// The arguments that run a shell command.
    pub fn shell(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).to_vec()
    }

    /// Checks that the command can run, whatever the plan around it.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let refused = |what: &str| Err(PlanError::Invalid(format!("command: {what}")));
        let Some(program) = self.argv.first() else {
            return refused("argv is empty: give the program and its arguments");
        };
        if program.is_empty() {
            return refused("the program's name is empty: name one");
        }
        if self.argv.iter().any(|word| word.contains('\0')) {
            return refused("an argument contains a NUL byte: remove it");
        }
        let lines = [&self.setup, &self.prepare, &self.cleanup];
        if lines.into_iter().flatten().any(|line| line.contains('\0')) {
            return refused("setup, prepare or cleanup contains a NUL byte: remove it");
        }
        if !self.directory.is_absolute() {
            return refused("directory is not absolute: give a path from the root");
        }
        if let Some(folder) = self.write.iter().find(|folder| !may_be_written(folder)) {
            return refused(&format!(
                "write: {} cannot be shared read-write: give the absolute path of a folder other than / and outside of \
                 what each guest has for itself ({})",
                folder.display(),
                OWN.join(", ")
            ));
        }
        if let Some(mib) = self.scratch_mib {
            range("command: scratch-mib", mib, 64, 16 * 1024 * 1024)?;
        }
        range("command: warmup", self.warmup, 0, MAX_WARMUP)?;
        if self.layers && self.scratch_mib.is_none() {
            return refused(
                "layers traces requests to the guest's scratch disk, and there is none: add scratch-mib",
            );
        }
        if self.net.is_none() && !self.forward.is_empty() {
            return refused("forward is given without a network: add net = \"user\"");
        }
        for (i, metric) in self.metrics.iter().enumerate() {
            metric.check()?;
            if self.metrics[..i].iter().any(|m| m.name == metric.name) {
                return refused(&format!(
                    "metric '{}' is given twice: give each a name of its own",
                    metric.name
                ));
            }
        }
        Ok(())
    }
}

/// Folders that each guest has for itself.
pub const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

fn may_be_written(folder: &Path) -> bool {
    let plain = folder
        .components()
        .skip(1)
        .all(|c| matches!(c, Component::Normal(_)));
    folder.is_absolute()
        && plain
        && folder.components().count() > 1
        && !OWN.iter().any(|own| folder.starts_with(own))
}

/// A network for guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// User-mode network (slirp): guests reach what the host reaches; nothing reaches a guest but by `forward`.
    User,
}

impl FromStr for Net {
    type Err = String;
    fn from_str(text: &str) -> Result<Net, String> {
        if text == "user" {
            Ok(Net::User)
        } else {
            Err("write user, the only kind of network".to_owned())
        }
    }
}

/// A TCP port of 127.0.0.1 that is forwarded to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Forward {
    /// Port of this host.
    pub host: u16,
    /// Port of the guest.
    pub guest: u16,
}

impl FromStr for Forward {
    type Err = String;
    fn from_str(text: &str) -> Result<Forward, String> {
        let ports = text
            .split_once(':')
            .and_then(|(host, guest)| Some((host.parse().ok()?, guest.parse().ok()?)));
        match ports {
            Some((host, guest)) if host > 0 && guest > 0 => Ok(Forward { host, guest }),
            _ => Err(format!(
                "'{}' is not HOST:GUEST, as in 8080:80",
                text.escape_default()
            )),
        }
    }
}

impl TryFrom<String> for Forward {
    type Error = String;
    fn try_from(text: String) -> Result<Forward, String> {
        text.parse()
    }
}

impl From<Forward> for String {
    fn from(ports: Forward) -> String {
        format!("{}:{}", ports.host, ports.guest)
    }
}

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
    /// Seconds that the command's threads were runnable without a CPU, natively, as far as they were seen; in a guest `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<f64>,
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
