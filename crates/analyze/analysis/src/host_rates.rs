//! Rates of the host between two samples of its counters, with what of them its VMs used.

use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{Advice, HostRates, ProcessRate, VmRates};
use vmtax_model::{HostCounters, ProcessCpu};
use vmtax_rules::{Evidence, HostLoad};

/// A process that uses fewer CPUs is not named.
const MIN_USED: f64 = 0.1;

/// The rates between two samples of the host, with what the rules find in them and in the settings of its kernel; `None` where the
/// samples are in no order of time. `vms`: those that were sampled in the same interval.
pub fn host_rates(
    before: &HostCounters,
    after: &HostCounters,
    vms: &[VmRates],
    settings: &BTreeMap<String, String>,
) -> Option<HostRates> {
    let ns = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)?;
    let seconds = ns as f64 / 1e9;
    let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
    let growth =
        |old: Option<u64>, new: Option<u64>| Some(new?.checked_sub(old?)? as f64 / seconds);
    let used_by_vms: f64 = vms.iter().map(used_by).sum();
    let busy = rate(before.busy_ms, after.busy_ms) / 1e3;
    // The kernel may count the time of CPUs in ticks, and that of threads exactly.
    let used = busy.max(used_by_vms).min(after.cpus as f64);
    let used_by_vms = used_by_vms.min(used);
    let mut rates = HostRates {
        cpus: after.cpus,
        used,
        used_by_vms,
        used_by_others: used - used_by_vms,
        largest_other: largest_other(before, after, seconds, &of_vms(vms)),
        runnable: after.runnable,
        load: after.load,
        memory: after.memory,
        available: after.available,
        swapped_in_per_s: growth(before.swapped_in, after.swapped_in),
        swapped_out_per_s: growth(before.swapped_out, after.swapped_out),
        findings: Vec::new(),
    };
    rates.findings = findings(&rates, vms, settings);
    Some(rates)
}

/// CPUs that a VM's threads used, with the programs that serve it.
fn used_by(vm: &VmRates) -> f64 {
    let threads = vm.threads.iter().map(|thread| thread.run);
    threads
        .chain(vm.daemons.iter().map(|daemon| daemon.run))
        .sum()
}

/// PIDs of the VMs' processes and of the programs that serve them, TIDs of the kernel's threads that do.
fn of_vms(vms: &[VmRates]) -> BTreeSet<i32> {
    let ids = |vm: &VmRates| {
        let daemons = vm.daemons.iter().map(|daemon| daemon.pid);
        let threads = vm.threads.iter().map(|thread| thread.tid);
        let all: Vec<i32> = daemons.chain(threads).chain([vm.pid]).collect();
        all
    };
    vms.iter().flat_map(ids).collect()
}

/// The process that used most CPU time, besides these, of those that were there before.
fn largest_other(
    before: &HostCounters,
    after: &HostCounters,
    seconds: f64,
    without: &BTreeSet<i32>,
) -> Option<ProcessRate> {
    let key = |process: &ProcessCpu| (process.pid, process.started);
    let old: BTreeMap<(i32, u64), u64> = before
        .processes
        .iter()
        .map(|process| (key(process), process.cpu_ms))
        .collect();
    let rate = |process: &ProcessCpu| {
        let cpu_ms = process.cpu_ms.saturating_sub(*old.get(&key(process))?);
        Some(ProcessRate {
            pid: process.pid,
            name: process.name.clone(),
            used: cpu_ms as f64 / 1e3 / seconds,
        })
    };
    let others = after.processes.iter();
    let others = others.filter(|process| !without.contains(&process.pid));
    let largest = others
        .filter_map(rate)
        .max_by(|a, b| a.used.total_cmp(&b.used));
    largest.filter(|process| process.used >= MIN_USED)
}

