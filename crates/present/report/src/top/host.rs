//! The host beside its running VMs: who uses its CPUs, its memory and disks, and findings that concern all VMs.

use crate::number::{NONE, bytes, nanoseconds, significant};
use crate::text::{Joined, grouped, only_if, plain};
use std::collections::BTreeMap;
use vmtax_findings::{Advice, DeviceRates, HostRates, TopSample, VmRates};
use vmtax_model::SettingPlace;

/// Lines about the host: CPUs, memory, the disks beneath the VMs'. Those that are not known are left out.
pub fn host_lines(sample: &TopSample) -> Vec<String> {
    let host = sample.host.as_ref();
    let cpus = host.map(|host| cpus_line(host, sample.vms.len()));
    let all = cpus.into_iter().chain(host.and_then(memory_line));
    all.chain(host_disks(&sample.vms))
        .map(|line| plain(&line))
        .collect()
}

/// "Host CPUs: 1.96 of 2 in use, 1.50 by these VMs, 0.46 by all else (cc1, PID 77: 0.40); run queue 5, load 2.6".
fn cpus_line(host: &HostRates, vms: usize) -> String {
    let largest = host.largest_other.as_ref().map(|process| {
        let (name, used) = (&process.name, cpus(process.used));
        format!(" ({name}, PID {}: {used})", process.pid)
    });
    let vms = match vms {
        0 => String::new(),
        1 => format!(", {} by this VM", cpus(host.used_by_vms)),
        _ => format!(", {} by these VMs", cpus(host.used_by_vms)),
    };
    let queue = host.runnable.map(|tasks| format!("run queue {tasks}"));
    let load = host.load.map(|load| format!("load {load:.1}"));
    let queue = queue.into_iter().chain(load).joined(", ");
    format!(
        "Host CPUs: {} of {} in use{vms}, {} by all else{}{}",
        cpus(host.used),
        host.cpus,
        cpus(host.used_by_others),
        largest.unwrap_or_default(),
        only_if(!queue.is_empty(), format!("; {queue}"))
    )
}

/// A number of CPUs.
fn cpus(used: f64) -> String {
    let digits = if used < 10.0 { 2 } else { 1 };
    format!("{used:.digits$}")
}

/// "Host memory: 5.87 GiB of 7.63 GiB in use; swap in 0/s, out 0/s".
fn memory_line(host: &HostRates) -> Option<String> {
    let (memory, available) = host.memory.zip(host.available)?;
    let used = bytes(memory.saturating_sub(available));
    let rate = |per_s: Option<f64>| match per_s {
        None => NONE.to_owned(),
        Some(per_s) if per_s < 1.0 => "0".to_owned(),
        Some(per_s) => bytes(per_s as u64) + "/s",
    };
    let [swap_in, swap_out] = [host.swapped_in_per_s, host.swapped_out_per_s].map(rate);
    let memory = bytes(memory);
    Some(format!(
        "Host memory: {used} of {memory} in use; swap in {swap_in}, out {swap_out}"
    ))
}

/// "Host disks, all processes: vda 605 µs a request, 34.0 IOPS"; `None` where none is known.
fn host_disks(vms: &[VmRates]) -> Option<String> {
    let disks = vms.iter().flat_map(|vm| &vm.disks);
    let devices = disks.filter_map(|disk| disk.device.as_ref());
    let by_name = devices.map(|device| (device.name.as_str(), device));
    let by_name: BTreeMap<&str, &DeviceRates> = by_name.collect();
    let text = |(name, device): (&str, &DeviceRates)| match device.mean_ns {
        Some(ns) => {
            let (mean, iops) = (nanoseconds(ns), significant(device.per_s));
            format!("{name} {mean} a request, {iops} IOPS")
        }
        None if device.per_s > 0.0 => {
            // The kernel counts the time of a volume's requests in ticks.
            let iops = significant(device.per_s);
            format!("{name} {iops} IOPS, too few for a mean time")
        }
        None => format!("{name} no requests"),
    };
    let all = by_name.into_iter().map(text).joined("; ");
    (!all.is_empty()).then(|| format!("Host disks, all processes: {all}"))
}

