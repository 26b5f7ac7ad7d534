//! The counters of VMs for other programs: an interval as CSV (RFC 4180), a line for each VM, where what is not known is empty;
//! OpenMetrics text for Prometheus, with units in names and counters that end in `_total`.

use super::counters::{KINDS, Labels, counter_value, samples};
use crate::text::Joined;
use std::fmt::Write;
use vmtax_findings::{TopSample, VmRates};
use vmtax_model::{Accelerator, Counter, VmCounters, VmFacts};

/// The first line.
pub fn csv_head() -> String {
    let names = Counter::shown().map(Counter::csv).joined(",");
    format!("time,name,pid,interval_seconds,{names},busiest_thread,finding\r\n")
}

/// A line for each VM.
pub fn csv_rows(sample: &TopSample) -> String {
    let row = |vm: &VmRates| {
        let figures = Counter::shown().map(|counter| {
            let value = counter_value(counter, vm).map(|value| counter.unit.in_csv(value));
            value.map_or(String::new(), |value| value.to_string())
        });
        let busiest = vm
            .busiest()
            .map_or(String::new(), |thread| thread.role.label());
        let finding = vm.findings.first().map_or("", |advice| &advice.rule);
        let texts = [
            quoted(&sample.time),
            quoted(vm.name.as_deref().unwrap_or_default()),
            vm.pid.to_string(),
            vm.seconds.to_string(),
        ];
        let all = texts.into_iter().chain(figures);
        all.chain([quoted(&busiest), quoted(finding)]).joined(",") + "\r\n"
    };
    sample.vms.iter().map(row).collect()
}

/// A field, in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The counters of all VMs, to the end of the exposition.
///
/// No library writes it: those that do take the sum of a histogram's values, which QEMU does not count.
pub fn openmetrics(vms: &[(&VmFacts, &VmCounters)]) -> String {
    let mut out = String::new();
    info(&mut out, vms);
    for counter in Counter::all().filter(|counter| !counter.metric.is_empty()) {
        let name = counter.sample_name();
        let mut lines = String::new();
        for (facts, vm) in vms {
            for (labels, value) in samples(counter, facts, vm) {
                let labels = text(facts, &labels);
                let _ = writeln!(lines, "{name}{labels} {value}");
            }
        }
        let kind = match counter.unit.is_gauge() {
            true => "gauge",
            false => "counter",
        };
        family(&mut out, counter.metric, kind, counter.help, &lines);
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
            .map_or("", |one| one.manager.as_str());
        let accelerator = facts.accelerator.map_or("", Accelerator::as_str);
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
    let disks = vms
        .iter()
        .flat_map(|(facts, vm)| vm.disks.iter().map(move |disk| (facts, disk)));
    for (facts, disk) in disks {
        for (kind, histogram) in KINDS.iter().zip(disk.histograms.iter().flatten()) {
            let ends = histogram
                .boundaries
                .iter()
                .map(|ns| (*ns as f64 / 1e9).to_string());
            let ends = ends.chain(["+Inf".to_owned()]);
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
    let all = of_vm.iter().chain(own);
    let all = all
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .joined(",");
    format!("{{{all}}}")
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

    #[test]
    fn a_line_has_the_fields_of_the_head_and_unknown_ones_are_empty() {
        let vm = VmRates {
            pid: 7,
            name: Some("a,\"b".to_owned()),
            run: Some(0.5),
            ..VmRates::default()
        };
        let sample = TopSample {
            time: "t".to_owned(),
            vms: vec![vm],
            ..TopSample::default()
        };
        let (head, rows) = (csv_head(), csv_rows(&sample));
        let position_of = |name: &str| {
            head.trim_end()
                .split(',')
                .position(|field| field == name)
                .unwrap()
        };
        assert!(rows.starts_with("t,\"a,\"\"b\",7,"), "{rows}");
        // The quoted name has a comma of its own.
        let fields: Vec<&str> = rows.trim_end().split(',').collect();
        assert_eq!(fields.len(), head.trim_end().split(',').count() + 1);
        assert_eq!(
            (
                fields[position_of("run_ratio") + 1],
                fields[position_of("ready_ratio") + 1],
                fields[position_of("blkavg_seconds") + 1]
            ),
            ("0.5", "", "")
        );
        assert!(rows.ends_with("\r\n"));
    }

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
            throttled_ns: None,
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
