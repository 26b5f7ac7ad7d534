//! Figures of a VM by the entries of [`Counter`], the reasons why it has none, and the samples of their metrics for Prometheus.

use std::collections::BTreeMap;
use vmtax_findings::{DiskRates, VmRates};
use vmtax_model::{
    Accelerator, Counter, DiskCounters, NicCounters, RequestCounters, Role, RunState,
    ThreadCounters, VmCounters, VmFacts,
};

/// Returns the figure of a counter, by which rows are sorted, the largest first; `None` where it is not known.
pub fn counter_value(counter: &Counter, vm: &VmRates) -> Option<f64> {
    let has_tap = !vm.nics.is_empty();
    match counter.name {
        "running" => Some(runs(vm.state.as_ref()?)),
        "vcpus" => Some(vm.vcpus as f64),
        "run" => vm.run,
        "ready" => vm.ready,
        "throttled" => vm.throttled,
        "guest_steal" => vm.guest.as_ref()?.steal,
        "exits" => Some(vm.exits?.per_s),
        "halted" => Some(vm.exits?.halted),
        "requests" => Some(vm.io?.per_s()),
        "reads" => Some(vm.io?.reads_per_s),
        "writes" => Some(vm.io?.writes_per_s),
        "flushes" => Some(vm.io?.flushes_per_s),
        "read" => Some(vm.io?.read_bytes_per_s),
        "written" => Some(vm.io?.written_bytes_per_s),
        "blkavg" => vm.io?.blkavg_ns,
        "gavg" => vm.gavg_ns(),
        "kavg" => largest(vm, |disk| disk.kavg_ns),
        "davg" => largest(vm, |disk| disk.davg_ns),
        "p99" => vm.io?.p99_ns,
        "requests_in_flight" => Some(vm.io?.in_flight? as f64),
        "packets" => has_tap.then(|| vm.packets_per_s()),
        "network" => has_tap.then(|| vm.network_bytes_per_s()),
        "dropped_packets" => has_tap.then(|| vm.drops_per_s()),
        "process_read" => Some(vm.process_io?[0]),
        "process_written" => Some(vm.process_io?[1]),
        _ => vm.counters.get(counter),
    }
}

/// Returns the text of a counter's cell; "–" where the value is not known.
pub fn counter_text(counter: &Counter, vm: &VmRates) -> String {
    counter.unit.text(counter_value(counter, vm))
}

/// Labels of a sample beside those of its VM.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Returns the samples of a counter's metric, in the unit of its name; none where they are not known.
pub(super) fn samples(counter: &Counter, facts: &VmFacts, vm: &VmCounters) -> Vec<(Labels, f64)> {
    match counter.name {
        "running" => vm.state.iter().flat_map(|state| one(runs(state))).collect(),
        "vcpus" => one(facts.vcpus as f64),
        "run" => by_role(vm, |thread| thread.cpu_ns),
        "ready" => by_role(vm, |thread| thread.wait_ns),
        "requests" => by_kind(vm, |requests| requests.count as f64),
        "read" => by_kind(vm, |requests| requests.bytes as f64),
        "blkavg" => by_kind(vm, |requests| requests.total_ns as f64 / 1e9),
        "requests_in_flight" => in_flight(vm),
        "packets" => by_direction(vm, |nic| [nic.rx_packets, nic.tx_packets]),
        "network" => by_direction(vm, |nic| [nic.rx_bytes, nic.tx_bytes]),
        "dropped_packets" => by_direction(vm, |nic| [nic.rx_dropped, nic.tx_dropped]),
        "memory_pressure_some" => pressure(vm),
        _ => number(counter, vm).map_or(Vec::new(), one),
    }
}

/// Returns the number of a counter in the unit of Prometheus.
fn number(counter: &Counter, vm: &VmCounters) -> Option<f64> {
    Some(counter.unit.in_base_unit(vm.counters.get(counter)?))
}

/// The times of both kinds of pressure.
fn pressure(vm: &VmCounters) -> Vec<(Labels, f64)> {
    const KINDS: [(&str, &Counter); 2] = [
        ("some", Counter::named("memory_pressure_some")),
        ("full", Counter::named("memory_pressure_full")),
    ];
    let seconds = |(kind, counter): (&str, &Counter)| {
        Some((vec![("kind", kind.to_owned())], number(counter, vm)?))
    };
    KINDS.into_iter().filter_map(seconds).collect()
}

fn in_flight(vm: &VmCounters) -> Vec<(Labels, f64)> {
    let requests = |disk: &DiskCounters| {
        let label = ("disk", disk.name.clone());
        Some((vec![label], disk.in_flight? as f64))
    };
    vm.disks.iter().filter_map(requests).collect()
}

/// The kinds of requests, as QEMU counts them.
pub(super) const KINDS: [&str; 3] = ["read", "write", "flush"];

/// Returns 1 for a guest that runs, otherwise 0.
fn runs(state: &RunState) -> f64 {
    f64::from(u8::from(*state == RunState::Running))
}

