//! A running VM: rates between two samples of its counters, and of its host's, why it is slow, and what other tools recorded of it.

use crate::{Advice, GuestExits, ProfileFindings, VmExits, VmLayers};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use vmtax_model::{
    Accelerator, BlockedThread, Counter, CounterMap, ImportFacts, KernelFailure, Manager, Missing,
    ProcessStop, Role, RunState, StalledQueue, VmFacts, VmSettings, Vmm,
};

/// A VM in one interval. What is not known is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VmRates {
    /// PID of the VMM's process.
    pub pid: i32,
    /// Name of the VM; null where it has none.
    pub name: Option<String>,
    /// True if another VM of the host has this name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_name: bool,
    /// VMM that runs the VM; QEMU where it is left out.
    #[serde(default, skip_serializing_if = "Vmm::is_qemu")]
    pub vmm: Vmm,
    /// Who started it; null where it was started by hand.
    pub manager: Option<Manager>,
    /// Accelerator that executes the guest's instructions; null if unknown.
    pub accelerator: Option<Accelerator>,
    /// Number of the guest's vCPUs.
    pub vcpus: usize,
    /// The guest's memory at its start, bytes.
    pub memory: u64,
    /// Control group of the process.
    pub cgroup: Option<String>,
    /// The interval, s.
    pub seconds: f64,
    /// State of the guest; null where nobody was asked.
    pub state: Option<RunState>,
    /// Signal or tracer that stopped its process; null while its threads may run.
    pub process_stop: Option<ProcessStop>,
    /// Time without an answer of QEMU's monitor, s; null where it answered, was not asked, or serves another client.
    pub monitor_timeout_s: Option<f64>,
    /// The reason why no monitor is asked; null where there is one.
    pub no_monitor: Option<String>,
    /// Threads that were in uninterruptible sleep for the whole interval; the main loop, too, where the monitor did not answer.
    pub blocked: Vec<BlockedThread>,
    /// Failure of the guest's kernel at the end of a console that QEMU writes to a file; null without one.
    pub kernel_failure: Option<KernelFailure>,
    /// Part of the interval that its vCPU threads were on a CPU, mean of the vCPUs, 0 to 1: %RUN. Null without vCPU threads.
    pub run: Option<f64>,
    /// Part of the interval that its vCPU threads were runnable without a CPU, mean: %RDY.
    pub ready: Option<f64>,
    /// Part of the interval that its control group was throttled by its CPU quota, of each vCPU: %THR.
    pub throttled: Option<f64>,
    /// Threads of the VM, the busiest first.
    pub threads: Vec<ThreadRates>,
    /// VM exits; null under TCG and without a monitor.
    pub exits: Option<ExitRates>,
    /// VM exits by reason and device, traced at level 2; null at a lower level, under TCG, without the permission.
    pub traced_exits: Option<GuestExits>,
    /// Rates of the guest's disks.
    pub disks: Vec<DiskRates>,
    /// Of all disks.
    pub io: Option<IoRates>,
    /// Virtqueues of disks in which requests stayed without one being completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled_queues: Vec<StalledQueue>,
    /// Figures of the guest itself; null without an agent in it that answers.
    pub guest: Option<GuestRates>,
    /// Rates of the VM's tap devices.
    pub nics: Vec<NicRates>,
    /// Figures of the counters that are one number each.
    #[serde(flatten, serialize_with = "serialize_figures")]
    pub counters: CounterMap<f64>,
    /// Bytes that its process read from and wrote to block devices, per second.
    pub process_io: Option<[f64; 2]>,
    /// Bytes that its process read by system calls, per second.
    pub rchar_per_s: Option<f64>,
    /// Programs that serve its vhost-user devices.
    pub daemons: Vec<DaemonRates>,
    /// Settings of the VM.
    pub settings: VmSettings,
    /// Problems of the VM, the first rule that fires first.
    pub findings: Vec<Advice>,
}

/// A thread of a VM, in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadRates {
    /// TID on the host.
    pub tid: i32,
    /// Role of the thread.
    pub role: Role,
    /// Part of the interval on a CPU.
    pub run: f64,
    /// Part of the interval runnable without a CPU.
    pub ready: f64,
    /// Number of times per second that the thread got a CPU.
    #[serde(default)]
    pub turns_per_s: f64,
    /// Part of the interval that a CPU quota throttled the thread; null where the kernel counts that for several threads together.
    #[serde(default)]
    pub throttled: Option<f64>,
}

