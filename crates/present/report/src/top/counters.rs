//! The counters of a VM, an entry each: its column in `vmtax top`, its field of CSV, its metric for Prometheus, its row in
//! docs/top.md. Columns have esxtop's names where it has one.

use super::counter::{self, BASE, CounterUnit, Labels, Metric, VmCounter};
use std::collections::BTreeMap;
use vmtax_findings::{DiskRates, VmRates};
use vmtax_model::{
    DiskCounters, NicCounters, RequestCounters, Role, RunState, ThreadCounters, VmCounters,
};

/// The counters that have a column, from left to right: between the VM's name, which comes first, and the busiest thread.
pub fn top_columns() -> impl Iterator<Item = &'static VmCounter> + Clone {
    VM_COUNTERS
        .iter()
        .filter(|counter| !counter.column.is_empty())
}

/// Every counter, in the order of columns and fields.
pub const VM_COUNTERS: &[VmCounter] = &[
    VmCounter {
        what: "guest running (1) or stopped (0)",
        csv: "running",
        value: |vm| Some(runs(vm.state.as_ref()?)),
        metric: Some(Metric {
            name: "vmtax_vm_running",
            kind: "gauge",
            help: "1 where the guest runs, 0 where its vCPUs are stopped.",
            samples: |_, vm| vm.state.iter().map(|state| one(runs(state))).collect(),
        }),
        ..BASE
    },
    VmCounter {
        column: "vCPU",
        what: "vCPUs of the guest",
        explanation: "The vCPUs with which QEMU was started (-smp).",
        csv: "vcpus",
        value: |vm| Some(vm.vcpus as f64),
        metric: Some(Metric {
            name: "vmtax_vm_vcpus",
            kind: "gauge",
            help: "vCPUs of the guest.",
            samples: |facts, _| vec![one(facts.vcpus as f64)],
        }),
        ..BASE
    },
    VmCounter {
        column: "%RUN",
        what: "vCPU threads on a host CPU, mean of the vCPUs",
        explanation: "esxtop sums the vCPUs up. Field 1 of /proc/PID/task/TID/schedstat. Under TCG it holds QEMU's translation of the guest's code.",
        esxtop: "%RUN (there the sum)",
        unit: CounterUnit::Ratio,
        csv: "run_ratio",
        value: |vm| vm.run,
        unknown: counter::no_vcpus,
        metric: Some(Metric {
            name: "vmtax_vm_thread_cpu_seconds",
            kind: "counter",
            help: "CPU time of QEMU's threads by role.",
            samples: |_, vm| by_role(vm, |thread| thread.cpu_ns),
        }),
        ..BASE
    },
    VmCounter {
        column: "%RDY",
        what: "vCPU threads waiting for a host CPU (run-queue wait)",
        explanation: "Run-queue wait; the guest sees it as steal. Mean of the vCPUs, field 2 of /proc/PID/task/TID/schedstat. esxtop's guides name 10 % as the limit, where the rule here begins, too. Kernels before 6.18 count throttling (%THR) in it.",
        esxtop: "%RDY",
        unit: CounterUnit::Ratio,
        csv: "ready_ratio",
        value: |vm| vm.ready,
        unknown: counter::no_vcpus,
        metric: Some(Metric {
            name: "vmtax_vm_thread_run_queue_wait_seconds",
            kind: "counter",
            help: "Time that QEMU's threads were runnable without a CPU, by role.",
            samples: |_, vm| by_role(vm, |thread| thread.wait_ns),
        }),
        ..BASE
    },
    VmCounter {
        column: "%THR",
        what: "throttled by the CPU quota (cpu.max)",
        explanation: "Part of the vCPUs' time; esxtop: %MLMTD. throttled_usec of the control groups of the vCPU threads and of all groups above them. A group that several VMs share counts for each of them.",
        esxtop: "%MLMTD",
        unit: CounterUnit::Ratio,
        csv: "throttled_ratio",
        value: |vm| vm.throttled,
        unknown: counter::no_throttling,
        metric: Some(Metric {
            name: "vmtax_vm_throttled_seconds",
            kind: "counter",
            help: "Time that the VM's control groups were throttled by a CPU quota.",
            samples: |_, vm| {
                let throttled = vm.cgroup.throttled_us.iter();
                throttled.map(|us| one(*us as f64 / 1e6)).collect()
            },
        }),
        ..BASE
    },
    VmCounter {
        column: "%ST",
        what: "steal as the guest counts it (level 1)",
        explanation: "Part of the guest's CPU time, by QEMU's guest agent in the guest (guest-get-cpustats), which is asked from --level 1 on. Only KVM tells guests of steal; %RDY is the host's own figure.",
        needs: "level 1, guest agent",
        spare: 4,
        unit: CounterUnit::Ratio,
        csv: "guest_steal_ratio",
        value: |vm| vm.guest.as_ref()?.steal,
        unknown: counter::no_agent,
        ..BASE
    },
    VmCounter {
        column: "EXIT/s",
        what: "VM exits",
        explanation: "All vCPUs: KVM's counters in /sys/kernel/debug/kvm (root), or by QMP query-stats (QEMU 7.1 and newer). TCG has none. What they cost: --level 2, or `vmtax profile --vm`.",
        needs: "KVM; root (debugfs), or QMP and QEMU 7.1",
        spare: 4,
        unit: CounterUnit::PerSecond,
        csv: "exits_per_second",
        value: |vm| Some(vm.exits?.per_s),
        unknown: counter::no_exits,
        metric: Some(Metric {
            name: "vmtax_vm_exits",
            kind: "counter",
            help: "VM exits of all vCPUs.",
            samples: |_, vm| vm.kvm.iter().map(|kvm| one(kvm.exits as f64)).collect(),
        }),
        ..BASE
    },
    VmCounter {
        what: "vCPUs halted, mean of the vCPUs",
        unit: CounterUnit::Ratio,
        csv: "halted_ratio",
        value: |vm| Some(vm.exits?.halted),
        ..BASE
    },
    VmCounter {
        column: "IOPS",
        what: "reads, writes and flushes of all disks",
        explanation: "As QEMU completes them (QMP query-blockstats; of libvirt's domains virsh domstats). Not known without a monitor.",
        esxtop: "CMDS/s",
        needs: "QMP or libvirt",
        unit: CounterUnit::PerSecond,
        csv: "requests_per_second",
        value: |vm| Some(vm.io?.per_s()),
        unknown: counter::no_requests,
        metric: Some(Metric {
            name: "vmtax_vm_disk_requests",
            kind: "counter",
            help: "Completed requests of a disk.",
            samples: |_, vm| by_kind(vm, |requests| requests.count as f64),
        }),
        ..BASE
    },
    VmCounter {
        what: "reads of all disks",
        unit: CounterUnit::PerSecond,
        csv: "reads_per_second",
        value: |vm| Some(vm.io?.reads_per_s),
        ..BASE
    },
    VmCounter {
        what: "writes of all disks",
        unit: CounterUnit::PerSecond,
        csv: "writes_per_second",
        value: |vm| Some(vm.io?.writes_per_s),
        ..BASE
    },
    VmCounter {
        what: "flushes of all disks",
        unit: CounterUnit::PerSecond,
        csv: "flushes_per_second",
        value: |vm| Some(vm.io?.flushes_per_s),
        ..BASE
    },
    VmCounter {
        what: "bytes read from all disks",
        unit: CounterUnit::BytesPerSecond,
        csv: "read_bytes_per_second",
        value: |vm| Some(vm.io?.read_bytes_per_s),
        metric: Some(Metric {
            name: "vmtax_vm_disk_request_bytes",
            kind: "counter",
            help: "Bytes of completed requests of a disk.",
            samples: |_, vm| by_kind(vm, |requests| requests.bytes as f64),
        }),
        ..BASE
    },
    VmCounter {
        what: "bytes written to all disks",
        unit: CounterUnit::BytesPerSecond,
        csv: "written_bytes_per_second",
        value: |vm| Some(vm.io?.written_bytes_per_s),
        ..BASE
    },
    VmCounter {
        column: "BLKAVG",
        what: "mean time of a request in QEMU's block layer and below",
        explanation: "From QEMU taking it off the virtqueue until its completion (QMP query-blockstats). esxtop's GAVG, which the guest sees, is longer by the virtqueue kick and the interrupt; it takes the guest's own counters (iostat in the guest) or `vmtax layers`. esxtop's QAVG is another time: that in the kernel's queue.",
        esxtop: "GAVG without virtqueue kick and interrupt; QAVG is the wait in the kernel's queue",
        needs: "QMP or libvirt",
        unit: CounterUnit::Time,
        csv: "blkavg_seconds",
        value: |vm| vm.io?.blkavg_ns,
        unknown: counter::no_requests,
        metric: Some(Metric {
            name: "vmtax_vm_disk_request_seconds",
            kind: "counter",
            help: "Sum of the times of completed requests of a disk, in QEMU and below.",
            samples: |_, vm| by_kind(vm, |requests| requests.total_ns as f64 / 1e9),
        }),
        ..BASE
    },
    VmCounter {
        column: "GAVG",
        what: "mean time of a request as the guest sees it (level 1)",
        explanation: "From the guest's own disk statistics, by QEMU's guest agent (guest-get-diskstats, QEMU 7.1 and newer) in the guest, which is asked from --level 1 on. Longer than BLKAVG by the guest's queue, the virtqueue kick and the interrupt.",
        esxtop: "GAVG",
        needs: "level 1, guest agent",
        spare: 3,
        unit: CounterUnit::Time,
        csv: "gavg_seconds",
        value: VmRates::gavg_ns,
        unknown: counter::no_agent,
        ..BASE
    },
    VmCounter {
        column: "KAVG",
        what: "of BLKAVG: in QEMU and the host's kernel, of the slowest disk that is itself a block device",
        explanation: "BLKAVG - DAVG of the disk with the largest, where DAVG is known. Where the kernel splits requests at the device, a lower bound. `vmtax layers --vm VM` has it of each request, on any disk.",
        esxtop: "KAVG",
        needs: "as DAVG",
        spare: 3,
        unit: CounterUnit::Time,
        csv: "kavg_seconds",
        value: |vm| largest(vm, |disk| disk.kavg_ns),
        unknown: counter::no_device_time,
        ..BASE
    },
    VmCounter {
        column: "DAVG",
        what: "mean time of requests at the host's device, of the slowest disk that is itself a block device",
        explanation: "Only of a disk that is itself a block device of the host (a logical volume, a partition, a whole disk) and is opened with O_DIRECT (cache=none): /sys/dev/block/MAJOR:MINOR/stat then counts this VM's requests, with times in ms; of volumes (LVM, RAID) in ticks of the kernel's clock, so that the figure needs many requests. Of several disks the largest. A file's device counts the requests of all its users: they are in the line of the host's disks. `vmtax layers --vm VM` traces those of the VM, on any disk.",
        esxtop: "DAVG",
        needs: "QMP or libvirt, own VM or root; a disk that is itself a block device, `cache=none`",
        spare: 3,
        unit: CounterUnit::Time,
        csv: "davg_seconds",
        value: |vm| largest(vm, |disk| disk.davg_ns),
        unknown: counter::no_device_time,
        ..BASE
    },
    VmCounter {
        column: "p99",
        what: "99 of 100 requests take no longer (level 1)",
        explanation: "In QEMU and below: the end of the bin of QEMU's latency histogram, 25 % wide. --level 1 sets these histograms and removes them at the end.",
        needs: "level 1",
        spare: 2,
        unit: CounterUnit::Time,
        csv: "p99_seconds",
        value: |vm| vm.io?.p99_ns,
        unknown: counter::no_histograms,
        ..BASE
    },
    VmCounter {
        column: "QD",
        what: "requests in flight in virtio disks (level 1)",
        explanation: "Taken by QEMU and not yet returned, at the interval's end (x-query-virtio-queue-status, QEMU 7.2 and newer, --level 1). esxtop: ACTV.",
        esxtop: "ACTV",
        needs: "level 1, QEMU 7.2",
        spare: 2,
        unit: CounterUnit::Count,
        csv: "requests_in_flight",
        value: |vm| Some(vm.io?.in_flight? as f64),
        unknown: counter::no_queues,
        metric: Some(Metric {
            name: "vmtax_vm_disk_requests_in_flight",
            kind: "gauge",
            help: "Requests of a disk that QEMU has taken and not yet returned.",
            samples: |_, vm| {
                let requests_in_flight = |disk: &DiskCounters| {
                    Some((vec![("disk", disk.name.clone())], disk.in_flight? as f64))
                };
                vm.disks.iter().filter_map(requests_in_flight).collect()
            },
        }),
    },
    VmCounter {
        column: "PKT/s",
        what: "packets through the tap devices",
        explanation: "Both directions (/proc/PID/net/dev).",
        esxtop: "PKTTX/s + PKTRX/s",
        needs: "a tap",
        spare: 5,
        unit: CounterUnit::PerSecond,
        csv: "packets_per_second",
        value: |vm| (!vm.nics.is_empty()).then(|| vm.packets_per_s()),
        unknown: counter::no_tap,
        metric: Some(Metric {
            name: "vmtax_vm_network_packets",
            kind: "counter",
            help: "Packets that the guest received (rx) and sent (tx) through a tap device.",
            samples: |_, vm| by_direction(vm, |nic| [nic.rx_packets, nic.tx_packets]),
        }),
    },
    VmCounter {
        what: "bytes through the tap devices, both directions",
        unit: CounterUnit::BytesPerSecond,
        csv: "network_bytes_per_second",
        value: |vm| (!vm.nics.is_empty()).then(|| vm.network_bytes_per_s()),
        metric: Some(Metric {
            name: "vmtax_vm_network_bytes",
            kind: "counter",
            help: "Bytes that the guest received (rx) and sent (tx) through a tap device.",
            samples: |_, vm| by_direction(vm, |nic| [nic.rx_bytes, nic.tx_bytes]),
        }),
        ..BASE
    },
    VmCounter {
        column: "DROP/s",
        what: "packets that the tap devices dropped",
        explanation: "Those to the guest for a full receive queue, mostly.",
        esxtop: "%DRPRX",
        needs: "a tap",
        spare: 1,
        unit: CounterUnit::PerSecond,
        csv: "dropped_packets_per_second",
        value: |vm| (!vm.nics.is_empty()).then(|| vm.drops_per_s()),
        unknown: counter::no_tap,
        metric: Some(Metric {
            name: "vmtax_vm_network_dropped_packets",
            kind: "counter",
            help: "Packets to (rx) and from (tx) the guest that a tap device dropped.",
            samples: |_, vm| by_direction(vm, |nic| [nic.rx_dropped, nic.tx_dropped]),
        }),
    },
    VmCounter {
        column: "RES",
        what: "QEMU's memory in the host's RAM",
        explanation: "VmRSS of /proc/PID/status.",
        spare: 5,
        unit: CounterUnit::Bytes,
        csv: "resident_bytes",
        value: |vm| Some(vm.memory_use.resident as f64),
        metric: Some(Metric {
            name: "vmtax_vm_resident_bytes",
            kind: "gauge",
            help: "Memory of QEMU's process in the host's RAM.",
            samples: |_, vm| vec![one(vm.memory.resident as f64)],
        }),
        ..BASE
    },
    VmCounter {
        column: "SWAP",
        what: "QEMU's memory that is swapped out",
        explanation: "VmSwap of /proc/PID/status.",
        esxtop: "SWCUR",
        spare: 1,
        unit: CounterUnit::Bytes,
        csv: "swapped_bytes",
        value: |vm| Some(vm.memory_use.swapped as f64),
        metric: Some(Metric {
            name: "vmtax_vm_swapped_bytes",
            kind: "gauge",
            help: "Memory of QEMU's process that is swapped out.",
            samples: |_, vm| vec![one(vm.memory.swapped as f64)],
        }),
        ..BASE
    },
    VmCounter {
        what: "QEMU's memory in huge pages",
        unit: CounterUnit::Bytes,
        csv: "huge_page_bytes",
        value: |vm| Some(vm.memory_use.huge as f64),
        ..BASE
    },
    VmCounter {
        what: "the guest's memory without what the balloon holds",
        unit: CounterUnit::Bytes,
        csv: "balloon_bytes",
        value: |vm| Some(vm.memory_use.balloon? as f64),
        metric: Some(Metric {
            name: "vmtax_vm_balloon_bytes",
            kind: "gauge",
            help: "The guest's memory without what the balloon holds.",
            samples: |_, vm| vm.balloon.iter().map(|bytes| one(*bytes as f64)).collect(),
        }),
        ..BASE
    },
    VmCounter {
        column: "MFLT/s",
        what: "major page faults of QEMU",
        explanation: "The guest's memory is read from a disk. esxtop's %SWPWT is the wait for it.",
        esxtop: "%SWPWT is the wait",
        spare: 1,
        unit: CounterUnit::PerSecond,
        csv: "major_faults_per_second",
        value: |vm| Some(vm.memory_use.major_faults_per_s),
        metric: Some(Metric {
            name: "vmtax_vm_major_faults",
            kind: "counter",
            help: "Page faults of QEMU's process that needed I/O.",
            samples: |_, vm| vec![one(vm.memory.major_faults as f64)],
        }),
        ..BASE
    },
    VmCounter {
        what: "some tasks of its control group waited for memory",
        unit: CounterUnit::Ratio,
        csv: "memory_pressure_some_ratio",
        value: |vm| vm.memory_use.pressure_some,
        metric: Some(Metric {
            name: "vmtax_vm_memory_pressure_seconds",
            kind: "counter",
            help: "Time that some or all (full) tasks of the VM's control group waited for memory.",
            samples: |_, vm| {
                let times = [
                    ("some", vm.cgroup.memory_some_us),
                    ("full", vm.cgroup.memory_full_us),
                ];
                let seconds = |(kind, us): (&str, Option<u64>)| {
                    Some((vec![("kind", kind.to_owned())], us? as f64 / 1e6))
                };
                times.into_iter().filter_map(seconds).collect()
            },
        }),
        ..BASE
    },
    VmCounter {
        what: "all tasks of its control group waited for memory",
        unit: CounterUnit::Ratio,
        csv: "memory_pressure_full_ratio",
        value: |vm| vm.memory_use.pressure_full,
        ..BASE
    },
    VmCounter {
        what: "QEMU's process reads from block devices",
        unit: CounterUnit::BytesPerSecond,
        csv: "process_read_bytes_per_second",
        value: |vm| Some(vm.process_io?[0]),
        ..BASE
    },
    VmCounter {
        what: "QEMU's process writes to block devices",
        unit: CounterUnit::BytesPerSecond,
        csv: "process_written_bytes_per_second",
        value: |vm| Some(vm.process_io?[1]),
        ..BASE
    },
];

