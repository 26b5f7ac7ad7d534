//! Counters of VMs as OpenMetrics text, for Prometheus: names with their unit, counters that end in `_total`.

use super::counters::{KINDS, Labels, VM_COUNTERS};
use crate::text::Joined;
use std::fmt::Write;
use vmtax_model::{Managed, VmCounters, VmFacts};

/// The counters of all VMs, to the end of the exposition.
///
/// No library writes it: those that do take the sum of a histogram's values, which QEMU does not count.
pub fn openmetrics(vms: &[(&VmFacts, &VmCounters)]) -> String {
    let mut out = String::new();
    info(&mut out, vms);
    for metric in VM_COUNTERS.iter().filter_map(|one| one.metric.as_ref()) {
        let name = metric.sample_name();
        let mut lines = String::new();
        for (facts, vm) in vms {
            for (labels, value) in (metric.samples)(facts, vm) {
                let labels = text(facts, &labels);
                let _ = writeln!(lines, "{name}{labels} {value}");
            }
        }
        family(&mut out, metric.name, metric.kind, metric.help, &lines);
    }
    histograms(&mut out, vms);
    out + "# EOF\n"
}

/// Writes a metric's head and its samples; nothing where there are none.
fn family(out: &mut String, name: &str, kind: &str, help: &str, samples: &str) {
    if samples.is_empty() {
        return;
    }
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for unit in ["seconds", "bytes"] {
        if name.ends_with(&format!("_{unit}")) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
    }
    let _ = writeln!(out, "# HELP {name} {help}");
    out.push_str(samples);
}

/// Writes the facts about each VM that are no figures, as labels.
fn info(out: &mut String, vms: &[(&VmFacts, &VmCounters)]) {
    let mut lines = String::new();
    for (facts, _) in vms {
        let manager = facts
            .managed
            .as_ref()
            .map_or("", |Managed { manager, .. }| manager.as_str());
        let accelerator = facts
            .accelerator
            .map_or("", |accelerator| accelerator.as_str());
        let labels = vec![
            ("manager", manager.to_owned()),
            ("accelerator", accelerator.to_owned()),
        ];
        let _ = writeln!(lines, "vmtax_vm_info{} 1", text(facts, &labels));
    }
    family(out, "vmtax_vm", "info", "A running VM.", &lines);
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
    let help = "Times of requests of a disk since its histogram was set.";
    family(out, NAME, "histogram", help, &lines);
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
    format!("{{{}}}", all.joined(","))
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
    use vmtax_model::{
        DiskCounters, LatencyHistogram, RequestCounters, Role, RunState, ThreadCounters,
    };

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
