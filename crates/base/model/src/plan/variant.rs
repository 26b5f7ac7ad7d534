//! A variant: a configuration of the guest.

use super::PlanError;
use super::guest::Guest;
use crate::{Machine, NetBackend, Setting, Share, WorkloadName, WorkloadSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A configuration of the guest. The first of a plan is the baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Unique in the plan: "aio=native". Empty for the only one.
    #[serde(default)]
    pub name: String,
    /// Properties of the measured disk's block device and of what is behind it, over the usual ones; `bus`, `format` and
    /// `image.OPTION` (as `qemu-img create -o` has them) of it; where a network card is measured, its properties, with `backend`
    /// for what is behind it; `share` and
    /// `share.OPTION` for the tree; [`Guest::has_setting`] for the guest as a whole; `host.SETTING` for the host; `machine` for
    /// the only one of the plan's machines on which it is built; `WORKLOAD.OPTION` for an option of a workload, in a comparison.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

impl Variant {
    /// Where the guest finds the measured disk, as its setting `bus`; the first without it. `ide` is the controller that
    /// the machine type has itself: of `pc` PIIX3, of `q35` ICH9 (AHCI).
    pub const BUSES: [&str; 5] = ["virtio-blk", "virtio-scsi", "sata", "ide", "nvme"];
    /// The image of the measured disk, as its setting `format`; the first without it.
    pub const FORMATS: [&str; 2] = ["raw", "qcow2"];
    /// Options of an image's creation that a variant may set, as `image.OPTION`: none that names another file
    /// (`data_file`, `backing_file`).
    pub const IMAGE_OPTIONS: [&str; 7] = [
        "cluster_size",
        "compat",
        "compression_type",
        "extended_l2",
        "lazy_refcounts",
        "refcount_bits",
        "size",
    ];
    /// Prefix of host settings.
    pub const OF_HOST: &str = "host.";

    /// Returns the method by which the guest gets the plan's tree; `None` if it does not get it.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] naming a method or an option that there is not.
    pub fn share(&self) -> Result<Option<Share>, PlanError> {
        Share::from_settings(&self.set)
    }

    /// The backend of the measured network card; `None` where that is left to the host.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] naming a backend that there is not.
    pub fn backend(&self) -> Result<Option<NetBackend>, PlanError> {
        self.get(NetBackend::KEY).map(str::parse).transpose()
    }

    /// The value of a setting.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.set.get(key).map(String::as_str)
    }

    /// The QEMU of this variant alone: a path, or the version or suite of a fetched one.
    pub fn qemu(&self) -> Option<&Path> {
        self.get("qemu").map(Path::new)
    }

    /// Settings of the host while such a guest runs, without their prefix.
    pub fn host(&self) -> BTreeMap<&str, &str> {
        self.set
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(Self::OF_HOST)?, value.as_str())))
            .collect()
    }

    /// The workload and the option that a setting is of; `None` for a setting of the guest or the host.
    pub fn workload_option(key: &str) -> Option<(WorkloadName, &str)> {
        let (workload, option) = key.split_once('.')?;
        Some((workload.parse().ok()?, option))
    }

    /// The workloads with the options that this variant sets.
    pub(super) fn workloads(&self, usual: &[WorkloadSpec]) -> Vec<WorkloadSpec> {
        let mut workloads = usual.to_vec();
        for (key, value) in &self.set {
            let Some((name, option)) = Variant::workload_option(key) else {
                continue;
            };
            for workload in workloads
                .iter_mut()
                .filter(|workload| workload.name == name)
            {
                workload.options.insert(option.to_owned(), value.clone());
            }
        }
        workloads
    }

    /// The settings of the measured disk or network card.
    pub fn disk(&self) -> BTreeMap<String, String> {
        self.set
            .iter()
            .filter(|(key, _)| Variant::is_of_disk(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// Returns true if a setting is of the measured disk or network card.
    pub fn is_of_disk(key: &str) -> bool {
        let is_other = key == "machine"
            || key.starts_with(Self::OF_HOST)
            || Variant::workload_option(key).is_some();
        !is_other && Setting::of(key).part.is_of_device()
    }

    /// The plan's guest as this variant has it.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for a size that is no number, or modules without a kernel.
    pub fn guest(&self, usual: &Guest) -> Result<Guest, PlanError> {
        usual.with(&self.set).map_err(|why| self.fault(&why))
    }

    /// Returns true if the variant is built on this machine.
    pub fn is_on(&self, machine: Machine) -> bool {
        self.get("machine")
            .is_none_or(|name| name == machine.as_str())
    }

    /// An error that names the variant.
    pub(super) fn fault(&self, what: &str) -> PlanError {
        PlanError::Invalid(format!("variant '{}': {what}", self.name.escape_default()))
    }
}