impl ThreadRates {
    /// Part of the interval below which a thread only woke up: a wake-up of a vCPU thread by QEMU runs no guest code.
    pub const STILL: f64 = 0.0005;

    /// Returns true if the thread did more in the interval than wake up.
    pub fn ran(&self) -> bool {
        self.run >= ThreadRates::STILL
    }
}

/// A program that serves a device of the VM from a process of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonRates {
    /// PID of the daemon.
    pub pid: i32,
    /// The tag of the tree that it serves.
    pub tag: String,
    /// True if a signal stopped the daemon.
    pub is_stopped: bool,
    /// CPU seconds per second of all its threads.
    pub run: f64,
    /// Part of the interval that its threads were runnable without a CPU, their sum, at most 1.
    pub ready: f64,
    /// Part of the interval that a CPU quota throttled it, at most 1; null without a group that has one.
    pub throttled: Option<f64>,
    /// The folder of its control group with a CPU quota and no other process; null where there is none.
    pub cgroup: Option<String>,
}

/// VM exits of all vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitRates {
    /// Exits per second.
    pub per_s: f64,
    /// Halts per second.
    pub halts_per_s: f64,
    /// Part of the interval that vCPUs were halted, mean of the vCPUs.
    pub halted: f64,
}

/// Requests of a disk, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct IoRates {
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Flushes per second.
    pub flushes_per_s: f64,
    /// Read, bytes per second.
    pub read_bytes_per_s: f64,
    /// Written, bytes per second.
    pub written_bytes_per_s: f64,
    /// Mean time of a request in QEMU's block layer and below, ns: BLKAVG. Null without requests.
    pub blkavg_ns: Option<f64>,
    /// Mean time of a read in QEMU and below, ns; null without reads.
    pub read_ns: Option<f64>,
    /// Mean time of a write in QEMU and below, ns; null without writes.
    pub write_ns: Option<f64>,
    /// Mean time of a write with the flushes after it, ns: of writes and flushes, for each write. Null without writes.
    pub write_and_flush_ns: Option<f64>,
    /// The 99th percentile of a request's time, ns, the upper end of its bin; null without histograms or requests.
    pub p99_ns: Option<f64>,
    /// Requests that the device has taken and not yet returned; at the interval's end.
    pub in_flight: Option<u64>,
}

impl IoRates {
    /// Requests per second.
    pub fn per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s + self.flushes_per_s
    }
}

/// A disk of a guest, in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskRates {
    /// The name of its device, else the file behind it.
    pub name: String,
    /// Requests of the disk, as QEMU counts them; null without a monitor.
    pub io: Option<IoRates>,
    /// The host's block device beneath, with all its users.
    pub device: Option<DeviceRates>,
    /// Mean time of the disk's own requests at the host's device, ns: DAVG. Null without requests, and where the disk is not itself
    /// a block device that QEMU opened with `O_DIRECT`: then the device counts other requests, too.
    pub davg_ns: Option<f64>,
    /// Tells that DAVG is null because the kernel counts the times of this volume's requests in ticks, too long for so few.
    #[serde(default)]
    pub davg_needs_requests: bool,
    /// Mean time of a request in QEMU and the host's kernel, ns: KAVG, BLKAVG without DAVG; where the kernel splits
    /// requests, a lower bound. Null where one of them is.
    pub kavg_ns: Option<f64>,
}

/// A guest's own figures, by QEMU's guest agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestRates {
    /// Part of its CPUs' time that was stolen, 0 to 1; null where its clock stood still.
    pub steal: Option<f64>,
    /// Disks of the guest that had requests.
    pub disks: Vec<GuestDiskRates>,
}

/// A disk, as the guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestDiskRates {
    /// The guest's name of it.
    pub name: String,
    /// Requests of the disk per second.
    pub per_s: f64,
    /// Their mean time, ns: GAVG.
    pub gavg_ns: f64,
}

/// A block device of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRates {
    /// Name of the device.
    pub name: String,
    /// Requests of the device per second, of all its users.
    pub per_s: f64,
    /// Their mean time, ns. Null without requests.
    pub mean_ns: Option<f64>,
}

/// A tap device, from the guest's side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NicRates {
    /// The interface on the host.
    pub tap: String,
    /// True if vhost-net moves the packets in the host's kernel.
    #[serde(default)]
    pub vhost: bool,
    /// Packets received per second.
    pub rx_packets_per_s: f64,
    /// Packets sent per second.
    pub tx_packets_per_s: f64,
    /// Bytes received per second.
    pub rx_bytes_per_s: f64,
    /// Bytes sent per second.
    pub tx_bytes_per_s: f64,
    /// Packets to the guest dropped per second.
    pub rx_dropped_per_s: f64,
    /// Packets of the guest dropped per second.
    pub tx_dropped_per_s: f64,
}

