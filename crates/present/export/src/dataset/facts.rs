//! The table `facts`: what is known of the host of a run, and of its guests.

use crate::Run;
use crate::table::{Rows, text, words};
use std::collections::BTreeMap;
use vmtax_model::Variant;
use vmtax_recording::Recording;

pub fn rows(recording: &Recording, run: &Run) -> Rows {
    let columns = ["run", "machine", "variant", "name", "value"];
    let mut rows = Rows::new(columns.map(text).into());
    let mut push = |machine: &str, variant: &str, name: &str, value: &str| {
        let row = [run.id.as_str(), machine, variant, name, value];
        rows.push(row.map(words).into());
    };
    for (name, value) in of_host(recording, run) {
        push("", "", name, &value);
    }
    for ((machine, variant, name), value) in of_guests(recording) {
        push(machine, variant, name, &value);
    }
    rows
}

fn of_host(recording: &Recording, run: &Run) -> Vec<(&'static str, String)> {
    let Recording {
        manifest,
        plan,
        host,
        ..
    } = recording;
    let cpu = &host.cpu;
    let name = host.identity.name.clone().filter(|_| !run.is_hashed);
    let facts = [
        ("vmtax_version", Some(manifest.vmtax.clone())),
        ("study", Some(plan.study.name().to_owned())),
        ("host_id", host.identity.id.clone()),
        ("host_name", name),
        ("host_cpu_model_name", Some(cpu.model.clone())),
        ("host_cpu_microcode", cpu.microcode.clone()),
        ("host_cpus", Some(cpu.online.to_string())),
        (
            "host_threads_per_core",
            Some(cpu.threads_per_core.to_string()),
        ),
        ("host_memory_mib", Some(host.memory_mib.to_string())),
        ("virtualization", cpu.virtualisation.clone()),
        ("hypervisor", cpu.hypervisor.clone()),
        ("clocksource", Some(cpu.clocksource.clone())),
        ("invariant_tsc", Some(cpu.invariant_tsc.to_string())),
        ("cpu_governor", cpu.governor.clone()),
        ("transparent_hugepage", host.transparent_hugepage.clone()),
        ("halt_poll_ns", host.halt_poll_ns.map(|ns| ns.to_string())),
        ("os_description", Some(host.distribution.clone())),
        ("kernel_release", Some(host.kernel.clone())),
        ("kvm", Some(<&str>::from(host.kvm.class).to_owned())),
        (
            "qemu_version",
            host.qemu.first().map(|qemu| qemu.version.clone()),
        ),
    ];
    let known = facts.into_iter();
    known
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Machine, variant and name of a fact.
type Of<'a> = (&'a str, &'a str, &'static str);

/// The QEMU and the kernel of each guest that had a trial.
fn of_guests(recording: &Recording) -> BTreeMap<Of<'_>, String> {
    let Recording {
        plan, host, trials, ..
    } = recording;
    let mut all = BTreeMap::new();
    for trial in trials.iter().filter(|t| t.machine.is_guest()) {
        let variant = plan.variant_of(trial);
        // Of one that nothing is known of, what it was called.
        let named = || Some(variant.and_then(Variant::qemu)?.display().to_string());
        let qemu = host.qemu_of(variant).map(|qemu| qemu.version.clone());
        let kernel = trial.result().filter(|_| trial.machine.has_kernel());
        for (name, value) in [
            ("qemu_version", qemu.or_else(named)),
            (
                "guest_kernel_release",
                kernel.map(|r| r.kernel.release.clone()),
            ),
        ] {
            if let Some(value) = value {
                all.entry((trial.machine.as_str(), trial.variant.as_str(), name))
                    .or_insert(value);
            }
        }
    }
    all
}
