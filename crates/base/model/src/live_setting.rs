//! Settings of a running VM and its host that can be changed while the VM runs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A setting that can be read, changed, read back and undone while the VM runs. Its values are texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum LiveSetting {
    /// A file of the host's kernel, or of a control group. Of several values in a line the one in brackets is in effect.
    HostFile {
        /// Path of the file on the host.
        path: PathBuf,
    },
    /// A file below /sys of the guest's kernel, by the agent in the guest. Of several values in a line the one in brackets is in
    /// effect.
    GuestFile {
        /// Path of the file in the guest, below /sys.
        path: String,
        /// The disk, by its device as QEMU names it, that is flushed after it is set: of a disk's write cache.
        flushed: Option<String>,
    },
    /// The CPUs on which a thread may run, as a list: `0-3,8`.
    Affinity {
        /// TID of the thread on the host.
        tid: i32,
    },
    /// The I/O limits of a disk that are no object of their own: the arguments of `block_set_io_throttle` as a JSON object.
    /// `{}` is none.
    DiskLimits {
        /// The disk's device, as QEMU names it.
        device: String,
    },
    /// A property of one of QEMU's objects, as JSON.
    QomProperty {
        /// QOM path of the object.
        path: String,
        /// Name of the property.
        property: String,
    },
    /// `l2-cache-size` of the qcow2 image behind a disk, bytes. QEMU does not tell it.
    Qcow2Cache {
        /// The disk's device, as QEMU names it.
        device: String,
        /// The size with which QEMU started, bytes.
        started_with: u64,
    },
}

impl LiveSetting {
    /// As people write it.
    pub fn label(&self) -> String {
        match self {
            LiveSetting::HostFile { path } => path.display().to_string(),
            LiveSetting::GuestFile { path, .. } => format!("{path} in the guest"),
            LiveSetting::Affinity { tid } => format!("CPU affinity of TID {tid}"),
            LiveSetting::DiskLimits { device } => format!("I/O limits of {device}"),
            LiveSetting::QomProperty { path, property } => format!("{property} of {path}"),
            LiveSetting::Qcow2Cache { device, .. } => format!("l2-cache-size of {device}"),
        }
    }

    /// Returns true if the setting is of the VM's process, and is gone when that has ended.
    pub fn is_of_process(&self) -> bool {
        !matches!(self, LiveSetting::HostFile { .. })
    }
}

/// A setting with the value that it gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingValue {
    /// Setting that is changed.
    pub setting: LiveSetting,
    /// Value that the setting gets, as text.
    pub value: String,
}

/// A change of a running VM that `vmtax tune` can make, measure and undo: settings that change together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveChange {
    /// Description of the change for people: an imperative phrase without a full stop.
    pub action: String,
    /// Cost of the change, which says if the VM alone changes ([`ChangeCost::Live`]) or its host, too.
    pub cost: ChangeCost,
    /// Figure that shows if the change helps; null where none of the VM's own figures does, and only the user's
    /// command can.
    pub metric: Option<LiveMetric>,
    /// The disk whose requests show it, as [`crate::DiskSettings::name`]; null for all, and where it is no figure of disks.
    pub disk: Option<String>,
    /// Settings that change together, with their values.
    pub settings: Vec<SettingValue>,
}

/// A figure of a running VM that shows whether a change helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum LiveMetric {
    /// Mean latency of the disks' requests in QEMU and below: BLKAVG.
    Latency,
    /// Mean time of the disks' writes in QEMU and below with the flushes that follow them.
    WriteLatency,
    /// Requests of the disks per second.
    Requests,
    /// Bytes that the disks read and write per second.
    Throughput,
    /// Part of the time that the vCPUs were on a CPU: %RUN.
    Run,
    /// VM exits per second.
    Exits,
}

impl LiveMetric {
    /// The one of that name.
    pub fn named(name: &str) -> Option<LiveMetric> {
        LiveMetric::ALL
            .iter()
            .copied()
            .find(|metric| metric.to_string() == name)
    }

    /// All metrics, in the order of their declaration.
    pub const ALL: &[LiveMetric] = <LiveMetric as strum::VariantArray>::VARIANTS;

    /// Returns the metric's name in reports.
    pub fn label(self) -> &'static str {
        match self {
            LiveMetric::Latency => "latency of disk requests (BLKAVG)",
            LiveMetric::WriteLatency => "time per write, with its flushes",
            LiveMetric::Requests => "disk requests",
            LiveMetric::Throughput => "disk throughput",
            LiveMetric::Run => "CPU time of the vCPUs (%RUN)",
            LiveMetric::Exits => "VM exits",
        }
    }

    /// Returns the unit, as `BeforeAfter::unit` of the findings has it.
    pub fn unit(self) -> &'static str {
        match self {
            LiveMetric::Latency | LiveMetric::WriteLatency => "ns",
            LiveMetric::Requests | LiveMetric::Exits => "per second",
            LiveMetric::Throughput => "bytes per second",
            LiveMetric::Run => "fraction",
        }
    }

    /// Returns true if more of the metric is better.
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            LiveMetric::Requests | LiveMetric::Throughput | LiveMetric::Run
        )
    }
}

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

/// Returns the value in a line of a kernel's file: the one in brackets of `always [madvise] never`, else the whole line.
pub fn in_effect(line: &str) -> &str {
    let chosen = line
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(chosen, _)| chosen);
    chosen.unwrap_or(line).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_several_values_the_one_in_brackets_is_in_effect() {
        assert_eq!(in_effect("always [madvise] never\n"), "madvise");
        assert_eq!(in_effect("always madvise"), "always madvise");
        assert_eq!(in_effect("[always"), "[always");
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in "[a-z\\[\\] \n]{0,40}|\\PC{0,40}") {
            let _ = in_effect(&line);
        }
    }
}