impl VmRates {
    /// The disk of this name.
    pub fn disk(&self, name: &str) -> Option<&DiskRates> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// The thread that used most CPU time, if any used some.
    pub fn busiest(&self) -> Option<&ThreadRates> {
        self.threads.first().filter(|thread| thread.run > 0.0)
    }

    fn of_nics(&self, rate: impl Fn(&NicRates) -> f64) -> f64 {
        self.nics.iter().map(rate).sum()
    }

    /// Packets per second of all tap devices, both directions.
    pub fn packets_per_s(&self) -> f64 {
        self.of_nics(|nic| nic.rx_packets_per_s + nic.tx_packets_per_s)
    }

    /// Bytes per second of all tap devices, both directions.
    pub fn network_bytes_per_s(&self) -> f64 {
        self.of_nics(|nic| nic.rx_bytes_per_s + nic.tx_bytes_per_s)
    }

    /// Dropped packets per second of all tap devices.
    pub fn drops_per_s(&self) -> f64 {
        self.of_nics(|nic| nic.rx_dropped_per_s + nic.tx_dropped_per_s)
    }

    /// Why the guest does not run, if it does not.
    pub fn stopped(&self) -> Option<&str> {
        self.state.as_ref().and_then(RunState::stopped)
    }

    /// Returns true where no vCPU ran in the interval, and nothing tells whether the guest is halted or paused.
    pub fn may_be_paused(&self) -> bool {
        let vcpus = self.threads.iter();
        let mut vcpus = vcpus
            .filter(|thread| matches!(thread.role, Role::Vcpu(_)))
            .peekable();
        let is_unknown = self.state.is_none() && self.process_stop.is_none();
        is_unknown && vcpus.peek().is_some() && !vcpus.any(|vcpu| vcpu.ran())
    }

    /// Mean time of the requests of all disks as the guest sees them, ns: GAVG.
    pub fn gavg_ns(&self) -> Option<f64> {
        let disks = &self.guest.as_ref()?.disks;
        let per_s: f64 = disks.iter().map(|disk| disk.per_s).sum();
        let ns: f64 = disks.iter().map(|disk| disk.per_s * disk.gavg_ns).sum();
        (per_s > 0.0).then(|| ns / per_s)
    }

    /// Returns the argument that names the VM in a command to copy, as [`VmFacts::argument`].
    pub fn argument(&self) -> String {
        let name = self.name.as_ref().filter(|_| !self.shares_name);
        VmFacts::argument_for(name, self.pid)
    }

    /// Returns the VM's name, else its PID.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.pid.to_string())
    }
}

/// All VMs in one interval: a line of `vmtax top --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopSample {
    /// The version of what is printed: [`crate::REPORT_SCHEMA`].
    pub schema: u32,
    /// The interval's end: RFC 3339, UTC.
    pub time: String,
    /// The level: 0 counters, 1 and histograms, 2 and traces.
    pub level: u8,
    /// CPU time of vmtax in the interval, with the programs that it ran, as a part of one CPU.
    pub own_cpu: f64,
    /// The host in the interval; null where its counters could not be read.
    pub host: Option<HostRates>,
    /// All VMs in the interval.
    pub vms: Vec<VmRates>,
    /// VMs that ended or began, counters that could not be read: a sentence each.
    pub notes: Vec<String>,
}

/// The findings of `diagnose`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmDiagnosis {
    /// VM that was diagnosed.
    pub vm: VmFacts,
    /// When its process started, clock ticks after the host's boot; 0 in older findings.
    pub started: u64,
    /// Known problems of the VM, the one that takes most time first; none where nothing was found.
    pub causes: Vec<Advice>,
    /// Settings worth checking, whose cost was not measured: no causes.
    pub settings: Vec<Advice>,
    /// Rates by the VM's counters in the first part of the time, in which nothing else observed it.
    pub rates: VmRates,
    /// Threads, functions and VM exits after that; null where the VM did not run, or could not be profiled.
    pub profile: Option<ProfileFindings>,
    /// Requests after that; null where there were few, or they could not be traced.
    pub layers: Option<VmLayers>,
    /// True if the VM ended while it was observed.
    pub ended: bool,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}

