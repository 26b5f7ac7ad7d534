//! A variant: one way to build a guest.

use super::error::PlanError;
use super::guest::Guest;
use crate::{Machine, Share};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One way to build a guest; each becomes a column beside the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Tells it from the others: "aio=native". Empty for the only one.
    #[serde(default)]
    pub name: String,
    /// Properties of the measured disk's block device and of what is behind it, over the usual ones; `share` and
    /// `share.OPTION` for the tree; [`Variant::OF_GUEST`] for the guest as a whole; `host.SETTING` for the host.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

impl Variant {
    /// What a variant may have of its own of the guest as a whole: a QEMU (a path, or the version or suite of a fetched
    /// one), a kernel with its modules, words for the kernel's and QEMU's command lines, sizes, and on which of the plan's
    /// machines alone it is built.
    pub const OF_GUEST: [&str; 8] = ["qemu", "kernel", "modules", "append", "options", "cpus", "memory-mib", "machine"];
    /// What begins the settings of the host.
    pub const OF_HOST: &str = "host.";

    /// How the guest is given the plan's tree; `None` for not at all.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] naming a method or an option that there is not.
    pub fn share(&self) -> Result<Option<Share>, PlanError> {
        Share::of(&self.set)
    }

    /// What is set of this.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.set.get(key).map(String::as_str)
    }

    /// The QEMU of this variant alone: a path, or the version or suite of a fetched one.
    pub fn qemu(&self) -> Option<&Path> {
        self.get("qemu").map(Path::new)
    }

    /// Words for QEMU's command line, between blanks.
    pub fn options(&self) -> Vec<String> {
        self.get("options").into_iter().flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    /// Settings of the host while such a guest runs, without their prefix.
    pub fn host(&self) -> BTreeMap<&str, &str> {
        self.set.iter().filter_map(|(key, value)| Some((key.strip_prefix(Self::OF_HOST)?, value.as_str()))).collect()
    }

    /// The settings of the measured disk.
    pub fn disk(&self) -> BTreeMap<String, String> {
        let other = |key: &str| {
            Self::OF_GUEST.contains(&key)
                || key == "share"
                || key.starts_with("share.")
                || key.starts_with(Self::OF_HOST)
        };
        self.set.iter().filter(|(key, _)| !other(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// The plan's guest as this variant has it.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for a size that is no number, or modules without a kernel.
    pub fn guest(&self, usual: &Guest) -> Result<Guest, PlanError> {
        let mut guest = usual.clone();
        for (key, size) in [("cpus", &mut guest.cpus), ("memory-mib", &mut guest.memory_mib)] {
            if let Some(text) = self.get(key) {
                *size = text.parse().map_err(|_| self.fault(&format!("{key} is '{text}': give a number")))?;
            }
        }
        if let Some(kernel) = self.get("kernel") {
            guest.kernel = Some(PathBuf::from(kernel));
            guest.modules = self.get("modules").map(PathBuf::from);
        } else if self.get("modules").is_some() {
            return Err(self.fault("modules is given without kernel: give both"));
        }
        if let Some(qemu) = self.qemu() {
            guest.qemu = Some(qemu.to_path_buf());
        }
        Ok(guest)
    }

    /// Whether it is built on this machine.
    pub fn is_on(&self, machine: Machine) -> bool {
        self.get("machine").is_none_or(|name| name == machine.as_str())
    }

    /// What is wrong with it.
    pub(super) fn fault(&self, what: &str) -> PlanError {
        PlanError::Invalid(format!("variant '{}': {what}", self.name.escape_default()))
    }
}
