//! A command of the user's, as a plan has it: what is run, and what it has on each machine.

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
    pub words: Vec<String>,
    /// Where it is run: an absolute path, the same on every machine.
    pub directory: PathBuf,
    /// A shell's line that is run once on a machine that has come up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// A shell's line that is run before each run that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// A shell's line that is run behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
    /// Folders of the host's that guests may write to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// MiB of the disk on which a guest keeps what is written; in its memory where there is none.
    #[serde(default, rename = "scratch-mib", skip_serializing_if = "Option::is_none")]
    pub scratch_mib: Option<u32>,
    /// Whether each guest runs it once more, behind the rounds, to follow its requests to that disk.
    #[serde(default, skip_serializing_if = "is_false")]
    pub layers: bool,
    /// The network that guests have besides their own loopback address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<Net>,
    /// Ports of this host's loopback address that lead to a guest's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// Figures to be found in what it prints, beside those of known tools.
    #[serde(default, rename = "metric", skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricPattern>,
}

impl CommandSpec {
    /// These words, run there.
    pub fn new(words: Vec<String>, directory: PathBuf) -> CommandSpec {
        CommandSpec {
            words,
            directory,
            setup: None,
            prepare: None,
            cleanup: None,
            write: Vec::new(),
            scratch_mib: None,
            layers: false,
            net: None,
            forward: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// The words that have a shell run a line.
    pub fn shell(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).to_vec()
    }

    /// What is run before it, by the option's name.
    pub fn before(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("setup", &self.setup), ("prepare", &self.prepare)]
            .into_iter()
            .filter_map(|(n, line)| Some((n, line.as_deref()?)))
    }

    /// What is run behind it.
    pub fn after(&self) -> Option<(&'static str, &str)> {
        Some(("cleanup", self.cleanup.as_deref()?))
    }

    /// Whether it can be run as written, whatever the plan around it.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let refused = |what: &str| Err(PlanError::Invalid(format!("command: {what}")));
        match self.words.first() {
            None => return refused("words is empty: give the program and its arguments"),
            Some(program) if program.is_empty() => return refused("the program's name is empty: name one"),
            Some(_) if self.words.iter().any(|w| w.contains('\0')) => {
                return refused("a word holds a NUL: no program can get it");
            }
            Some(_) => {}
        }
        if self.before().chain(self.after()).any(|(_, line)| line.contains('\0')) {
            return refused("setup, prepare or cleanup holds a NUL: no shell can get it");
        }
        if !self.directory.is_absolute() {
            return refused("directory is not absolute: give a path from the root");
        }
        if let Some(folder) = self.write.iter().find(|folder| !may_be_written(folder)) {
            return refused(&format!(
                "write: {} is not to be written to by guests: give the whole path of a folder that is neither / nor one \
                 of which a guest has its own ({})",
                folder.display(),
                OWN.join(", ")
            ));
        }
        if let Some(mib) = self.scratch_mib {
            range("command: scratch-mib", mib, 64, 16 * 1024 * 1024)?;
        }
        if self.layers && self.scratch_mib.is_none() {
            return refused("layers follows requests to the guest's scratch disk, and there is none: add scratch-mib");
        }
        if self.net.is_none() && !self.forward.is_empty() {
            return refused("forward is given without a network: add net = \"user\"");
        }
        for (i, metric) in self.metrics.iter().enumerate() {
            metric.check()?;
            if self.metrics[..i].iter().any(|m| m.name == metric.name) {
                return refused(&format!("metric '{}' is given twice: give each a name of its own", metric.name));
            }
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Below these a guest has its own, whatever the host has.
pub const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

fn may_be_written(folder: &Path) -> bool {
    let plain = folder.components().skip(1).all(|c| matches!(c, Component::Normal(_)));
    folder.is_absolute() && plain && folder.components().count() > 1 && !OWN.iter().any(|own| folder.starts_with(own))
}

/// A network for guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// QEMU's own: the guest reaches what the host reaches, by QEMU's process, and nobody the guest.
    User,
}

impl FromStr for Net {
    type Err = String;
    fn from_str(text: &str) -> Result<Net, String> {
        if text == "user" { Ok(Net::User) } else { Err("there is one kind: user".to_owned()) }
    }
}

/// A TCP port of this host's that leads to a guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Forward {
    /// This host's.
    pub host: u16,
    /// The guest's.
    pub guest: u16,
}

impl FromStr for Forward {
    type Err = String;
    fn from_str(text: &str) -> Result<Forward, String> {
        let ports = text.split_once(':').and_then(|(host, guest)| Some((host.parse().ok()?, guest.parse().ok()?)));
        match ports {
            Some((host, guest)) if host > 0 && guest > 0 => Ok(Forward { host, guest }),
            _ => Err(format!("'{}' is no pair of ports: write HOST:GUEST, as in 8080:80", text.escape_default())),
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
