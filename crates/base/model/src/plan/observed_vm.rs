//! A running VM that a plan observes.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A VM that runs already, observed for a time. It is the plan's `[vm]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ObservedVm {
    /// PID of the VM's process on the host.
    pub pid: i32,
    /// When its process started, clock ticks after the host's boot: a PID is used again. `None` in plans of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// The VM's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For how long, ms.
    pub time_ms: u64,
    /// The path of vmtax in the guest, which traces there too; `None` to observe from the host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_vmtax: Option<String>,
    /// Whose requests are traced, of the study that traces any.
    #[serde(default, skip_serializing_if = "DeviceClass::is_disk")]
    pub device: DeviceClass,
}

/// The process that is a plan's VM, or that it profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmIdentity {
    /// PID of the process on the host.
    pub pid: i32,
    /// When it started, clock ticks after the host's boot; `None` where the plan does not say.
    pub started: Option<u64>,
    /// The VM's name; of another process the name of its program.
    pub name: Option<String>,
    /// True where the plan is of a VM, false where it may be of any process.
    pub is_vm: bool,
}

/// A class of a guest's devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceClass {
    /// Disks: block requests.
    #[default]
    Disk,
    /// Network cards: packets.
    Net,
}

impl DeviceClass {
    fn is_disk(&self) -> bool {
        *self == DeviceClass::Disk
    }
}

impl ObservedVm {
    /// For how long.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }
}