/// A finding as a screen shows it: a sentence, the VMs that it is about, the command that comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// "Host", or the names of VMs.
    pub about: String,
    /// The finding, one sentence.
    pub text: String,
    /// Command that comes next; `None` where there is none.
    pub next: Option<String>,
    /// True if it has a measured cost: a setting worth checking has none.
    pub has_cost: bool,
}

impl Statement {
    fn new(about: String, advice: &Advice) -> Statement {
        Statement {
            about,
            text: plain(&advice.finding),
            next: remedy_line(advice),
            has_cost: advice.gain > 0.0,
        }
    }

    /// "web: The guest does not run. Next: virsh resume web".
    pub(super) fn line(&self) -> String {
        let next = self.next.iter().map(|next| format!(" Next: {next}"));
        format!("{}: {}{}", self.about, self.text, next.joined(""))
    }
}

/// The command of a finding that comes next; `None` where there is none.
fn remedy_line(advice: &Advice) -> Option<String> {
    let lines = || {
        let remedies = advice.remedies.iter();
        remedies.filter(|remedy| !remedy.line.is_empty())
    };
    // What a person can run as it stands comes before what changes a setting.
    let runnable = lines().find(|remedy| remedy.place == SettingPlace::Vmtax);
    let next = runnable.or_else(|| lines().next());
    next.map(|remedy| plain(&remedy.line))
}

/// The findings about the host, those that cost something first, then settings worth checking.
pub fn host_statements(sample: &TopSample) -> Vec<Statement> {
    let findings = sample.host.iter().flat_map(|host| &host.findings);
    findings
        .map(|advice| Statement::new("Host".to_owned(), advice))
        .collect()
}

/// The first finding of a VM that no finding about the host says; `None` where there is none.
pub(super) fn own_finding<'a>(sample: &TopSample, vm: &'a VmRates) -> Option<&'a Advice> {
    let of_host = || sample.host.iter().flat_map(|host| &host.findings);
    let is_said = |own: &&Advice| of_host().any(|host| vmtax_rules::says_of_all(host, own));
    vm.findings.iter().find(|own| !is_said(own))
}

/// The statement about one VM, where it is not what the host's say: its first finding, or that nothing was found.
pub fn vm_statement(sample: &TopSample, vm: &VmRates) -> Option<Statement> {
    match own_finding(sample, vm) {
        Some(advice) => Some(Statement::new(vm.label(), advice)),
        None if vm.findings.is_empty() => Some(Statement {
            about: vm.label(),
            text: "No known problem in this interval.".to_owned(),
            next: None,
            has_cost: false,
        }),
        None => None,
    }
}