/// The kinds of requests, as QEMU counts them.
pub(super) const KINDS: [&str; 3] = ["read", "write", "flush"];

/// Returns 1 for a guest that runs, otherwise 0.
fn runs(state: &RunState) -> f64 {
    f64::from(u8::from(*state == RunState::Running))
}

fn one(value: f64) -> (Labels, f64) {
    (Vec::new(), value)
}

/// Times of threads, added up for those of one role, so that threads that come and go make no new series.
fn by_role(vm: &VmCounters, ns: fn(&ThreadCounters) -> u64) -> Vec<(Labels, f64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for thread in &vm.threads {
        let role = match &thread.role {
            Role::Other(_) => "other".to_owned(),
            role => role.label(),
        };
        let sum = sums.entry(role).or_default();
        *sum = sum.saturating_add(ns(thread));
    }
    sums.into_iter()
        .map(|(role, ns)| (vec![("role", role)], ns as f64 / 1e9))
        .collect()
}

fn by_kind(vm: &VmCounters, value: fn(&RequestCounters) -> f64) -> Vec<(Labels, f64)> {
    let values_by_kind = |disk: &DiskCounters| {
        let labels = |kind: &str| vec![("disk", disk.name.clone()), ("kind", kind.to_owned())];
        let kinds = KINDS.iter().zip(disk.qemu.iter().flatten());
        let values = kinds.map(|(kind, one)| (labels(kind), value(one)));
        values.collect::<Vec<_>>()
    };
    vm.disks.iter().flat_map(values_by_kind).collect()
}