impl VmDiagnosis {
    /// Returns the part of a VM that runs of which no figure is known: another cause may lie there.
    pub fn unobserved(&self) -> Option<&'static str> {
        let rates = &self.rates;
        let runs = rates.stopped().is_none()
            && rates.process_stop.is_none()
            && rates.monitor_timeout_s.is_none();
        let may_have_disks = rates.no_monitor.is_some() || !self.vm.disks.is_empty();
        let lacks_disks = may_have_disks && rates.io.is_none() && self.layers.is_none();
        match (rates.run.is_none(), lacks_disks) {
            _ if !runs => None,
            (true, true) => Some("its vCPUs and its disks"),
            (true, false) => Some("its vCPUs"),
            (false, true) => Some("its disks"),
            (false, false) => None,
        }
    }
}

/// The findings of imported traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportFindings {
    /// Facts of the import.
    #[serde(flatten)]
    pub facts: ImportFacts,
    /// The VM's exits; null where no file has events of KVM.
    pub exits: Option<VmExits>,
    /// The VM's requests; null where no file has any.
    pub layers: Option<VmLayers>,
}

/// Writes the objects. What is not known is null.
fn serialize_figures<S: Serializer>(
    figures: &CounterMap<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut objects: BTreeMap<&str, JsonFields> = BTreeMap::new();
    for counter in Counter::all() {
        let Some((object, field)) = counter.json.split_once('.') else {
            continue;
        };
        let number = figures
            .get(counter)
            .map(|value| match counter.unit.is_gauge() {
                true => JsonNumber::Whole(value as u64),
                false => JsonNumber::Rate(value),
            });
        let JsonFields(fields) = objects.entry(object).or_default();
        fields.push((field, number));
    }
    objects.serialize(serializer)
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonNumber {
    Whole(u64),
    Rate(f64),
}

/// JsonFields of an object, in order.
#[derive(Default)]
struct JsonFields(Vec<(&'static str, Option<JsonNumber>)>);

impl Serialize for JsonFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, number)| (name, number)))
    }
}

/// The host in one interval. What is not known is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HostRates {
    /// CPUs that are online.
    pub cpus: usize,
    /// CPUs that ran tasks or interrupts, as a number of CPUs.
    pub used: f64,
    /// CPUs that the threads of the sampled VMs used, with the kernel's threads and the programs that serve them.
    pub used_by_vms: f64,
    /// CPUs that all else of the host used.
    pub used_by_others: f64,
    /// The process that used most CPU time of these; null where none used a tenth of a CPU, or processes were not read.
    pub largest_other: Option<ProcessRate>,
    /// Tasks that ran or waited for a CPU at the interval's end.
    pub runnable: Option<u64>,
    /// Load average of one minute at the interval's end.
    pub load: Option<f64>,
    /// Memory of the host, bytes.
    pub memory: Option<u64>,
    /// Memory of it that new programs can have without swapping, bytes.
    pub available: Option<u64>,
    /// Bytes read from swap, per second.
    pub swapped_in_per_s: Option<f64>,
    /// Bytes written to swap, per second.
    pub swapped_out_per_s: Option<f64>,
    /// Findings about the host that concern all of the sampled VMs: problems first, then settings worth checking.
    pub findings: Vec<Advice>,
}

impl HostRates {
    /// Returns true if the host's CPUs are in use for nine tenths of their time and more: then a runnable thread waits for one.
    pub fn is_busy(&self) -> bool {
        self.cpus > 0 && self.used >= 0.9 * self.cpus as f64
    }
}

/// A process in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessRate {
    /// PID of the process.
    pub pid: i32,
    /// Name of the process, as the kernel keeps it.
    pub name: String,
    /// CPUs that it used, as a number of CPUs.
    pub used: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_shell_would_obey_does_not_get_into_a_command() {
        let shared = VmRates {
            pid: 7,
            name: Some("web01".to_owned()),
            shares_name: true,
            ..VmRates::default()
        };
        assert_eq!(shared.argument(), "7", "two VMs have this name");
        let argument_of = |name: &str| {
            VmRates {
                pid: 7,
                name: Some(name.to_owned()),
                ..VmRates::default()
            }
            .argument()
        };
        assert_eq!(
            (
                argument_of("web-01.a_b"),
                argument_of("a;reboot"),
                argument_of("--help"),
                argument_of("a b"),
                argument_of("")
            ),
            (
                "web-01.a_b".into(),
                "7".into(),
                "7".into(),
                "7".into(),
                "7".into()
            )
        );
    }
}
