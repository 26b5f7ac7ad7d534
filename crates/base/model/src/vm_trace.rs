//! Traces of a running VM, of its host and of the kernel in it; traces of a VM that other tools recorded.

use crate::{GuestDisk, HostDisk, Missing, QemuThread, VmDisk, VmFacts, VmNic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A disk of a running VM, with what joins its requests to the host's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDisk {
    /// The path of its device among QEMU's objects, as `/machine/peripheral/disk0/virtio-backend`; empty where it is not known.
    pub device: String,
    /// The path of the virtio-scsi controller that has it, as `/machine/peripheral/scsi0/virtio-backend`; empty for a disk
    /// of another bus, or where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller: String,
    /// Disk of the guest.
    pub disk: VmDisk,
    /// File of the disk on the host; empty where the image's format puts the guest's bytes elsewhere in the file.
    pub host: HostDisk,
    /// The ports or addresses by which the guest kicks its virtqueues: first and length.
    pub notify: Vec<(u64, u64)>,
}

/// The bus of a disk, as far as what its requests pass in QEMU depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskBus {
    /// Paravirtual block device, virtio-blk.
    VirtioBlk,
    /// Disk of a virtio-scsi controller.
    VirtioScsi,
    /// One without virtqueues: SATA, IDE, NVMe, other SCSI controllers, USB.
    Other,
}

impl DiskBus {
    /// All of them.
    pub const ALL: [DiskBus; 3] = [DiskBus::VirtioBlk, DiskBus::VirtioScsi, DiskBus::Other];
}

impl TracedDisk {
    /// Behind the path of a virtio device among QEMU's objects: the part of it that is the device itself.
    pub const VIRTIO_BACKEND: &str = "/virtio-backend";

    /// Returns a disk of which its file alone is known.
    pub fn of_file(disk: VmDisk) -> TracedDisk {
        TracedDisk {
            device: String::new(),
            controller: String::new(),
            disk,
            host: HostDisk::default(),
            notify: Vec::new(),
        }
    }

    /// The bus it is on; `None` where its device is not known.
    pub fn bus(&self) -> Option<DiskBus> {
        match &self.device {
            device if device.is_empty() => None,
            device if device.ends_with(Self::VIRTIO_BACKEND) => Some(DiskBus::VirtioBlk),
            _ if self.controller.is_empty() => Some(DiskBus::Other),
            _ => Some(DiskBus::VirtioScsi),
        }
    }
}

/// A network card of a running VM, with what joins its packets to the host's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedNic {
    /// The tap behind it.
    pub nic: VmNic,
    /// The ports or addresses by which the guest kicks its virtqueues: first and length.
    pub notify: Vec<(u64, u64)>,
    /// The VMM's descriptors of the tap, one for each queue; empty in recordings that do not have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<i32>,
}

/// The clock of traces that other tools recorded, in place of a kernel's: [`VmTrace::tsc_mhz`] ticks in a microsecond.
pub const IMPORTED_CLOCK: &str = "imported";

/// `vm-trace.json`: the metadata needed to read the trace of a running VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmTrace {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Ticks of the host's time stamp counter per microsecond.
    pub tsc_mhz: f64,
    /// When tracing began, ticks.
    pub begin: u64,
    /// When it ended, ticks.
    pub end: u64,
    /// The VM when tracing began.
    pub vm: VmFacts,
    /// Threads of the VM, those that began meanwhile among them.
    pub threads: Vec<QemuThread>,
    /// Traced disks of the VM.
    pub disks: Vec<TracedDisk>,
    /// Network cards of the VM, where their packets are traced and not the disks' requests.
    #[serde(default)]
    pub nics: Vec<TracedNic>,
    /// True if the VM ended before the timeout.
    pub ended: bool,
    /// True if the trace reached the maximum number of bytes that are kept.
    pub full: bool,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
    /// True if other tools recorded the trace: data that is missing is missing for good.
    #[serde(default)]
    pub imported: bool,
    /// The trace of the guest's kernel beside it that another tool recorded; null where there is none.
    pub guest: Option<GuestTrace>,
    /// Host ticks minus guest ticks, as KVM keeps the offset; null where it does not tell.
    pub kvm_offset: Option<i64>,
}

