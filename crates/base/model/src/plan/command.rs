//! The user's command in a plan.

use super::error::{PlanError, range};
use crate::MetricPattern;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The command of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Folders of the host in which what is written stays: guests share them read-write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// True if a native command works on the host's files themselves, so that its writes stay.
    #[serde(default, rename = "in-place", skip_serializing_if = "is_false")]
    pub in_place: bool,
    /// Continue after a failure of the command on the baseline, and count its failing runs.
    #[serde(default, rename = "ignore-failure", skip_serializing_if = "is_false")]
    pub ignore_failure: bool,
    /// Size of the scratch disk for a guest's writes, MiB; without one they stay in a tmpfs.
    #[serde(
        default,
        rename = "scratch-mib",
        skip_serializing_if = "Option::is_none"
    )]
    pub scratch_mib: Option<u32>,
    /// True if each guest runs the command once more after the rounds, to trace its requests to the scratch disk.
    #[serde(default, skip_serializing_if = "is_false")]
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

impl CommandSpec {
    /// A command without further settings.
    pub fn new(argv: Vec<String>, directory: PathBuf) -> CommandSpec {
        CommandSpec {
            argv,
            directory,
            setup: None,
            prepare: None,
            cleanup: None,
            write: Vec::new(),
            in_place: false,
            ignore_failure: false,
            scratch_mib: None,
            layers: false,
            net: None,
            forward: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// The arguments that run a shell command.
    pub fn shell(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).to_vec()
    }

    /// Shell commands that run before it, each with its option's name.
    pub fn before(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("setup", &self.setup), ("prepare", &self.prepare)]
            .into_iter()
            .filter_map(|(n, line)| Some((n, line.as_deref()?)))
    }

    /// The shell command that runs after it, with its option's name.
    pub fn after(&self) -> Option<(&'static str, &str)> {
        Some(("cleanup", self.cleanup.as_deref()?))
    }

    /// Checks that the command can run, whatever the plan around it.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let refused = |what: &str| Err(PlanError::Invalid(format!("command: {what}")));
        match self.argv.first() {
            None => return refused("argv is empty: give the program and its arguments"),
            Some(program) if program.is_empty() => {
                return refused("the program's name is empty: name one");
            }
            Some(_) if self.argv.iter().any(|w| w.contains('\0')) => {
                return refused("an argument contains a NUL byte: remove it");
            }
            Some(_) => {}
        }
        if self
            .before()
            .chain(self.after())
            .any(|(_, line)| line.contains('\0'))
        {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
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
