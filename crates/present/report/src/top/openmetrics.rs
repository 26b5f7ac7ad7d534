//! Counters of VMs as OpenMetrics text, for Prometheus: names with their unit, counters that end in `_total`.

use std::fmt::Write;
use vmtax_model::{DiskCounters, Managed, NicCounters, Role, RunState, VmCounters, VmFacts};

/// A metric: its name without `_total`, its type, its unit, what it is, and its samples of a VM.
struct Family {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
    samples: fn(&VmFacts, &VmCounters) -> Vec<(Labels, f64)>,
}

/// Labels of a sample beside those of its VM.
type Labels = Vec<(&'static str, String)>;

const FAMILIES: &[Family] = &[
    Family {
        name: "vmtax_vm_info",
        kind: "info",
        unit: "",
        help: "A running VM.",
        samples: |facts, _| {
            let manager = facts
                .managed
                .as_ref()
                .map_or("", |Managed { manager, .. }| manager.as_str());
            let accelerator = facts
                .accelerator
                .map_or("", |accelerator| accelerator.as_str());
            vec![(
                vec![
                    ("manager", manager.to_owned()),
                    ("accelerator", accelerator.to_owned()),
                ],
                1.0,
            )]
        },
    },
    Family {
        name: "vmtax_vm_running",
        kind: "gauge",
        unit: "",
        help: "1 where the guest runs, 0 where its vCPUs are stopped.",
        samples: |_, vm| {
            vm.state
                .iter()
                .map(|state| one(f64::from(u8::from(*state == RunState::Running))))
                .collect()
        },
    },
    Family {
        name: "vmtax_vm_vcpus",
        kind: "gauge",
        unit: "",
        help: "vCPUs of the guest.",
        samples: |facts, _| vec![one(facts.vcpus as f64)],
    },
    Family {
        name: "vmtax_vm_thread_cpu_seconds",
        kind: "counter",
        unit: "seconds",
        help: "CPU time of QEMU's threads by role.",
        samples: |_, vm| by_role(vm, |thread| thread.cpu_ns),
    },
    Family {
        name: "vmtax_vm_thread_run_queue_wait_seconds",
        kind: "counter",
        unit: "seconds",
        help: "Time that QEMU's threads were runnable without a CPU, by role.",
        samples: |_, vm| by_role(vm, |thread| thread.wait_ns),
    },
    Family {
        name: "vmtax_vm_throttled_seconds",
        kind: "counter",
        unit: "seconds",
        help: "Time that the VM's control groups were throttled by a CPU quota.",
        samples: |_, vm| {
            vm.cgroup
                .throttled_us
                .iter()
                .map(|us| one(*us as f64 / 1e6))
                .collect()
        },
    },
    Family {
        name: "vmtax_vm_exits",
        kind: "counter",
        unit: "",
        help: "VM exits of all vCPUs.",
        samples: |_, vm| vm.kvm.iter().map(|kvm| one(kvm.exits as f64)).collect(),
    },
    Family {
        name: "vmtax_vm_disk_requests",
        kind: "counter",
        unit: "",
        help: "Completed requests of a disk.",
        samples: |_, vm| by_kind(vm, |requests| requests.count as f64),
    },
    Family {
        name: "vmtax_vm_disk_request_bytes",
        kind: "counter",
        unit: "bytes",
        help: "Bytes of completed requests of a disk.",
        samples: |_, vm| by_kind(vm, |requests| requests.bytes as f64),
    },
    Family {
        name: "vmtax_vm_disk_request_seconds",
        kind: "counter",
        unit: "seconds",
        help: "Sum of the times of completed requests of a disk, in QEMU and below.",
        samples: |_, vm| by_kind(vm, |requests| requests.total_ns as f64 / 1e9),
    },
    Family {
        name: "vmtax_vm_disk_requests_in_flight",
        kind: "gauge",
        unit: "",
        help: "Requests of a disk that QEMU has taken and not yet returned.",
        samples: |_, vm| {
            let of = |disk: &DiskCounters| {
                Some((vec![("disk", disk.name.clone())], disk.in_flight? as f64))
            };
            vm.disks.iter().filter_map(of).collect()
        },
    },
    Family {
        name: "vmtax_vm_network_packets",
        kind: "counter",
        unit: "",
        help: "Packets that the guest received (rx) and sent (tx) through a tap device.",
        samples: |_, vm| by_direction(vm, |nic| [nic.rx_packets, nic.tx_packets]),
    },
    Family {
        name: "vmtax_vm_network_bytes",
        kind: "counter",
        unit: "bytes",
        help: "Bytes that the guest received (rx) and sent (tx) through a tap device.",
        samples: |_, vm| by_direction(vm, |nic| [nic.rx_bytes, nic.tx_bytes]),
    },
    Family {
        name: "vmtax_vm_network_dropped_packets",
        kind: "counter",
        unit: "",
        help: "Packets to (rx) and from (tx) the guest that a tap device dropped.",
        samples: |_, vm| by_direction(vm, |nic| [nic.rx_dropped, nic.tx_dropped]),
    },
    Family {
        name: "vmtax_vm_resident_bytes",
        kind: "gauge",
        unit: "bytes",
        help: "Memory of QEMU's process in the host's RAM.",
        samples: |_, vm| vec![one(vm.memory.resident as f64)],
    },
    Family {
        name: "vmtax_vm_swapped_bytes",
        kind: "gauge",
        unit: "bytes",
        help: "Memory of QEMU's process that is swapped out.",
        samples: |_, vm| vec![one(vm.memory.swapped as f64)],
    },
    Family {
        name: "vmtax_vm_balloon_bytes",
        kind: "gauge",
        unit: "bytes",
        help: "The guest's memory without what the balloon holds.",
        samples: |_, vm| vm.balloon.iter().map(|bytes| one(*bytes as f64)).collect(),
    },
    Family {
        name: "vmtax_vm_major_faults",
        kind: "counter",
        unit: "",
        help: "Page faults of QEMU's process that needed I/O.",
        samples: |_, vm| vec![one(vm.memory.major_faults as f64)],
    },
    Family {
        name: "vmtax_vm_memory_pressure_seconds",
        kind: "counter",
        unit: "seconds",
        help: "Time that some or all (full) tasks of the VM's control group waited for memory.",
        samples: |_, vm| {
            let of = |kind: &str, us: Option<u64>| {
                Some((vec![("kind", kind.to_owned())], us? as f64 / 1e6))
            };
            [
                of("some", vm.cgroup.memory_some_us),
                of("full", vm.cgroup.memory_full_us),
            ]
            .into_iter()
            .flatten()
            .collect()
        },
    },
];

/// The counters of all VMs, to the end of the exposition.
pub fn openmetrics(vms: &[(&VmFacts, &VmCounters)]) -> String {
    let mut out = String::new();
    for family in FAMILIES {
        let name = family
            .name
            .strip_suffix("_info")
            .filter(|_| family.kind == "info")
            .unwrap_or(family.name);
        let samples: Vec<String> = vms
            .iter()
            .flat_map(|(facts, vm)| lines(family, facts, vm))
            .collect();
        if samples.is_empty() {
            continue;
        }
        let _ = writeln!(out, "# TYPE {name} {}", family.kind);
        if !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", family.unit);
        }
        let _ = writeln!(out, "# HELP {name} {}", family.help);
        out.extend(samples);
    }
    histograms(&mut out, vms);
    out + "# EOF\n"
}

