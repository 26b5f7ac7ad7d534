//! Run-queue wait of a running VM's threads: why they waited for a host CPU, and the remedies: the host CPUs of a thread, by its
//! control group where that is the VM's own, else by its affinity.

use crate::rule::instruction;
use crate::{Evidence, Finding, VmPart};
use std::path::Path;
use vmtax_findings::{CpuContention, RunQueueCause};
use vmtax_model::number::percent;
use vmtax_model::{ChangeCost, Remedy, Role, SettingPlace, cpu_list, shell_path};

/// ": the VM's own threads compete for host CPU 1 (of their time: VM 98 %, other tasks 1 %)", the causes behind a
/// statement of the wait; where the figures do not separate them, as a list.
pub fn why_run_queue_wait(contention: Option<&CpuContention>) -> String {
    let Some(contention) = contention else {
        return ". Possible causes: the VM has too few host CPUs, other tasks use the same CPUs, or a CPU quota"
            .to_owned();
    };
    let (causes, is_certain) = contention.causes();
    let has = |cause| causes.contains(&cause);
    let (host, used) = contended_cpus(contention);
    let (own, other) = (
        has(RunQueueCause::OwnThreads),
        has(RunQueueCause::OtherLoad),
    );
    let has_quota = has(RunQueueCause::Quota);
    if !is_certain {
        let own = own.then_some("the VM's own threads");
        let other = other.then_some("other load");
        let quota = has_quota.then_some("a CPU quota");
        let causes: Vec<&str> = [own, other, quota].into_iter().flatten().collect();
        let causes = causes.join(", ");
        return format!(". Possible causes on {host} ({used}): {causes}");
    }
    let competing = match (own, other) {
        (true, true) => Some(format!(
            "the VM's own threads and other load compete for {host} ({used})"
        )),
        (true, false) => Some(format!("the VM's own threads compete for {host} ({used})")),
        (false, true) => Some(format!("other load uses {host} as well ({used})")),
        (false, false) => None,
    };
    let throttled = contention.throttled.unwrap_or(0.0) / contention.waited.max(f64::EPSILON);
    let throttled = format!("throttled for {} of this wait", percent(throttled.min(1.0)));
    let quota = has_quota.then(|| format!("the VM's CPU quota is used up ({throttled})"));
    let causes: Vec<String> = competing.into_iter().chain(quota).collect();
    format!(": {}", causes.join(", and "))
}

/// "host CPUs 0-1", "of their time: VM 98 %, other tasks 1 %".
fn contended_cpus(contention: &CpuContention) -> (String, String) {
    let cpus = cpu_list::parse(&contention.cpus).map_or(0, |cpus| cpus.len());
    let range = |[least, most]: [f64; 2]| {
        let [least, most] = [least, most].map(|cpu| percent(cpu / cpus.max(1) as f64));
        if least == most {
            most
        } else {
            format!("{} to {most}", least.trim_end_matches("\u{a0}%"))
        }
    };
    let plural = if cpus == 1 { "" } else { "s" };
    let (own, other) = (range(contention.own), range(contention.other));
    (
        format!("host CPU{plural} {}", contention.cpus),
        format!("of their time: VM {own}, other tasks {other}"),
    )
}

