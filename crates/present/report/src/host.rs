//! A host without a recording: its abilities, a line for each check, with fixes for what is missing; the VMs that run on
//! it, and what cannot be observed of them.

use crate::engine::{Block, Report, Section, Table, figures, remedy_text, words};
use crate::number::{NONE, bytes, counted};
use crate::text::{Joined, grouped};
use crate::view::vm::stopped;
use crate::view::{NO_VM, checks, state_word, system};
use vmtax_model::{
    AbilityName, Accelerator, Check, HostFacts, KvmClass, Machine, Missing, Readiness, RunState,
    VmFacts, Vmm,
};

/// The report of a host: each check, then why it matters and what fixes it for each that is not ok.
pub fn doctor(facts: &HostFacts) -> Report<'static> {
    let poor = facts
        .checks
        .iter()
        .filter(|check| check.state != Readiness::Ok);
    let poor: Vec<&Check> = poor.collect();
    let fixes = poor.iter().map(|check| {
        let fixes = check.remedies.iter();
        let fixes = fixes.map(|remedy| format!("→ {}", remedy_text(remedy)));
        let texts = [check.why.clone()].into_iter().chain(fixes);
        let title = format!("{}: {}", check.subject, state_word(check.state));
        Section::new(title, texts.map(Block::Text))
    });
    let all = Section::new("", [checks(&facts.checks).done()]);
    let next = match facts.kernels.is_empty() {
        true => "vmtax get kernel",
        false => "vmtax run --quick",
    };
    Report {
        study: "doctor",
        title: "Host check".to_owned(),
        next: vec![next.to_owned()],
        basis: vec![facts.cpu.model.clone(), system(facts)],
        answer: measurable(facts, poor.len()),
        sections: [all].into_iter().chain(fixes).collect(),
        ..Report::default()
    }
}

/// The machines that this host can measure, and why not all.
fn measurable(facts: &HostFacts, poor: usize) -> String {
    let guests = !facts.qemu.is_empty();
    let linux = guests && !facts.kernels.is_empty();
    let is_measurable = |machine: &&Machine| match **machine {
        Machine::NATIVE => true,
        Machine::KVM => linux && facts.kvm.class == KvmClass::Hardware,
        machine if machine.has_kernel() => linux,
        machine => guests && facts.kvm.class.micro_guests().contains(&machine),
    };
    let machines = Machine::ALL.iter().filter(is_measurable);
    let machines = machines.map(|machine| machine.as_str()).joined(", ");
    let why = match facts.kvm.class {
        KvmClass::Hardware => "",
        KvmClass::EmulatesKernels => {
            "; KVM works without hardware virtualization (PVM), too slow for Linux guests"
        }
        KvmClass::Broken => "; KVM does not work here",
        KvmClass::NoPermission => "; this user may not open /dev/kvm",
        KvmClass::Absent => "; there is no /dev/kvm",
    };
    let checks = match poor {
        0 => format!("all {} checks are ok", facts.checks.len()),
        n => format!("{n} of {} checks are not ok", facts.checks.len()),
    };
    format!("This host can measure {machines}{why}; {checks}.")
}

/// More VMs that lack the same are counted.
const MOST_NAMED: usize = 5;

/// The report of the VMs that run on a host: each VM, then what is missing, with its remedy.
pub fn vms(vms: &[VmFacts]) -> Report<'static> {
    let missing = missing(vms);
    let all = Section::new("", [table(vms)]);
    let is_missing = !missing.is_empty();
    let missing = Section::new("Not observable", missing.into_iter().map(Block::Text));
    let first = vms.first();
    // Of several the first: the last of the largest is it from behind.
    let worst = vms.iter().rev().max_by_key(|vm| urgency(vm));
    let next = worst.map(|vm| format!("vmtax diagnose {}", unique_name(vm, vms)));
    Report {
        study: "doctor",
        title: "Running VMs".to_owned(),
        answer: answer(vms),
        next: next.into_iter().collect(),
        sections: [first.map(|_| all), is_missing.then_some(missing)]
            .into_iter()
            .flatten()
            .collect(),
        ..Report::default()
    }
}

/// Rank of what is wrong with a VM: a failed guest before a QEMU that does not answer, and both before a paused VM.
fn urgency(vm: &VmFacts) -> u8 {
    let failed = ["guest-panicked", "internal-error", "io-error"];
    match &vm.state {
        Some(RunState::Stopped(state)) if failed.contains(&state.as_str()) => 3,
        _ if vm.monitor_timeout_s.is_some() || vm.process_stop.is_some() => 2,
        Some(RunState::Stopped(_)) => 1,
        _ => 0,
    }
}

fn answer(vms: &[VmFacts]) -> String {
    let clause = |vm| stopped(vm, &unique_name(vm, vms)).or_else(|| silent(vm, vms));
    let mut stopped: Vec<String> = vms.iter().filter_map(clause).collect();
    if stopped.len() > MOST_NAMED {
        let more = stopped.split_off(MOST_NAMED - 1).len();
        stopped.push(format!("{more} more do not run"));
    }
    if !stopped.is_empty() {
        let vms = counted(vms.len() as u64, "VM");
        return format!("{}. {vms} on this host.", stopped.join("; "));
    }
    match vms.len() {
        0 => NO_VM.to_owned(),
        1 => format!("1 VM runs on this host; {}.", observable(vms)),
        n => format!("{n} VMs run on this host; {}.", observable(vms)),
    }
}