fn by_direction(vm: &VmCounters, values: fn(&NicCounters) -> [u64; 2]) -> Vec<(Labels, f64)> {
    let values_by_direction = |nic: &NicCounters| {
        let labels = |way: &str| vec![("tap", nic.tap.clone()), ("direction", way.to_owned())];
        let [rx, tx] = values(nic);
        [(labels("rx"), rx as f64), (labels("tx"), tx as f64)]
    };
    vm.nics.iter().flat_map(values_by_direction).collect()
}

/// The largest figure of any disk.
fn largest(vm: &VmRates, of: impl Fn(&DiskRates) -> Option<f64>) -> Option<f64> {
    vm.disks.iter().filter_map(of).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DOCS: &str = include_str!("../../../../../docs/top.md");

    /// The text between a table's head and its end in docs/top.md is what `rows` are.
    fn assert_documented(head: &str, rows: &[String]) {
        let (_, table) = DOCS.split_once(head).expect(head);
        let table = table.split("\n\n").next().unwrap_or_default();
        let rows = rows.join("\n");
        assert_eq!(table, rows, "docs/top.md: the rows are to be\n{rows}");
    }

    #[test]
    fn columns_are_documented() {
        let row = |counter: &VmCounter| {
            let VmCounter {
                column,
                what,
                esxtop,
                needs,
                ..
            } = counter;
            format!("| {column} | {what} | {esxtop} | {needs} |")
        };
        let rows: Vec<String> = top_columns().map(row).collect();
        assert_documented(
            "| column | what it is | esxtop | needs |\n|---|---|---|---|\n",
            &rows,
        );
    }

    #[test]
    fn fields_and_metrics_are_documented() {
        let row = |counter: &VmCounter| {
            let metric = counter.metric.as_ref();
            let metric = metric.map_or(String::new(), |one| format!("`{}`", one.sample_name()));
            let what = match counter.column {
                "" => counter.what,
                column => column,
            };
            format!("| {what} | `{}` | {metric} |", counter.csv)
        };
        let rows: Vec<String> = VM_COUNTERS.iter().map(row).collect();
        assert_documented("| counter | CSV | OpenMetrics |\n|---|---|---|\n", &rows);
    }

    #[test]
    fn names_are_unique_and_end_with_their_unit() {
        let mut names = BTreeSet::new();
        for counter in VM_COUNTERS {
            let unit = match counter.unit {
                CounterUnit::Count => "",
                CounterUnit::Ratio => "_ratio",
                CounterUnit::PerSecond => "_per_second",
                CounterUnit::Time => "_seconds",
                CounterUnit::Bytes => "_bytes",
                CounterUnit::BytesPerSecond => "_bytes_per_second",
            };
            assert!(counter.csv.ends_with(unit), "{}", counter.csv);
            let metric = counter.metric.as_ref().map_or("", |metric| metric.name);
            for name in [counter.column, counter.csv, metric] {
                assert!(name.is_empty() || names.insert(name), "{name} twice");
            }
            let is_column = !counter.column.is_empty();
            assert_eq!(
                is_column,
                !counter.explanation.is_empty(),
                "{}",
                counter.csv
            );
        }
    }
}
