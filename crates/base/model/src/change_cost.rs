//! Cost of a change of a VM or its host.

use serde::{Deserialize, Serialize};

/// Cost of applying a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeCost {
    /// Nothing: the VM keeps running.
    #[strum(serialize = "live")]
    Live,
    /// A device is unplugged and plugged again.
    #[strum(serialize = "re-plug")]
    Replug,
    /// The guest reboots.
    #[strum(serialize = "guest reboot")]
    GuestReboot,
    /// QEMU is started again.
    #[strum(serialize = "VM restart")]
    VmRestart,
    /// A setting of the host changes, for all its VMs.
    #[strum(serialize = "affects the whole host")]
    HostSetting,
    /// The host reboots.
    #[strum(serialize = "host reboot")]
    HostReboot,
    /// Another measurement; nothing else changes.
    #[strum(serialize = "measurement")]
    Measurement,
}
