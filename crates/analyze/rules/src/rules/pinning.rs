//! The host CPUs of a running VM's threads: by the control group of a thread where that is the VM's own, else by its affinity.

use crate::rule::instruction;
use crate::{Evidence, Finding, VmPart};
use vmtax_model::{ChangeCost, Remedy, Role, SettingPlace, shell_path};

pub(super) const OWN_CPUS: Remedy<&str> = Remedy {
    place: SettingPlace::Cgroup,
    setting: "cpuset.cpus",
    value: "CPUS",
    action: "Pin the vCPU thread that waits most to a host CPU that no other task uses, then the others, each to another",
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
    action: "Or pin the thread that waits most by its CPU affinity, then the others, each to another host CPU",
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
    let group = evidence
        .facts
        .and_then(|facts| facts.thread_groups.iter().find(|group| group.tid == tid));
    let folder = group.and_then(|group| shell_path(&group.folder.to_string_lossy()));
    let before = group
        .and_then(|group| group.cpus.clone())
        .unwrap_or_default();
    let vcpu = role.and_then(|role| match role {
        Role::Vcpu(number) => Some(("VCPU", number.to_string())),
        _ => None,
    });
    let mut values = finding.values;
    values.extend(
        folder
            .map(|folder| ("THREAD_GROUP", folder))
            .into_iter()
            .chain(vcpu),
    );
    values.extend([("BEFORE", before), ("TID", tid.to_string())]);
    values.extend(evidence.facts.map(|facts| ("VM", facts.argument())));
    Finding {
        values,
        part: VmPart::Thread(tid),
        ..finding
    }
}