fn lines(family: &Family, facts: &VmFacts, vm: &VmCounters) -> Vec<String> {
    let suffix = if family.kind == "counter" {
        "_total"
    } else {
        ""
    };
    let line = |(labels, value): (Labels, f64)| {
        format!("{}{suffix}{} {value}\n", family.name, text(facts, &labels))
    };
    (family.samples)(facts, vm).into_iter().map(line).collect()
}

/// QEMU's latency histograms. Their bins are kept apart there, and cumulative here.
fn histograms(out: &mut String, vms: &[(&VmFacts, &VmCounters)]) {
    const NAME: &str = "vmtax_vm_disk_request_duration_seconds";
    let mut lines = String::new();
    for (facts, disk) in vms
        .iter()
        .flat_map(|(facts, vm)| vm.disks.iter().map(move |disk| (facts, disk)))
    {
        for (kind, histogram) in KINDS.iter().zip(disk.histograms.iter().flatten()) {
            let ends = histogram
                .boundaries
                .iter()
                .map(|ns| (*ns as f64 / 1e9).to_string())
                .chain(["+Inf".to_owned()]);
            let mut below = 0u64;
            for (end, bin) in ends.zip(&histogram.bins) {
                below = below.saturating_add(*bin);
                let labels = vec![
                    ("disk", disk.name.clone()),
                    ("kind", (*kind).to_owned()),
                    ("le", end),
                ];
                let _ = writeln!(lines, "{NAME}_bucket{} {below}", text(facts, &labels));
            }
        }
    }
    if !lines.is_empty() {
        let help = "Times of requests of a disk since its histogram was set.";
        let _ = write!(
            out,
            "# TYPE {NAME} histogram\n# UNIT {NAME} seconds\n# HELP {NAME} {help}\n{lines}"
        );
    }
}

const KINDS: [&str; 3] = ["read", "write", "flush"];

fn one(value: f64) -> (Labels, f64) {
    (Vec::new(), value)
}