/// Returns the findings that concern all VMs: the host's load, then settings that each of them has alike.
fn findings(host: &HostRates, vms: &[VmRates], settings: &BTreeMap<String, String>) -> Vec<Advice> {
    let load = HostLoad { host, vms };
    let mut all = vmtax_rules::evaluate(&Evidence {
        load: Some(&load),
        host_settings: Some(settings),
        ..Evidence::default()
    });
    let of_vm = |vm| {
        vmtax_rules::settings_of_host(&Evidence {
            vm: Some(vm),
            host_settings: Some(settings),
            ..Evidence::default()
        })
    };
    let mut of_each = vms.iter().map(of_vm);
    let mut of_all: Vec<Advice> = of_each.next().unwrap_or_default();
    for others in of_each {
        of_all.retain(|advice| others.iter().any(|other| other.rule == advice.rule));
    }
    all.extend(of_all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DaemonRates, ThreadRates};
    use vmtax_model::{Accelerator, Role};

    fn counters(seconds: u64, busy_ms: u64, cpu_ms: [u64; 3]) -> HostCounters {
        let process = |(pid, cpu_ms): (i32, u64)| ProcessCpu {
            pid,
            started: 1,
            name: format!("p{pid}"),
            cpu_ms,
        };
        HostCounters {
            at_ns: seconds * 1_000_000_000,
            cpus: 4,
            busy_ms,
            runnable: Some(5),
            load: Some(2.5),
            memory: Some(8 << 30),
            available: Some(2 << 30),
            swapped_in: Some(seconds * 4096),
            swapped_out: None,
            processes: (7..).zip(cpu_ms).map(process).collect(),
        }
    }

    fn vm(pid: i32, accelerator: Accelerator) -> VmRates {
        let thread = ThreadRates {
            tid: pid + 100,
            role: Role::Vcpu(0),
            run: 0.5,
            ready: 0.0,
            turns_per_s: 0.0,
            throttled: None,
        };
        let daemon = DaemonRates {
            pid: pid + 2,
            run: 0.25,
            ..DaemonRates::default()
        };
        VmRates {
            pid,
            accelerator: Some(accelerator),
            threads: vec![thread],
            daemons: vec![daemon],
            ..VmRates::default()
        }
    }

    #[test]
    fn the_vms_and_all_else_are_the_host_and_the_largest_process_is_none_of_a_vm() {
        let vms = [vm(7, Accelerator::Kvm), vm(20, Accelerator::Tcg)];
        let before = counters(10, 1000, [0, 0, 0]);
        // The first is a VM's, the third its daemon.
        let after = counters(12, 7000, [4000, 600, 3000]);
        let none = BTreeMap::new();
        let rates = host_rates(&before, &after, &vms, &none).unwrap();
        assert_eq!(
            [rates.used, rates.used_by_vms, rates.used_by_others],
            [3.0, 1.5, 1.5]
        );
        let largest = rates.largest_other.unwrap();
        assert_eq!(
            (largest.pid, largest.name.as_str(), largest.used),
            (8, "p8", 0.3)
        );
        assert_eq!(
            (rates.swapped_in_per_s, rates.swapped_out_per_s),
            (Some(4096.0), None)
        );
        let quiet = counters(12, 1000, [4000, 100, 3000]);
        let rates = host_rates(&before, &quiet, &vms, &none).unwrap();
        assert_eq!(
            (rates.used, rates.used_by_others, rates.largest_other),
            (1.5, 0.0, None),
            "threads that the kernel counts more exactly than CPUs"
        );
        assert_eq!(host_rates(&after, &before, &vms, &none), None);
    }

    #[test]
    fn a_process_that_has_the_pid_of_another_began_at_zero() {
        let before = counters(10, 0, [0, 0, 0]);
        let mut after = counters(12, 2000, [0, 2000, 0]);
        after.processes[1].started = 2;
        let rates = host_rates(&before, &after, &[], &BTreeMap::new()).unwrap();
        assert_eq!(rates.largest_other, None);
    }

    #[test]
    fn a_setting_of_the_host_is_found_once_and_only_where_all_vms_have_it() {
        let settings = [
            ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
            ("/sys/module/kvm/parameters/halt_poll_ns", "0"),
        ];
        let settings = settings.map(|(file, value)| (file.to_owned(), value.to_owned()));
        let settings = BTreeMap::from(settings);
        let found = |vms: &[VmRates]| {
            let (before, after) = (counters(10, 0, [0; 3]), counters(12, 0, [0; 3]));
            let rates = host_rates(&before, &after, vms, &settings).unwrap();
            let rules = rates.findings.into_iter().map(|advice| advice.rule);
            rules.collect::<Vec<_>>()
        };
        let both = [vm(7, Accelerator::Kvm), vm(20, Accelerator::Kvm)];
        let (thp, polling) = ("setting-transparent-huge-pages", "setting-no-halt-polling");
        assert_eq!(found(&both), [thp, polling]);
        let mixed = [vm(7, Accelerator::Kvm), vm(20, Accelerator::Tcg)];
        assert_eq!(found(&mixed), [thp], "TCG does not poll");
        assert_eq!(found(&[]), [""; 0]);
    }
}