fn one(value: f64) -> Vec<(Labels, f64)> {
    vec![(Vec::new(), value)]
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

/// Returns the reason for "–" of a counter at a level.
pub(super) fn unknown(counter: &Counter, vm: &VmRates, level: u8) -> String {
    match counter.name {
        "run" | "ready" => "none of its threads is known to be a vCPU".to_owned(),
        "throttled" => {
            "the VM's cgroup has no cpu controller, or the VM moved to another cgroup".to_owned()
        }
        "guest_steal" | "gavg" => no_agent(vm, level),
        "exits" => no_exits(vm),
        "requests" | "blkavg" => no_requests(vm),
        "kavg" | "davg" => no_device_time(vm),
        "p99" => no_histograms(vm, level),
        "requests_in_flight" => no_queues(vm, level),
        "packets" | "dropped_packets" => "it has no tap device".to_owned(),
        _ if counter.needs.is_empty() => {
            "it could not be read, or its counter was reset in the interval".to_owned()
        }
        _ => format!(
            "it requires {}, or was reset in the interval",
            counter.needs
        ),
    }
}

const NO_REQUESTS: &str = "no requests in the interval";

const FROM_LEVEL_1: &str = "needs --level 1";

fn no_exits(vm: &VmRates) -> String {
    match vm.accelerator {
        Some(Accelerator::Kvm) if !vm.vmm.is_qemu() => {
            "/sys/kernel/debug/kvm (root) does not have KVM's counters of it"
        }
        Some(Accelerator::Kvm) => {
            "neither /sys/kernel/debug/kvm (root) nor QMP query-stats (QEMU 7.1) has KVM's counters"
        }
        Some(Accelerator::Tcg) => "only KVM has VM exits, and TCG runs this guest",
        None => "the accelerator is not known",
    }
    .to_owned()
}

/// The reason for figures that QEMU or libvirt counts.
fn no_requests(vm: &VmRates) -> String {
    match (&vm.io, vm.monitor_timeout_s, &vm.no_monitor) {
        (Some(_), ..) => NO_REQUESTS.to_owned(),
        (None, Some(seconds), _) => format!("QMP did not answer within {seconds} s"),
        (None, None, Some(why)) => format!("no monitor: {why}"),
        (None, None, None) if vm.process_stop.is_some() => {
            "QEMU's process is stopped, and does not answer".to_owned()
        }
        (None, None, None) if vm.disks.is_empty() => "it has no disk".to_owned(),
        (None, None, None) => "QEMU's monitor did not answer".to_owned(),
    }
}

/// The reason for figures of the guest's agent.
fn no_agent(vm: &VmRates, level: u8) -> String {
    match (level, &vm.guest) {
        (0, _) => FROM_LEVEL_1,
        (_, None) => "no QEMU guest agent answers",
        (_, Some(_)) => "the guest counted nothing in the interval",
    }
    .to_owned()
}

fn no_device_time(vm: &VmRates) -> String {
    if vm.io.is_none_or(|io| io.per_s() <= 0.0) {
        return no_requests(vm);
    }
    if vm.disks.iter().any(|disk| disk.davg_ns.is_some()) {
        return "fewer than 10 requests, or they take longer at the device (DAVG) than in QEMU (BLKAVG)".to_owned();
    }
    let why = match vm.disks.iter().any(|disk| disk.davg_needs_requests) {
        true => {
            "the kernel counts the times of a volume's requests in ticks, too long for so few requests"
        }
        false => "only for disks on a host block device with cache=none",
    };
    let vm = vm.argument();
    format!("{why}; `vmtax layers --vm {vm}` traces the requests to raw images and block devices")
}

fn no_histograms(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(io)) if io.per_s() > 0.0 => {
            "QEMU has no latency histograms of these disks".to_owned()
        }
        _ => no_requests(vm),
    }
}

fn no_queues(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(_)) => "no disk is virtio-blk, or QEMU is older than 7.2".to_owned(),
        (_, None) => no_requests(vm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn column(counter: &Counter) -> String {
        let Counter {
            column,
            what,
            esxtop,
            needs,
            ..
        } = counter;
        format!("| {column} | {what} | {esxtop} | {needs} |\n")
    }

    fn field(counter: &Counter) -> String {
        let metric = match counter.metric {
            "" => String::new(),
            _ => format!("`{}`", counter.sample_name()),
        };
        let what = match counter.column {
            "" => counter.what,
            column => column,
        };
        format!("| {what} | `{}` | {metric} |\n", counter.csv())
    }

    /// `make test` fails where the page is out of date; with VMTAX_WRITE_DOCS set, this writes it.
    #[test]
    fn the_page_lists_the_counters() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/top.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let mut current = page.clone();
        let columns: String = Counter::columns().map(column).collect();
        let fields: String = Counter::shown().map(field).collect();
        for (head, rows) in [
            (
                "| column | what it is | esxtop | needs |\n|---|---|---|---|\n",
                columns,
            ),
            ("| counter | CSV | OpenMetrics |\n|---|---|---|\n", fields),
        ] {
            let (before, table) = current.split_once(head).expect(head);
            let (_, after) = table.split_once("\n\n").unwrap();
            current = format!("{before}{head}{rows}\n{after}");
        }
        if std::env::var_os("VMTAX_WRITE_DOCS").is_some() {
            std::fs::write(&path, &current).unwrap();
        } else {
            assert!(
                page == current,
                "docs/top.md is out of date: VMTAX_WRITE_DOCS=1 cargo test -p vmtax-report"
            );
        }
    }
}