/// Times of threads, added up for those of one role, so that threads that come and go make no new series.
fn by_role(vm: &VmCounters, ns: fn(&vmtax_model::ThreadCounters) -> u64) -> Vec<(Labels, f64)> {
    let mut sums: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
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

fn by_kind(vm: &VmCounters, value: fn(&vmtax_model::RequestCounters) -> f64) -> Vec<(Labels, f64)> {
    let of = |disk: &DiskCounters| {
        let labels = |kind: &str| vec![("disk", disk.name.clone()), ("kind", kind.to_owned())];
        disk.qemu
            .iter()
            .flat_map(|all| {
                KINDS
                    .iter()
                    .zip(all)
                    .map(|(kind, one)| (labels(kind), value(one)))
            })
            .collect()
    };
    let all: Vec<Vec<(Labels, f64)>> = vm.disks.iter().map(of).collect();
    all.concat()
}

fn by_direction(vm: &VmCounters, values: fn(&NicCounters) -> [u64; 2]) -> Vec<(Labels, f64)> {
    let of = |nic: &NicCounters| {
        let labels = |direction: &str| {
            vec![
                ("tap", nic.tap.clone()),
                ("direction", direction.to_owned()),
            ]
        };
        let [rx, tx] = values(nic);
        [(labels("rx"), rx as f64), (labels("tx"), tx as f64)]
    };
    vm.nics.iter().flat_map(of).collect()
}

/// The labels of a sample: its VM's, then its own.
fn text(facts: &VmFacts, own: &Labels) -> String {
    let of_vm = [
        ("pid", facts.pid.to_string()),
        ("vm", facts.name.clone().unwrap_or_default()),
    ];
    let all = of_vm
        .iter()
        .chain(own)
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", all.collect::<Vec<_>>().join(","))
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{LatencyHistogram, RequestCounters, ThreadCounters};

    fn facts() -> VmFacts {
        VmFacts {
            name: Some("a\"\\\nb".to_owned()),
            vcpus: 2,
            ..VmFacts::unknown(7)
        }
    }

    #[test]
    fn the_text_follows_the_conventions() {
        let histogram = LatencyHistogram {
            boundaries: vec![1_000_000],
            bins: vec![2, 3],
        };
        let disk = DiskCounters {
            name: "vd0".to_owned(),
            qemu: Some([
                RequestCounters {
                    count: 5,
                    bytes: 4096,
                    total_ns: 1_500_000_000,
                },
                RequestCounters::default(),
                RequestCounters::default(),
            ]),
            histograms: Some(vec![histogram]),
            ..DiskCounters::default()
        };
        let thread = |tid, ns| ThreadCounters {
            tid,
            role: Role::Vcpu(0),
            cpu_ns: ns,
            wait_ns: 0,
            turns: 0,
        };
        let vm = VmCounters {
            threads: vec![thread(1, 1_000_000_000), thread(2, 500_000_000)],
            disks: vec![disk],
            state: Some(RunState::Stopped("paused".to_owned())),
            ..VmCounters::default()
        };
        let text = openmetrics(&[(&facts(), &vm)]);
        let labels = r#"pid="7",vm="a\"\\\nb""#;
        for line in [
            format!("vmtax_vm_thread_cpu_seconds_total{{{labels},role=\"vCPU 0\"}} 1.5"),
            format!(
                "vmtax_vm_disk_request_seconds_total{{{labels},disk=\"vd0\",kind=\"read\"}} 1.5"
            ),
            format!(
                "vmtax_vm_disk_request_duration_seconds_bucket{{{labels},disk=\"vd0\",kind=\"read\",le=\"0.001\"}} 2"
            ),
            format!(
                "vmtax_vm_disk_request_duration_seconds_bucket{{{labels},disk=\"vd0\",kind=\"read\",le=\"+Inf\"}} 5"
            ),
            format!("vmtax_vm_running{{{labels}}} 0"),
            "# TYPE vmtax_vm info".to_owned(),
            "# UNIT vmtax_vm_disk_request_bytes bytes".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        assert!(
            text.ends_with("\n# EOF\n") && !text.contains("vmtax_vm_exits"),
            "{text}"
        );
        // Each family once, with all its samples behind its head; a counter's end in _total, and a unit ends its name.
        let mut family = String::new();
        let mut known = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            match line.strip_prefix("# TYPE ") {
                Some(head) => {
                    family = head.split(' ').next().unwrap().to_owned();
                    assert!(known.insert(family.clone()), "{family} twice");
                }
                None if line.starts_with("# UNIT ") => {
                    let (name, unit) = line["# UNIT ".len()..].split_once(' ').unwrap();
                    assert!(name.ends_with(&format!("_{unit}")), "{line}");
                }
                None => assert!(
                    line.starts_with(&family) || line.starts_with("# HELP "),
                    "{line}"
                ),
            }
        }
        assert_eq!(openmetrics(&[]), "# EOF\n");
    }
}
