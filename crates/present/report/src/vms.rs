//! The VMs that run on a host, a line each, and what cannot be observed of them.

use crate::engine::{Block, Column, Report, Section, Table};
use crate::view::vm::stopped;
use vmtax_model::number::{bytes, counted};
use vmtax_model::{AbilityName, Missing, VmFacts};

/// More VMs that lack the same are counted.
const MOST_NAMED: usize = 5;

/// The report: each VM, then what is missing, with its remedy.
pub fn vms(vms: &[VmFacts]) -> Report<'static> {
    let missing = missing(vms);
    let all = Section::new("", vec![Block::Table(table(vms))]);
    let of_missing = Section::new(
        "Not observable",
        missing
            .iter()
            .map(|text| Block::Text(text.clone()))
            .collect(),
    );
    Report {
        study: "doctor",
        title: "Running VMs".to_owned(),
        answer: answer(vms),
        next: vms
            .first()
            .map(|vm| format!("vmtax profile --vm {}", unique_name(vm, vms)))
            .into_iter()
            .collect(),
        sections: if vms.is_empty() { vec![] } else { vec![all] }
            .into_iter()
            .chain((!missing.is_empty()).then_some(of_missing))
            .collect(),
        ..Report::default()
    }
}

fn answer(vms: &[VmFacts]) -> String {
    // The guest agent is an addition: most VMs have none.
    let is_restricted =
        |vm: &&VmFacts| lacks(vm).any(|(what, _)| what != AbilityName::QemuGuestAgent);
    let restricted = vms.iter().filter(is_restricted).count();
    let observed = match restricted {
        0 => "all can be observed in full".to_owned(),
        n if n == vms.len() => "none can be observed in full".to_owned(),
        n => format!("{n} cannot be observed in full"),
    };
    let clause = |vm| stopped(vm, &unique_name(vm, vms)).or_else(|| silent(vm, vms));
    let mut stopped: Vec<String> = vms.iter().filter_map(clause).collect();
    if stopped.len() > MOST_NAMED {
        let more = stopped.split_off(MOST_NAMED - 1).len();
        stopped.push(format!("{more} more do not run"));
    }
    if !stopped.is_empty() {
        return format!(
            "{}. {} on this host.",
            stopped.join("; "),
            counted(vms.len() as u64, "VM")
        );
    }
    match vms.len() {
        0 => "No VM runs on this host, or none that this user can see.".to_owned(),
        1 if restricted == 0 => "1 VM runs on this host and can be observed in full.".to_owned(),
        1 => "1 VM runs on this host and cannot be observed in full.".to_owned(),
        n => format!("{n} VMs run on this host; {observed}."),
    }
}

/// A clause that says that QEMU does not answer, of which vCPUs may still run.
fn silent(vm: &VmFacts, vms: &[VmFacts]) -> Option<String> {
    let seconds = vm.monitor_timeout_s?;
    Some(format!(
        "QEMU of {} does not respond: QMP did not answer within {seconds} s",
        unique_name(vm, vms)
    ))
}

fn table(vms: &[VmFacts]) -> Table {
    Table::of("Running VMs", vms)
        .column(Column::figures("PID"), |vm| vm.pid.to_string())
        .column(Column::words("name").broken(16, 8), |vm| {
            vm.name.clone().unwrap_or_default()
        })
        .column(Column::words("manager"), |vm| {
            vm.managed
                .as_ref()
                .map_or("", |managed| managed.manager.as_str())
                .to_owned()
        })
        .column(Column::words("accelerator"), |vm| {
            vm.accelerator
                .map_or("", |accelerator| accelerator.as_str())
                .to_owned()
        })
        .column(Column::figures("vCPUs"), |vm| vm.vcpus.to_string())
        .column(Column::figures("memory"), |vm| bytes(vm.memory))
        .column(Column::figures("disks"), |vm| vm.disks.len().to_string())
        .column(Column::figures("taps"), |vm| vm.nics.len().to_string())
        .column(Column::words("not observable").broken(20, 10), |vm| {
            let names: Vec<&str> = lacks(vm).map(|(what, _)| name(what)).collect();
            if names.is_empty() {
                "–".to_owned()
            } else {
                names.join(", ")
            }
        })
        .done()
}

/// Returns the obstacles to observing a VM; neither those to changing it, nor those that apply to any guest of another
/// owner.
fn lacks(vm: &VmFacts) -> impl Iterator<Item = (AbilityName, &Missing)> {
    let observes = |what: AbilityName| {
        !matches!(
            what,
            AbilityName::GuestAgent | AbilityName::SetAffinity | AbilityName::SetCgroup
        )
    };
    // TCG has no VM exits: nothing is missing.
    let is_tcg = vm.accelerator == Some(vmtax_model::Accelerator::Tcg);
    let applies =
        move |what: AbilityName| observes(what) && !(is_tcg && what == AbilityName::CountExits);
    vm.abilities
        .iter()
        .filter_map(move |able| Some((able.what, able.missing.as_ref()?)))
        .filter(move |(what, _)| applies(*what))
}

fn name(what: AbilityName) -> &'static str {
    match what {
        AbilityName::SampleThreads => "stacks",
        AbilityName::TraceKernel => "kernel events",
        AbilityName::CountExits => "VM exits",
        AbilityName::GuestAgent => "vmtax agent",
        AbilityName::Monitor => "QMP",
        AbilityName::QemuGuestAgent => "guest agent",
        AbilityName::SetAffinity => "affinity",
        AbilityName::SetCgroup => "cgroup limits",
    }
}

/// Each reason once, with the VMs that it holds for.
fn missing(vms: &[VmFacts]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for vm in vms {
        for (what, missing) in lacks(vm) {
            let reason = format!("{}: {}: {}.", name(what), missing.why, missing.fix);
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(unique_name(vm, vms)),
                None => reasons.push((reason, vec![unique_name(vm, vms)])),
            }
        }
    }
    let names_or_count = |names: Vec<String>| match names.len() {
        few if few <= MOST_NAMED => names.join(", "),
        many => counted(many as u64, "VM"),
    };
    reasons
        .into_iter()
        .map(|(reason, names)| format!("{reason} ({})", names_or_count(names)))
        .collect()
}

/// Returns a name that denotes one VM alone: its name, else its PID.
fn unique_name(vm: &VmFacts, vms: &[VmFacts]) -> String {
    let is_plain = |name: &&String| {
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let is_unique = |name: &&String| {
        vms.iter()
            .filter(|other| other.name.as_ref() == Some(*name))
            .count()
            == 1
    };
    let plain = vm
        .name
        .as_ref()
        .filter(|name| !name.starts_with('-') && !name.is_empty())
        .filter(is_plain);
    plain
        .filter(is_unique)
        .cloned()
        .unwrap_or_else(|| vm.pid.to_string())
}
