//! Why a running VM is slow: what every observer that the rights allow found of it.

use crate::{Advice, Missing, ProfileFindings, VmFacts, VmLayers, VmRates};
use serde::{Deserialize, Serialize};

/// The findings of `diagnose`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmDiagnosis {
    /// VM that was diagnosed.
    pub vm: VmFacts,
    /// When its process started, clock ticks after the host's boot; 0 in older findings.
    #[serde(default)]
    pub started: u64,
    /// Known problems of the VM, the one that takes most time first; none where nothing was found.
    pub causes: Vec<Advice>,
    /// Settings worth checking, whose cost was not measured: no causes.
    #[serde(default)]
    pub settings: Vec<Advice>,
    /// Rates by the VM's counters in the first part of the time, in which nothing else observed it.
    pub rates: VmRates,
    /// Threads, functions and VM exits after that; null where the VM did not run, or could not be profiled.
    pub profile: Option<ProfileFindings>,
    /// Requests after that; null where there were few, or they could not be traced.
    pub layers: Option<VmLayers>,
    /// True if the VM ended while it was observed.
    #[serde(default)]
    pub ended: bool,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}
