//! Settings of a running VM that decide how fast it is, and of the kernel in it, which are the guest's word.

use crate::{VmConfiguration, parse_size};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Known settings of a VM. They change seldom: they are read when vmtax attaches, and every half minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSettings {
    /// QEMU's version, major and minor; null without a monitor.
    pub qemu: Option<(u32, u32)>,
    /// The QMP socket that its command line names first, for commands to copy; null without one, and of a VM of libvirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qmp_socket: Option<PathBuf>,
    /// The disks that its monitor names.
    pub disks: Vec<DiskSettings>,
    /// The trees of files that it shares with its host, by its command line.
    pub shares: Vec<ShareDevice>,
    /// CPU quotas of its control groups.
    #[serde(default)]
    pub quotas: Vec<CpuQuota>,
    /// CPU weights of its control groups that are below the kernel's default.
    #[serde(default)]
    pub low_weights: Vec<CpuWeight>,
    /// The memory limit of its control group; null where that has none.
    pub memory_limit: Option<MemoryLimit>,
    /// Iothreads of the VM, as its monitor names them.
    #[serde(default)]
    pub iothreads: Vec<IothreadSettings>,
    /// Threads of the VM that may not run on all CPUs of the host.
    #[serde(default)]
    pub pinned: Vec<PinnedThread>,
    /// The host's CPUs that are online, as a list: `0-3`.
    #[serde(default)]
    pub host_cpus: String,
    /// The host's cores, with those that other VMs have; empty where several VMs are sampled together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_cores: Vec<HostCore>,
    /// The queues of the host's block devices beneath its disks.
    #[serde(default)]
    pub host_queues: Vec<HostQueue>,
    /// Settings of the guest's own kernel, which a diagnosis reads; null without an agent in it that reads files.
    pub guest: Option<GuestSettings>,
    /// The configuration with which QEMU was started, by its command line, which a diagnosis reads; null where that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<VmConfiguration>,
}

impl VmSettings {
    /// Returns the settings of a disk in the guest's kernel, by QEMU's name of the disk.
    pub fn in_guest(&self, disk: &str) -> Option<&GuestDiskSettings> {
        self.guest
            .as_ref()?
            .disks
            .iter()
            .find(|known| known.disk == disk)
    }
}

/// A memory limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The file: `memory.high`.
    pub file: PathBuf,
    /// The limit, bytes.
    pub bytes: u64,
    /// True if the group has processes that are not the VM's.
    pub is_shared: bool,
}

/// A CPU quota of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// File of the quota: `cpu.max`, of version 1 `cpu.cfs_quota_us`.
    pub file: PathBuf,
    /// The quota in effect, as the file has it.
    #[serde(default)]
    pub quota: String,
    /// Value of the file that removes the quota.
    pub unlimited: String,
    /// True if the group has processes that are not the VM's.
    #[serde(default)]
    pub is_shared: bool,
}

/// The part of a CPU that a control group gets where others want it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuWeight {
    /// File of the weight: `cpu.weight`, of version 1 `cpu.shares`.
    pub file: PathBuf,
    /// Weight in effect.
    pub weight: u64,
    /// The kernel's default: 100, of version 1 1024.
    pub default: u64,
    /// True if the group has processes that are not the VM's.
    #[serde(default)]
    pub is_shared: bool,
}

/// The queue in which requests for a block device of the host wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostQueue {
    /// Name of the device: `sda`.
    pub device: String,
    /// The I/O scheduler in use.
    pub scheduler: String,
    /// True if the kernel takes the device for one that rotates; null where it does not say.
    #[serde(default)]
    pub rotational: Option<bool>,
}

impl HostQueue {
    /// The file that sets the scheduler.
    pub fn scheduler_file(&self) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/queue/scheduler", self.device))
    }
}

/// Settings of an iothread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IothreadSettings {
    /// Name of the iothread.
    pub name: String,
    /// Longest time that the iothread polls before it sleeps, ns; 0: it does not.
    pub poll_max_ns: u64,
}

/// A thread that may not run on all CPUs of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedThread {
    /// TID of the thread.
    pub tid: i32,
    /// The CPUs on which it may run, as a list: `0-3,8`.
    pub cpus: String,
}

/// A core of the host, and what it shares with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCore {
    /// CPUs of the core (SMT siblings) on which the VM may run, as a list: `2,10`.
    pub cpus: String,
    /// NUMA node of the core; 0 where the kernel has none.
    pub node: u32,
    /// First of the CPUs that share the core's last-level cache; 0 where the kernel does not say.
    pub cache: u32,
    /// True if vCPUs of another VM are pinned to CPUs of the core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_taken: bool,
}

/// Settings of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Name of the disk, as [`crate::DiskCounters::name`].
    pub name: String,
    /// Device of the disk among QEMU's objects; empty where the disk has none.
    pub device: String,
    /// The type of its device: `virtio-blk-device`, `scsi-hd`, `ide-hd`, `nvme-ns`; empty where that is unknown.
    #[serde(default)]
    pub driver: String,
    /// The file or device behind it.
    pub file: PathBuf,
    /// Size of the disk that the guest sees, bytes; null if unknown.
    pub size: Option<u64>,
    /// The iothread that serves it; null for the main loop.
    pub iothread: Option<String>,
    /// True if QEMU flushes each write before it completes (`cache=writethrough`, `directsync`).
    pub write_through: Option<bool>,
    /// I/O limits of the disk; null where it has none.
    pub limits: Option<IoLimits>,
    /// Of a qcow2 image.
    pub qcow2: Option<Qcow2Settings>,
}