/// The first finding of each VM, one for those in which it is the same.
pub(super) fn vm_statements(sample: &TopSample) -> Vec<Statement> {
    let found = sample.vms.iter().filter_map(|vm| {
        let advice = own_finding(sample, vm)?;
        Some((advice.finding.as_str(), (vm.label(), advice)))
    });
    let together = |(_, vms): (&str, Vec<(String, &Advice)>)| {
        let names = vms.iter().map(|(name, _)| name.as_str());
        let about = match (vms.len(), vms.len() == sample.vms.len()) {
            (1, _) | (_, false) => names.joined(", "),
            (count, true) => format!("All {count} VMs"),
        };
        Some(Statement::new(about, vms.first()?.1))
    };
    grouped(found).into_iter().filter_map(together).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DiskRates, ProcessRate};

    fn host() -> HostRates {
        HostRates {
            cpus: 16,
            used: 12.25,
            used_by_vms: 11.0,
            used_by_others: 1.25,
            largest_other: Some(ProcessRate {
                pid: 77,
                name: "c\u{1b}1".to_owned(),
                used: 0.5,
            }),
            runnable: Some(5),
            load: Some(2.55),
            memory: Some(8 << 30),
            available: Some(2 << 30),
            swapped_in_per_s: Some(4096.0),
            swapped_out_per_s: None,
            findings: Vec::new(),
        }
    }

    fn lines(host: HostRates, vms: usize) -> Vec<String> {
        let sample = TopSample {
            host: Some(host),
            vms: vec![VmRates::default(); vms],
            ..TopSample::default()
        };
        let lines = host_lines(&sample).into_iter();
        lines.map(|line| line.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn the_host_has_who_uses_its_cpus_and_its_memory() {
        assert_eq!(
            lines(host(), 2),
            [
                "Host CPUs: 12.2 of 16 in use, 11.0 by these VMs, 1.25 by all else (c\u{fffd}1, PID 77: 0.50); run queue 5, load 2.5",
                "Host memory: 6.00 GiB of 8.00 GiB in use; swap in 4.00 KiB/s, out –"
            ]
        );
        let little = HostRates {
            largest_other: None,
            runnable: None,
            load: None,
            memory: None,
            ..host()
        };
        assert_eq!(
            lines(little, 0),
            ["Host CPUs: 12.2 of 16 in use, 1.25 by all else"]
        );
        assert_eq!(host_lines(&TopSample::default()), [""; 0]);
    }

    #[test]
    fn each_device_is_named_once() {
        let on = |name: &str, per_s, mean_ns| {
            let device = Some(DeviceRates {
                name: name.to_owned(),
                per_s,
                mean_ns,
            });
            DiskRates {
                device,
                ..DiskRates::default()
            }
        };
        let vm = |disks| VmRates {
            disks,
            ..VmRates::default()
        };
        let vms = [
            vm(vec![
                on("vda", 34.0, Some(605e3)),
                on("sdb", 0.0, None),
                on("dm-0", 3.0, None),
            ]),
            vm(vec![on("vda", 34.0, Some(605e3))]),
        ];
        let line = host_disks(&vms).map(|line| line.replace('\u{a0}', " "));
        assert_eq!(
            line.as_deref(),
            Some(
                "Host disks, all processes: dm-0 3.00 IOPS, too few for a mean time; sdb no requests; vda 605 µs a request, 34.0 IOPS"
            )
        );
        assert_eq!(host_disks(&[vm(vec![DiskRates::default()])]), None);
    }

    fn found(rule: &str, finding: &str) -> Advice {
        Advice {
            rule: rule.to_owned(),
            finding: finding.to_owned(),
            gain: 0.2,
            ..Advice::default()
        }
    }

    fn vm(name: &str, findings: Vec<Advice>) -> VmRates {
        VmRates {
            name: Some(name.to_owned()),
            findings,
            ..VmRates::default()
        }
    }

    #[test]
    fn what_the_host_says_of_all_its_vms_is_not_said_of_each() {
        let waits = || found("vm-run-queue-wait", "It waits.");
        let busy = found("host-cpus-busy", "No CPU is idle.");
        let other = found("vm-drops", "It drops.");
        let mut sample = TopSample {
            host: Some(HostRates {
                findings: vec![busy],
                ..host()
            }),
            vms: vec![
                vm("a", vec![waits()]),
                vm("b", vec![waits(), other]),
                vm("c", vec![]),
            ],
            ..TopSample::default()
        };
        let said = |sample: &TopSample| {
            let about = |vm| Some(vm_statement(sample, vm)?.text);
            sample.vms.iter().map(about).collect::<Vec<_>>()
        };
        let text = |text: &str| Some(text.to_owned());
        let healthy = text("No known problem in this interval.");
        assert_eq!(said(&sample), [None, text("It drops."), healthy.clone()]);
        assert_eq!(host_statements(&sample)[0].line(), "Host: No CPU is idle.");
        let lines = |sample: &TopSample| {
            let all = vm_statements(sample).into_iter();
            all.map(|one| one.line()).collect::<Vec<_>>()
        };
        assert_eq!(lines(&sample), ["b: It drops."]);
        sample.host = None;
        assert_eq!(
            said(&sample),
            [text("It waits."), text("It waits."), healthy]
        );
        assert_eq!(lines(&sample), ["a, b: It waits."]);
        sample.vms.pop();
        assert_eq!(lines(&sample), ["All 2 VMs: It waits."]);
    }
}