pub(super) const OWN_CPUS: Remedy<&str> = Remedy {
    place: SettingPlace::Cgroup,
    setting: "cpuset.cpus",
    value: "CPUS",
    action: "Pin the vCPU thread that waits longest to a host CPU that no other task uses, then the others, each to a different CPU, if the host has idle CPUs",
    line: "echo CPUS | sudo tee THREAD_GROUP/cpuset.cpus # libvirt: virsh vcpupin VM VCPU CPUS --live",
    cost: Some(ChangeCost::Live),
    read_back: "THREAD_GROUP/cpuset.cpus.effective",
    undo: "echo BEFORE | sudo tee THREAD_GROUP/cpuset.cpus",
};
/// For a thread without a control group of its own.
pub(super) const OWN_AFFINITY: Remedy<&str> = Remedy {
    place: SettingPlace::Affinity,
    setting: "affinity",
    value: "CPUS",
    action: "Or pin (taskset) the thread that waits longest to a host CPU that no other task uses, then the others, each to a different CPU, if the host has idle CPUs",
    line: "sudo taskset -pc CPUS TID",
    cost: Some(ChangeCost::Live),
    read_back: "taskset -pc TID",
    undo: "sudo taskset -pc 0-$(($(nproc --all) - 1)) TID",
};
/// For guests of which no thread is known any more.
pub(super) const AFFINITY: Remedy<&str> = instruction(
    "Pin the VM's threads to host CPUs that no other task uses",
    "sudo taskset -apc CPUS PID # libvirt: virsh vcpupin VM VCPU CPUS --live, virsh emulatorpin VM CPUS --live",
);
pub(super) const CPUSET: &str = "Linux kernel documentation, Control Group v2, Cpuset";

/// A finding whose remedies are for this thread.
pub(super) fn of_thread(
    finding: Finding,
    evidence: &Evidence<'_>,
    tid: i32,
    role: Option<&Role>,
) -> Finding {
    let group = evidence.facts.and_then(|facts| facts.thread_group(tid));
    let path = |path: &Path| shell_path(&path.to_string_lossy());
    let folder = group.and_then(|group| path(&group.folder));
    let quota = group.and_then(|group| group.quota.as_deref());
    let stat = quota.and_then(|quota| path(&quota.with_file_name("cpu.stat")));
    let before = group
        .and_then(|group| group.cpus.clone())
        .unwrap_or_default();
    let vcpu = match role {
        Some(Role::Vcpu(number)) => Some(("VCPU", number.to_string())),
        _ => None,
    };
    let mut values = finding.values;
    values.extend(folder.map(|folder| ("THREAD_GROUP", folder)));
    values.extend(quota.and_then(path).map(|file| ("QUOTA_FILE", file)));
    values.extend(stat.map(|file| ("CPU_STAT_FILE", file)));
    values.extend(vcpu);
    values.extend([("BEFORE", before), ("TID", tid.to_string())]);
    values.extend(evidence.facts.map(|facts| ("VM", facts.argument())));
    Finding {
        values,
        part: VmPart::Thread(tid),
        ..finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(own: [f64; 2], other: [f64; 2], throttled: Option<f64>) -> String {
        let found = CpuContention {
            cpus: "0-1".to_owned(),
            threads: 1,
            waited: 0.8,
            ran: 0.8,
            own,
            other,
            throttled,
        };
        why_run_queue_wait(Some(&found)).replace('\u{a0}', " ")
    }

    #[test]
    fn the_cause_is_named_with_the_cpu_time_of_both_sides() {
        assert_eq!(
            why([1.6; 2], [0.04; 2], None),
            ": the VM's own threads compete for host CPUs 0-1 (of their time: VM 80 %, other tasks 2.0 %)"
        );
        assert_eq!(
            why([0.9; 2], [1.1; 2], Some(0.0)),
            ": other load uses host CPUs 0-1 as well (of their time: VM 45 %, other tasks 55 %)"
        );
        assert_eq!(
            why([1.2; 2], [0.8; 2], Some(0.2)),
            ": the VM's own threads and other load compete for host CPUs 0-1 (of their time: VM 60 %, other tasks 40 %), and the VM's CPU \
             quota is used up (throttled for 25 % of this wait)"
        );
        assert_eq!(
            why([0.8; 2], [0.0; 2], Some(0.6)),
            ": the VM's CPU quota is used up (throttled for 75 % of this wait)"
        );
    }

    #[test]
    fn causes_that_the_figures_do_not_separate_are_listed() {
        assert_eq!(
            why([0.8, 1.6], [0.0, 0.8], None),
            ". Possible causes on host CPUs 0-1 (of their time: VM 40 to 80 %, other tasks 0.0 to 40 %): the VM's own threads, other load"
        );
        assert!(
            why_run_queue_wait(None).starts_with(". Possible causes: the VM has too few host CPUs")
        );
    }
}