/// `guest-facts.json`, and the last message in a file of `vmtax agent observe`: the metadata needed to read the trace of a
/// guest's kernel that is joined to the trace of its VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedGuest {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// The release of its kernel.
    pub kernel: String,
    /// Number of the guest's online CPUs.
    pub cpus: u32,
    /// When tracing began, guest ticks.
    pub begin: u64,
    /// When it ended, guest ticks.
    pub end: u64,
    /// The disks on virtio-blk and virtio-scsi.
    pub disks: Vec<ObservedDisk>,
    /// True if the trace reached the maximum number of bytes that are kept.
    pub full: bool,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}

/// A disk on virtio-blk or virtio-scsi as its guest has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedDisk {
    /// As the guest's kernel calls it, as `vda`.
    pub name: String,
    /// The serial number that QEMU gives it; empty where there is none.
    pub serial: String,
    /// PCI address, as `0000:00:04.0`; empty for a device that is not on PCI.
    pub address: String,
    /// The guest-physical memory and I/O ports of its PCI device: first and length. Its doorbells are among them.
    pub regions: Vec<(u64, u64)>,
    /// Device number and interrupts by which the guest's events name the disk.
    pub disk: GuestDisk,
}

impl ObservedGuest {
    /// More disks are not followed.
    pub const MAX_DISKS: usize = 64;
    /// No name or text in it is longer, bytes.
    const MAX_TEXT: usize = 1024;

    /// Checks facts that came from a guest, which is not trusted.
    ///
    /// # Errors
    /// A sentence without a subject that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let disks = self.disks.iter();
        let texts = disks.flat_map(|disk| [&disk.name, &disk.serial, &disk.address]);
        let missing = self.missing.iter();
        let missing = missing.flat_map(|missing| [&missing.what, &missing.why, &missing.fix]);
        if self.schema > crate::SCHEMA {
            return Err(format!("has schema {}, from a newer vmtax", self.schema));
        }
        if self.begin > self.end {
            return Err(format!(
                "ends at tick {} before it begins at {}",
                self.end, self.begin
            ));
        }
        if self.disks.len() > Self::MAX_DISKS || self.missing.len() > Self::MAX_DISKS {
            return Err(format!(
                "lists {} disks and {} missing events",
                self.disks.len(),
                self.missing.len()
            ));
        }
        let mut texts = texts.chain(missing).chain([&self.kernel]);
        match texts.find(|text| text.len() > Self::MAX_TEXT) {
            Some(long) => Err(format!("has a text of {} bytes", long.len())),
            None => Ok(()),
        }
    }
}

/// The trace of a guest's kernel, and how its clock is joined to the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTrace {
    /// The disks in its block events.
    pub disks: Vec<GuestDisk>,
    /// True if nothing says that it is a guest's: it may be of any machine.
    #[serde(default)]
    pub is_unknown_kernel: bool,
    /// True if the trace's ticks are the host's already; else cause and effect among the requests determine the
    /// offset.
    pub is_on_host_clock: bool,
    /// By how much these may be wrong, ticks.
    pub bound: u64,
    /// Description of how the clocks were joined, for people.
    pub source: String,
}

/// Traces of one VM that other tools recorded. It is the plan's `[import]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportedFiles {
    /// Paths of the traces, 1 to 64.
    pub files: Vec<PathBuf>,
}

/// `import.json`: what was imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Files that were imported.
    pub files: Vec<ImportedFile>,
    /// Methods by which the files' clocks were joined; empty for one file.
    pub clocks: Vec<JoinedClock>,
    /// Data that the files do not hold.
    pub missing: Vec<Missing>,
}

/// A file that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedFile {
    /// As it was named.
    pub file: String,
    /// `trace.dat`, `perf.data`, `ftrace text`, `QEMU log`, `QEMU simple trace`.
    pub format: String,
    /// Whose events it has.
    pub side: TraceSide,
    /// The clock of its events, as the kernel's trace clocks are called; empty where the file does not say.
    pub clock: String,
    /// Events in it that were read.
    pub events: u64,
    /// Events that it says are missing.
    pub lost: u64,
    /// Records and lines that are no known event.
    pub unknown: u64,
}

/// Whose events a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceSide {
    /// The host's kernel.
    Host,
    /// The guest's kernel.
    Guest,
    /// QEMU: its own trace events.
    Qemu,
    /// A kernel of which nothing says whether it is a host's or a guest's.
    Unknown,
}

/// Join of one file's clock with the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedClock {
    /// Name of the file.
    pub file: String,
    /// Method of joining, for people.
    pub method: String,
    /// By how much its times may be wrong on the host's clock, ns; null where the files do not say.
    pub bound_ns: Option<f64>,
}