/// "all data is available", or "not observable: QMP (1 of 3 VMs), guest agent (all 3 VMs)".
fn observable(vms: &[VmFacts]) -> String {
    let all = vms.len();
    let lacking = vms
        .iter()
        .flat_map(|vm| lacks(vm).map(|(what, _)| (ability(vm.vmm, what), vm.pid)));
    let part = |(what, vms): (&str, Vec<i32>)| match vms.len() {
        _ if all == 1 => what.to_owned(),
        n if n == all => format!("{what} (all {all} VMs)"),
        n => format!("{what} ({n} of {all} VMs)"),
    };
    let parts = grouped(lacking).into_iter().map(part).joined(", ");
    match parts.is_empty() {
        true => "all data is available".to_owned(),
        false => format!("not observable: {parts}"),
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
    let table = Table::of("Running VMs", vms)
        .column(figures("PID"), |vm| vm.pid.to_string())
        .column(words("name").broken(16, 8), |vm| {
            vm.name.clone().unwrap_or_default()
        })
        .column(words("manager"), |vm| {
            vm.managed
                .as_ref()
                .map_or("", |managed| managed.manager.as_str())
        });
    let table = match vms.iter().all(|vm| vm.vmm.is_qemu()) {
        true => table,
        false => table.column(words("VMM"), |vm| vm.vmm.name()),
    };
    table
        .column(words("accelerator"), |vm| {
            vm.accelerator.map_or("", Accelerator::as_str)
        })
        .column(figures("vCPUs"), |vm| vm.vcpus.to_string())
        .column(figures("memory"), |vm| bytes(vm.memory))
        .column(figures("disks"), |vm| vm.disks.len().to_string())
        .column(figures("taps"), |vm| vm.nics.len().to_string())
        .column(words("not observable").broken(20, 10), |vm| {
            let names = lacks(vm).map(|(what, _)| ability(vm.vmm, what));
            let names = names.joined(", ");
            if names.is_empty() {
                NONE.to_owned()
            } else {
                names
            }
        })
        .done()
}

/// Returns the obstacles to observing a VM; neither those to changing it, nor those that apply to any guest of another
/// owner.
fn lacks(vm: &VmFacts) -> impl Iterator<Item = (AbilityName, &Missing)> {
    let applies = |what: AbilityName| match what {
        AbilityName::GuestAgent | AbilityName::SetAffinity | AbilityName::SetCgroup => false,
        // TCG has no VM exits: nothing is missing.
        AbilityName::CountExits => vm.accelerator != Some(Accelerator::Tcg),
        _ => true,
    };
    let missing = vm
        .abilities
        .iter()
        .filter_map(|able| Some((able.what, able.missing.as_ref()?)));
    missing.filter(move |(what, _)| applies(*what))
}

fn ability(vmm: Vmm, what: AbilityName) -> &'static str {
    match what {
        AbilityName::SampleThreads => "stacks",
        AbilityName::TraceKernel => "kernel events",
        AbilityName::CountExits => "VM exits",
        AbilityName::GuestAgent => "vmtax agent",
        AbilityName::Monitor if vmm.is_qemu() => "QMP",
        AbilityName::Monitor => "monitor",
        AbilityName::QemuGuestAgent => "guest agent",
        AbilityName::SetAffinity => "affinity",
        AbilityName::SetCgroup => "cgroup limits",
    }
}

/// Each reason once, with the VMs that it holds for.
fn missing(vms: &[VmFacts]) -> Vec<String> {
    let reasons = vms.iter().flat_map(|vm| {
        lacks(vm).map(|(what, missing)| {
            let reason = format!(
                "{}: {}: {}.",
                ability(vm.vmm, what),
                missing.why,
                missing.fix
            );
            (reason, unique_name(vm, vms))
        })
    });
    let names_or_count = |names: Vec<String>| match names.len() {
        few if few <= MOST_NAMED => names.join(", "),
        many => counted(many as u64, "VM"),
    };
    let line = |(reason, names)| format!("{reason} ({})", names_or_count(names));
    grouped(reasons).into_iter().map(line).collect()
}

/// Returns a name that denotes one VM alone: its name, else its PID.
fn unique_name(vm: &VmFacts, vms: &[VmFacts]) -> String {
    let is_plain = |name: &&String| {
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let is_unique = |name: &&String| {
        let same = vms
            .iter()
            .filter(|other| other.name.as_ref() == Some(*name));
        same.count() == 1
    };
    let plain = vm
        .name
        .as_ref()
        .filter(|name| !name.starts_with('-') && !name.is_empty());
    let unique = plain.filter(is_plain).filter(is_unique);
    unique.cloned().unwrap_or_else(|| vm.pid.to_string())
}
