//! The tables `facts`: what is known of the host of a run, and of its guests; `exits` and `samples`: what was observed of guests
//! and of VMs that ran already.

use crate::table::{Cell, Column, Rows, maybe, text, words};
use crate::{ExportError, Run};
use std::collections::BTreeMap;
use vmtax_findings::ExitActivity;
use vmtax_model::{Accelerator, Machine, Variant, VmFacts};
use vmtax_profile::{ObservedRows, Sampling, observed_rows};
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

/// Both tables of a recording.
pub struct Observed {
    pub exits: Rows,
    pub samples: Rows,
}

impl Observed {
    /// Reads what was observed in each trial.
    pub fn read(recording: &Recording, run: &Run) -> Result<Observed, ExportError> {
        let mut observed = Observed {
            exits: Rows::new(exits()),
            samples: Rows::new(samples()),
        };
        for trial in &recording.trials {
            let rows = observed_rows(&recording.trial_folder(trial.number))?;
            observed.push(run, trial.machine, &trial.variant, trial.number, rows);
        }
        if recording.trials.is_empty() {
            // What ran already has no trial, its files are where those of the first would be.
            let rows = observed_rows(&recording.trial_folder(0))?;
            let machine = machine(rows.vm.as_ref());
            observed.push(run, machine, "", 0, rows);
        }
        Ok(observed)
    }

    fn push(&mut self, run: &Run, machine: Machine, variant: &str, trial: u32, rows: ObservedRows) {
        let vm = rows.vm.and_then(|vm| vm.name);
        let identity = || {
            [
                words(&run.id),
                words(machine.as_str()),
                words(variant),
                Cell::Int(trial),
                maybe(vm.as_deref()),
            ]
        };
        for exits in &rows.exits {
            let access = exits.access;
            // Addresses have at most 52 bits; what is larger is no address.
            let address = access.map(|access| access.address);
            let of_exits = [
                Cell::Maybe(exits.vcpu.map(u64::from)),
                words(&exits.reason),
                words(ExitActivity::from_reason(&exits.reason).into()),
                maybe(access.map(|access| access.space.into())),
                Cell::Maybe(address.filter(|address| i64::try_from(*address).is_ok())),
                maybe(access.map(|access| if access.write { "write" } else { "read" })),
                words(&exits.device),
                words(&exits.register),
                Cell::Long(exits.count),
                Cell::Maybe(exits.user),
                Cell::Long(exits.timed),
                Cell::Float(exits.total_ns),
                Cell::Float(rows.seconds),
            ];
            let row = identity().into_iter().chain(of_exits);
            self.exits.push(row.collect());
        }
        for stack in &rows.stacks {
            let of_stack = [
                words(sampling(stack.sampling)),
                words(&stack.thread),
                words(&stack.function),
                words(stack.origin.into()),
                words(&stack.stack),
                Cell::Long(stack.count),
            ];
            let row = identity().into_iter().chain(of_stack);
            self.samples.push(row.collect());
        }
    }
}

/// A Linux guest stands for any, as for requests: what it is the host does not know. A process that is no VM is native.
fn machine(vm: Option<&VmFacts>) -> Machine {
    match vm {
        Some(vm) if vm.accelerator == Some(Accelerator::Tcg) => Machine::TCG,
        Some(_) => Machine::KVM,
        None => Machine::NATIVE,
    }
}

fn sampling(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::OnCpu => "on-cpu",
        Sampling::WallClock => "wall-clock",
        Sampling::Guest => "guest",
    }
}

fn identity() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("machine"),
        text("variant"),
        ("trial", Column::Int(vec![])),
        ("vm", Column::MaybeText(vec![])),
    ]
}

fn exits() -> Vec<(&'static str, Column)> {
    let mut columns = identity();
    columns.extend([
        ("vcpu", Column::Maybe(vec![])),
        text("reason"),
        text("activity"),
        ("space", Column::MaybeText(vec![])),
        ("address", Column::Maybe(vec![])),
        ("access", Column::MaybeText(vec![])),
        text("device"),
        text("register"),
        ("count", Column::Long(vec![])),
        ("user", Column::Maybe(vec![])),
        ("timed", Column::Long(vec![])),
        ("total_ns", Column::Float(vec![])),
        ("seconds", Column::Float(vec![])),
    ]);
    columns
}

fn samples() -> Vec<(&'static str, Column)> {
    let mut columns = identity();
    columns.extend(["sampling", "thread", "function", "origin", "stack"].map(text));
    columns.push(("samples", Column::Long(vec![])));
    columns
}
