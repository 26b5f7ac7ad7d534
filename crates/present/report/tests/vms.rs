//! The list of running VMs: what its first sentence counts, whom a reason names, and a name that is safe in a command.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use vmtax_model::{Ability, AbilityName, Accelerator, Managed, Manager, Missing, VmFacts};
use vmtax_report::{Style, vms};

fn vm(pid: i32, name: &str, lacks: &[AbilityName]) -> VmFacts {
    let missing = || Missing { what: "it".into(), why: "not here".into(), fix: "run vmtax as root".into() };
    let ability = |what: &AbilityName| Ability { what: *what, missing: Some(missing()) };
    VmFacts {
        name: Some(name.to_owned()),
        binary: Some(PathBuf::from("/usr/bin/qemu-system-x86_64")),
        managed: Some(Managed { manager: Manager::LibvirtSession, id: "1".into() }),
        accelerator: Some(Accelerator::Tcg),
        vcpus: 2,
        memory: 1 << 30,
        abilities: lacks.iter().map(ability).collect(),
        ..VmFacts::unknown(pid)
    }
}

fn text(all: &[VmFacts]) -> String {
    vms(all).terminal(Style { width: 80, color: false }, false)
}

#[test]
fn the_first_sentence_counts_those_that_rights_are_missing_for() {
    use AbilityName::{CountExits, GuestAgent, Monitor, QemuGuestAgent, SetCgroup};
    assert!(text(&[]).starts_with("No VM runs on this host"), "{}", text(&[]));
    // What changes a VM, what TCG has not, and what is an addition restrict nothing.
    let full = vm(7, "a", &[GuestAgent, SetCgroup, CountExits, QemuGuestAgent]);
    let one = text(std::slice::from_ref(&full));
    assert!(one.starts_with("1 VM runs on this host and can be observed in full."), "{one}");
    assert!(one.contains("vmtax profile --vm a") && !one.contains("VM exits") && one.contains("guest agent: not here"));
    let poor = vm(8, "b", &[Monitor]);
    assert!(text(&[full, poor.clone()]).starts_with("2 VMs run on this host; 1 cannot"));
    assert!(text(&[poor.clone(), poor]).starts_with("2 VMs run on this host; none can"));
}

#[test]
fn many_vms_are_counted_and_an_unsafe_or_common_name_is_a_pid() {
    let of =
        |names: &[&str]| names.iter().zip(100..).map(|(name, pid)| vm(pid, name, &[AbilityName::Monitor])).collect();
    let few: Vec<VmFacts> = of(&["b c", "$(x)", "-d", "same", "same"]);
    let text_of_few = text(&few);
    assert!(text_of_few.contains("(100, 101, 102, 103, 104)"), "{text_of_few}");
    assert!(text_of_few.contains("libvirt (session)"), "{text_of_few}");
    let many: Vec<VmFacts> = of(&["a", "b", "c", "d", "e", "f"]);
    assert!(text(&many).contains("(6 VMs)"), "{}", text(&many));
}
