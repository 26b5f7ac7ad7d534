//! Load of the host from which all its running VMs suffer alike.

use super::vm_cpu::vcpu_wait;
use crate::evidence::{HostLoad, MIN_SHARE};
use crate::rule::instruction;
use crate::{Finding, Rule};
use vmtax_findings::HostRates;
use vmtax_model::number::percent;

pub(super) const HOST_CPUS_BUSY: Rule = Rule {
    id: "host-cpus-busy",
    finds: "a host whose CPUs are in use for nine tenths of their time and more, while the vCPUs of two of its VMs and more wait for one, and of every VM that is not idle",
    remedies: &[
        instruction(
            "Lower the priority of the other load, or run it on another host",
            "RENICE",
        ),
        instruction(
            "Or move a VM to another host, or give the VMs fewer vCPUs",
            "",
        ),
    ],
    source: "Linux manual pages, proc_stat(5)",
    evaluate: |evidence| {
        let load = evidence.load.filter(|load| load.host.is_busy());
        load.and_then(busy).into_iter().collect()
    },
};

/// The finding; `None` where one VM alone waits, or another one runs without waiting.
fn busy(load: &HostLoad<'_>) -> Option<Finding> {
    let HostLoad { host, vms } = *load;
    let (waiting, others): (Vec<_>, Vec<_>) = vms.iter().partition(|vm| vcpu_wait(vm).is_some());
    let is_idle = |run: Option<f64>| run.is_some_and(|run| run < MIN_SHARE);
    if waiting.len() < 2 || !others.iter().all(|vm| is_idle(vm.run)) {
        return None;
    }
    let waits = || waiting.iter().filter_map(|vm| vcpu_wait(vm));
    let least = waits().reduce(f64::min)?;
    let most = waits().reduce(f64::max)?;
    let which = match others.len() {
        0 => format!("all {} VMs", vms.len()),
        _ => format!("{} of {} VMs", waiting.len(), vms.len()),
    };
    let cpus = match host.cpus {
        1 => "The host's CPU is".to_owned(),
        cpus => format!("The host's {cpus} CPUs are"),
    };
    let text = format!(
        "{cpus} in use {} of the time: the vCPUs of {which} wait for one, {} to {} of their time (%RDY). {}",
        percent((host.used / host.cpus as f64).min(1.0)),
        percent(least),
        percent(most),
        users(host)
    );
    // To lower the priority of one process among many gives little back.
    let mut largest = host.largest_other.iter();
    let largest = largest.find(|process| process.used >= host.used_by_others / 2.0);
    let renice = largest.map_or(String::new(), |process| {
        format!("sudo renice -n 19 -p {}", process.pid)
    });
    Some(Finding {
        values: vec![("RENICE", renice)],
        ..Finding::with_gain(text, waits().sum::<f64>() / waiting.len() as f64)
    })
}

/// "The VMs use 1.50 CPUs, all else 0.40, of which cc1 (PID 77) uses 0.30."
fn users(host: &HostRates) -> String {
    let process = host
        .largest_other
        .as_ref()
        .map_or(String::new(), |process| {
            let name = process.name.escape_default();
            format!(
                ", of which {name} (PID {}) uses {:.2}",
                process.pid, process.used
            )
        });
    let (vms, others) = (host.used_by_vms, host.used_by_others);
    format!("The VMs use {vms:.2} CPUs, all else {others:.2}{process}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Evidence, evaluate};
    use vmtax_findings::{Advice, ProcessRate, VmRates};

    fn host(used: f64) -> HostRates {
        HostRates {
            cpus: 2,
            used,
            used_by_vms: 1.5,
            used_by_others: used - 1.5,
            largest_other: Some(ProcessRate {
                pid: 77,
                name: "cc\u{1b}1".to_owned(),
                used: 0.4,
            }),
            ..HostRates::default()
        }
    }

    fn vm(run: f64, ready: f64) -> VmRates {
        VmRates {
            run: Some(run),
            ready: Some(ready),
            ..VmRates::default()
        }
    }

    fn found(host: &HostRates, vms: &[VmRates]) -> Vec<Advice> {
        let load = HostLoad { host, vms };
        evaluate(&Evidence {
            load: Some(&load),
            ..Evidence::default()
        })
    }

    #[test]
    fn a_busy_host_is_one_finding_with_those_who_use_it() {
        let all = found(&host(1.96), &[vm(0.5, 0.2), vm(0.4, 0.4)]);
        assert_eq!(
            all[0].finding.replace('\u{a0}', " "),
            "The host's 2 CPUs are in use 98 % of the time: the vCPUs of all 2 VMs wait for one, 20 % to 40 % of their time (%RDY). \
             The VMs use 1.50 CPUs, all else 0.46, of which cc\\u{1b}1 (PID 77) uses 0.40."
        );
        assert_eq!(all[0].remedies[0].line, "sudo renice -n 19 -p 77");
        assert!(
            all.len() == 1 && (all[0].gain - 0.3).abs() < 1e-9,
            "{all:?}"
        );
        let mut many = host(1.96);
        many.largest_other.as_mut().unwrap().used = 0.2;
        let all = found(&many, &[vm(0.5, 0.2), vm(0.4, 0.4)]);
        assert_eq!(all[0].remedies[0].line, "", "one of many");
        let alone = HostRates {
            largest_other: None,
            ..host(1.96)
        };
        let all = found(&alone, &[vm(0.5, 0.2), vm(0.4, 0.4), vm(0.01, 0.0)]);
        assert!(all[0].finding.contains("of 2 of 3 VMs"), "{all:?}");
        assert_eq!(all[0].remedies[0].line, "");
    }

    #[test]
    fn an_idle_host_a_single_vm_and_one_that_runs_without_waiting_are_none() {
        let both = [vm(0.5, 0.2), vm(0.4, 0.4)];
        assert_eq!(found(&host(1.7), &both), [], "an idle CPU is left");
        assert_eq!(found(&host(2.0), &both[..1]), [], "its own finding says it");
        let pinned = [vm(0.5, 0.2), vm(0.4, 0.4), vm(0.9, 0.0)];
        assert_eq!(found(&host(2.0), &pinned), []);
    }
}