/// Limits of a throttle group; 0 is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoLimits {
    /// The group, which disks may share.
    pub group: String,
    /// True if the group is an object of its own (`-object throttle-group`), no setting of the disk.
    pub is_object: bool,
    /// Requests per second: all, reads, writes.
    pub requests_per_s: [u64; 3],
    /// Bytes per second: all, reads, writes.
    pub bytes_per_s: [u64; 3],
    /// Requests per second in a burst (`iops_max`): all, reads, writes.
    #[serde(default)]
    pub burst_requests_per_s: [u64; 3],
    /// Bytes per second in a burst (`bps_max`): all, reads, writes.
    #[serde(default)]
    pub burst_bytes_per_s: [u64; 3],
    /// Longest duration of a burst of requests, s (`iops_max_length`): all, reads, writes.
    #[serde(default)]
    pub burst_requests_s: [u64; 3],
    /// Longest duration of a burst of bytes, s (`bps_max_length`): all, reads, writes.
    #[serde(default)]
    pub burst_bytes_s: [u64; 3],
    /// A request of more bytes counts as several (`iops_size`).
    #[serde(default)]
    pub request_size: u64,
}

/// Figures that determine which part of a qcow2 image the cache of its L2 tables covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qcow2Settings {
    /// The guest's disk, bytes.
    pub virtual_size: u64,
    /// A cluster, bytes.
    pub cluster_size: u64,
    /// A cluster's entry in an L2 table: 8 bytes, 16 with subclusters.
    pub entry_size: u64,
    /// `l2-cache-size`, bytes; null where the command line does not name the image.
    pub l2_cache: Option<u64>,
}

impl Qcow2Settings {
    /// An image of this size, bytes, that `qemu-img create` makes with these values of its options, by their names;
    /// without a cache.
    pub fn made<'a>(virtual_size: u64, option: impl Fn(&str) -> Option<&'a str>) -> Qcow2Settings {
        // Without the option 64 KiB; no image has less than 512 bytes.
        let cluster_size = option("cluster_size")
            .and_then(parse_size)
            .unwrap_or(64 << 10)
            .max(512);
        let entry_size = if option("extended_l2") == Some("on") {
            16
        } else {
            8
        };
        Qcow2Settings {
            virtual_size,
            cluster_size,
            entry_size,
            l2_cache: None,
        }
    }

    /// The cache that covers the whole image, bytes.
    pub fn full_cache(&self) -> u64 {
        let entries = self.virtual_size.div_ceil(self.cluster_size.max(1));
        entries.saturating_mul(self.entry_size)
    }

    /// The part of the image that the cache covers, 0 to 1; `None` where its size is not known.
    pub fn covered(&self) -> Option<f64> {
        Some((self.l2_cache? as f64 / self.full_cache().max(1) as f64).min(1.0))
    }
}

/// A device that shares a tree of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareDevice {
    /// The tag that the guest mounts.
    pub tag: String,
    /// Who serves the files.
    pub server: ShareServer,
}

/// Who serves the files of a shared tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareServer {
    /// QEMU itself: virtio-9p.
    Qemu,
    /// A daemon at this socket: vhost-user-fs.
    Daemon(PathBuf),
}

/// The clock source in use; `available_clocksource` beside it has those that can be.
pub const CLOCK_SOURCE_FILE: &str =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Settings known of a guest's kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSettings {
    /// The clock source in use.
    pub clock_source: String,
    /// Those that it can use.
    pub clock_sources: Vec<String>,
    /// The governor of idle states; null where it has none.
    pub cpuidle_governor: Option<String>,
    /// The kernel's command line; null where the agent may not read it.
    pub command_line: Option<String>,
    /// Disks of the guest for which the disk of QEMU is known.
    pub disks: Vec<GuestDiskSettings>,
}

/// Settings of a disk in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDiskSettings {
    /// Name of QEMU's disk, as in [`crate::DiskSettings::name`].
    pub disk: String,
    /// The guest's name of it: `vda`.
    pub name: String,
    /// `write back`, `write through`; null where the guest's driver has no such file.
    pub cache_type: Option<String>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Read-ahead of the guest, KiB.
    pub read_ahead_kb: Option<u64>,
    /// True if the guest's kernel takes the disk for one that rotates.
    #[serde(default)]
    pub rotational: Option<bool>,
}

impl GuestDiskSettings {
    /// A file of this disk's folder in /sys/block: `queue/scheduler`.
    pub fn file(&self, file: &str) -> String {
        format!("/sys/block/{}/{file}", self.name)
    }
}

/// Clock sources that need no VM exit, by the kernel's names.
pub const FAST_CLOCK_SOURCES: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];

/// Returns true if the name is a valid disk name of a guest: it becomes a part of a path.
pub fn is_disk_name(name: &str) -> bool {
    !name.is_empty() && name.len() < 32 && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_covers_eight_bytes_a_cluster() {
        let qcow2_with = |l2_cache| Qcow2Settings {
            virtual_size: 8 << 30,
            cluster_size: 64 << 10,
            entry_size: 8,
            l2_cache,
        };
        assert_eq!(qcow2_with(None).full_cache(), 1 << 20);
        assert_eq!(
            (
                qcow2_with(Some(256 << 10)).covered(),
                qcow2_with(Some(32 << 20)).covered(),
                qcow2_with(None).covered()
            ),
            (Some(0.25), Some(1.0), None)
        );
        assert_eq!(
            Qcow2Settings {
                virtual_size: u64::MAX,
                cluster_size: 0,
                entry_size: 16,
                l2_cache: Some(0)
            }
            .covered(),
            Some(0.0)
        );
    }
}
