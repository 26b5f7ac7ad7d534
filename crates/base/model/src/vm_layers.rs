//! The block requests of a running VM, as its host traces them, and what they say.

use crate::{GuestDisk, HostDisk, LayerFindings, Missing, QemuThread, RequestKind, Summary, VmDisk, VmFacts};
use serde::{Deserialize, Serialize};

/// A disk of a running VM, with what joins its requests to the host's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDisk {
    /// The path of its device among QEMU's objects, as `/machine/peripheral/disk0/virtio-backend`; empty where it is not known.
    pub device: String,
    /// The disk.
    pub disk: VmDisk,
    /// Its file on the host; empty where the image's format puts the guest's bytes elsewhere in the file.
    pub host: HostDisk,
    /// The ports or addresses by which the guest kicks its virtqueues: first and length.
    pub notify: Vec<(u64, u64)>,
}

/// The clock of traces that other tools recorded, in place of a kernel's: [`VmTrace::tsc_mhz`] ticks in a microsecond.
pub const IMPORTED_CLOCK: &str = "imported";

/// `vm-trace.json`: the metadata needed to read the trace of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Its threads, those that began meanwhile among them.
    pub threads: Vec<QemuThread>,
    /// Its disks.
    pub disks: Vec<TracedDisk>,
    /// Whether the VM ended before the timeout.
    pub ended: bool,
    /// Whether the trace reached the most bytes that are kept.
    pub full: bool,
    /// What could not be observed.
    pub missing: Vec<Missing>,
    /// Whether other tools recorded it: what is missing is missing for good.
    #[serde(default)]
    pub imported: bool,
    /// The trace of the guest's kernel beside it; null where there is none.
    #[serde(default)]
    pub guest: Option<GuestTrace>,
}

/// The trace of a guest's kernel, and how its clock is joined to the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTrace {
    /// The disks in its block events.
    pub disks: Vec<GuestDisk>,
    /// Whether its ticks are the host's already; else cause and effect among the requests tell the offset.
    pub is_on_host_clock: bool,
    /// By how much these may be wrong, ticks.
    pub bound: u64,
    /// How the clocks were joined, for people.
    pub source: String,
}

/// The requests of one kind to one disk of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRequests {
    /// The disk's name: libvirt's target, QEMU's ID of the device, else its path among QEMU's objects.
    pub disk: String,
    /// The file or device behind it; null where it is not known.
    pub file: Option<String>,
    /// The image's format; null where it is not known.
    pub format: Option<String>,
    /// The thread that takes its requests from the ring, as `main loop`, `iothread io0`.
    pub thread: String,
    /// What they ask for.
    pub kind: RequestKind,
    /// How many QEMU completed.
    pub requests: u64,
    /// How many of these were followed.
    pub followed: u64,
    /// How many a second.
    pub per_s: f64,
    /// How many were in flight at once, mean over the time.
    pub in_flight: f64,
    /// From the first to the last moment that the host sees of each: esxtop's GAVG without the guest's own part.
    pub gavg: Summary,
    /// GAVG without the time at the host's device; null where that is not observed.
    pub kavg: Option<Summary>,
    /// From the host's block layer issuing it to the device completing it, 0 where the page cache answers; null where it is not
    /// observed, as of flushes.
    pub davg: Option<Summary>,
}

impl VmLayers {
    /// What is missing where this build of QEMU shows no requests at all.
    pub const REQUESTS: &str = "requests to its disks";
}

/// The findings of the traced requests of a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmLayers {
    /// The VM.
    pub vm: VmFacts,
    /// How long it was traced, s.
    pub seconds: f64,
    /// Whether it ended before the timeout.
    pub ended: bool,
    /// By disk and kind, those first that took most time; none where no request was seen.
    pub requests: Vec<VmRequests>,
    /// The disks that had no request.
    pub idle: Vec<String>,
    /// What could not be observed of any disk.
    pub missing: Vec<Missing>,
    /// Where the time goes: a column for each of `requests`, in their order.
    pub layers: LayerFindings,
}
