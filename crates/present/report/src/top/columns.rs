//! The columns of `vmtax top`, in esxtop's terms where it has one.

use super::reason;
use vmtax_model::VmRates;
use vmtax_model::number::{NONE, bytes, nanoseconds, significant};

/// A column: a figure of each VM.
pub struct TopColumn {
    /// Its head.
    pub name: &'static str,
    /// What it is, a noun phrase.
    pub what: &'static str,
    /// Where it comes from, what it leaves out, and what is much.
    pub explanation: &'static str,
    /// The step from which on it is left out where there is little room; 0: never.
    pub spare: u8,
    /// Its text; "–" where it is not known.
    pub text: fn(&VmRates) -> String,
    /// The reason for "–" at a level.
    pub unknown: fn(&VmRates, u8) -> String,
    /// What rows are sorted by, the largest first; `None` comes last.
    pub key: fn(&VmRates) -> Option<f64>,
}

/// Every column but the VM's name, which comes first, and the busiest thread, which comes last.
pub const TOP_COLUMNS: &[TopColumn] = &[
    TopColumn {
        name: "vCPU",
        what: "vCPUs of the guest",
        explanation: "The vCPUs with which QEMU was started (-smp).",
        spare: 0,
        text: |vm| vm.vcpus.to_string(),
        unknown: reason::never,
        key: |vm| Some(vm.vcpus as f64),
    },
    TopColumn {
        name: "%RUN",
        what: "vCPU threads on a host CPU, mean of the vCPUs",
        explanation: "esxtop sums the vCPUs up. Field 1 of /proc/PID/task/TID/schedstat. Under TCG it holds QEMU's translation of the guest's code.",
        spare: 0,
        text: |vm| percent(vm.run),
        unknown: reason::no_vcpus,
        key: |vm| vm.run,
    },
    TopColumn {
        name: "%RDY",
        what: "vCPU threads waiting for a host CPU",
        explanation: "Run-queue wait; the guest sees it as steal. Mean of the vCPUs, field 2 of /proc/PID/task/TID/schedstat. esxtop's guides name 10 % as the limit, where the rule here begins, too. Kernels before 6.18 count throttling (%THR) in it.",
        spare: 0,
        text: |vm| percent(vm.ready),
        unknown: reason::no_vcpus,
        key: |vm| vm.ready,
    },
    TopColumn {
        name: "%THR",
        what: "throttled by the CPU quota (cpu.max)",
        explanation: "Part of the vCPUs' time; esxtop: %MLMTD. throttled_usec of the control groups of the vCPU threads and of all groups above them. A group that several VMs share counts for each of them.",
        spare: 0,
        text: |vm| percent(vm.throttled),
        unknown: reason::no_throttling,
        key: |vm| vm.throttled,
    },
    TopColumn {
        name: "%ST",
        what: "steal as the guest counts it (level 1)",
        explanation: "Part of the guest's CPU time, by QEMU's guest agent in the guest (guest-get-cpustats), which is asked from --level 1 on. Only KVM tells guests of steal; %RDY is the host's own figure.",
        spare: 4,
        text: |vm| percent(vm.guest.as_ref().and_then(|guest| guest.steal)),
        unknown: reason::no_agent,
        key: |vm| vm.guest.as_ref()?.steal,
    },
    TopColumn {
        name: "EXIT/s",
        what: "VM exits",
        explanation: "All vCPUs: KVM's counters in /sys/kernel/debug/kvm (root), or by QMP query-stats (QEMU 7.1 and newer). TCG has none. What they cost: --level 2, or `vmtax profile --vm`.",
        spare: 4,
        text: |vm| vm.exits.map_or_else(none, |exits| rate(exits.per_s)),
        unknown: reason::no_exits,
        key: |vm| vm.exits.map(|exits| exits.per_s),
    },
    TopColumn {
        name: "IOPS",
        what: "reads, writes and flushes of all disks",
        explanation: "As QEMU completes them (QMP query-blockstats; of libvirt's domains virsh domstats). Not known without a monitor.",
        spare: 0,
        text: |vm| vm.io.map_or_else(none, |io| rate(io.per_s())),
        unknown: reason::no_requests,
        key: |vm| vm.io.map(|io| io.per_s()),
    },
    TopColumn {
        name: "BLKAVG",
        what: "mean time of a request in QEMU's block layer and below",
        explanation: "From QEMU taking it off the virtqueue until its completion (QMP query-blockstats). esxtop's GAVG, which the guest sees, is longer by the virtqueue kick and the interrupt; it takes the guest's own counters (iostat in the guest) or `vmtax layers`. esxtop's QAVG is another time: that in the kernel's queue.",
        spare: 0,
        text: |vm| time(vm.io.and_then(|io| io.blkavg_ns)),
        unknown: reason::no_requests,
        key: |vm| vm.io.and_then(|io| io.blkavg_ns),
    },
    TopColumn {
        name: "GAVG",
        what: "mean time of a request as the guest sees it (level 1)",
        explanation: "From the guest's own disk statistics, by QEMU's guest agent (guest-get-diskstats, QEMU 7.1 and newer) in the guest, which is asked from --level 1 on. Longer than BLKAVG by the guest's queue, the virtqueue kick and the interrupt.",
        spare: 3,
        text: |vm| time(vm.gavg_ns()),
        unknown: reason::no_agent,
        key: VmRates::gavg_ns,
    },
    TopColumn {
        name: "KAVG",
        what: "of BLKAVG: in QEMU and the host's kernel, of the slowest disk that is itself a block device",
        explanation: "BLKAVG - DAVG of the disk with the largest, where DAVG is known. Where the kernel splits requests at the device, a lower bound. `vmtax layers --vm VM` has it of each request, on any disk.",
        spare: 3,
        text: |vm| time(largest(vm, |disk| disk.kavg_ns)),
        unknown: reason::no_device_time,
        key: |vm| largest(vm, |disk| disk.kavg_ns),
    },
    TopColumn {
        name: "DAVG",
        what: "mean time of requests at the host's device, of the slowest disk that is itself a block device",
        explanation: "Only of a disk that is itself a block device of the host (a logical volume, a partition, a whole disk) and is opened with O_DIRECT (cache=none): /sys/dev/block/MAJOR:MINOR/stat then counts this VM's requests, with times in ms; of volumes (LVM, RAID) in ticks of the kernel's clock, so that the figure needs many requests. Of several disks the largest. A file's device counts the requests of all its users: they are in the line of the host's disks. `vmtax layers --vm VM` traces those of the VM, on any disk.",
        spare: 3,
        text: |vm| time(largest(vm, |disk| disk.davg_ns)),
        unknown: reason::no_device_time,
        key: |vm| largest(vm, |disk| disk.davg_ns),
    },
    TopColumn {
        name: "p99",
        what: "99 of 100 requests take no longer (level 1)",
        explanation: "In QEMU and below: the end of the bin of QEMU's latency histogram, 25 % wide. --level 1 sets these histograms and removes them at the end.",
        spare: 2,
        text: |vm| time(vm.io.and_then(|io| io.p99_ns)),
        unknown: reason::no_histograms,
        key: |vm| vm.io.and_then(|io| io.p99_ns),
    },
    TopColumn {
        name: "QD",
        what: "requests in flight in virtio disks (level 1)",
        explanation: "Taken by QEMU and not yet returned, at the interval's end (x-query-virtio-queue-status, QEMU 7.2 and newer, --level 1). esxtop: ACTV.",
        spare: 2,
        text: |vm| {
            vm.io
                .and_then(|io| io.in_flight)
                .map_or_else(none, |count| count.to_string())
        },
        unknown: reason::no_queues,
        key: |vm| vm.io.and_then(|io| io.in_flight).map(|count| count as f64),
    },
    TopColumn {
        name: "PKT/s",
        what: "packets through the tap devices",
        explanation: "Both directions (/proc/PID/net/dev).",
        spare: 5,
        text: |vm| {
            if vm.nics.is_empty() {
                none()
            } else {
                rate(vm.packets_per_s())
            }
        },
        unknown: reason::no_tap,
        key: |vm| (!vm.nics.is_empty()).then(|| vm.packets_per_s()),
    },
    TopColumn {
        name: "DROP/s",
        what: "packets that the tap devices dropped",
        explanation: "Those to the guest for a full receive queue, mostly.",
        spare: 1,
        text: |vm| {
            if vm.nics.is_empty() {
                none()
            } else {
                rate(vm.drops_per_s())
            }
        },
        unknown: reason::no_tap,
        key: |vm| (!vm.nics.is_empty()).then(|| vm.drops_per_s()),
    },
    TopColumn {
        name: "RES",
        what: "QEMU's memory in the host's RAM",
        explanation: "VmRSS of /proc/PID/status.",
        spare: 5,
        text: |vm| size(vm.memory_use.resident),
        unknown: reason::never,
        key: |vm| Some(vm.memory_use.resident as f64),
    },
    TopColumn {
        name: "SWAP",
        what: "QEMU's memory that is swapped out",
        explanation: "VmSwap of /proc/PID/status.",
        spare: 1,
        text: |vm| size(vm.memory_use.swapped),
        unknown: reason::never,
        key: |vm| Some(vm.memory_use.swapped as f64),
    },
    TopColumn {
        name: "MFLT/s",
        what: "major page faults of QEMU",
        explanation: "The guest's memory is read from a disk. esxtop's %SWPWT is the wait for it.",
        spare: 1,
        text: |vm| rate(vm.memory_use.major_faults_per_s),
        unknown: reason::never,
        key: |vm| Some(vm.memory_use.major_faults_per_s),
    },
];

fn none() -> String {
    NONE.to_owned()
}

/// A part as percent without its sign, which the column's head has.
fn percent(part: Option<f64>) -> String {
    part.map_or_else(none, |part| {
        let percent = part * 100.0;
        if percent < 9.95 {
            format!("{percent:.1}")
        } else {
            format!("{percent:.0}")
        }
    })
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 9999.5 => format!("{rate:.0}"),
        rate => format!("{}k", significant(rate / 1000.0)),
    }
}

fn time(ns: Option<f64>) -> String {
    ns.map_or_else(none, nanoseconds)
}

fn size(n: u64) -> String {
    if n == 0 { "0".to_owned() } else { bytes(n) }
}

/// The largest figure of any disk.
pub(super) fn largest(
    vm: &VmRates,
    of: impl Fn(&vmtax_model::DiskRates) -> Option<f64>,
) -> Option<f64> {
    vm.disks.iter().filter_map(of).max_by(f64::total_cmp)
}
