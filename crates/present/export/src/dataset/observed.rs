//! The tables `exits` and `samples`: what was observed of guests and of VMs that ran already.

use crate::table::{Cell, Column, Rows, maybe, text, words};
use crate::{ExportError, Run};
use vmtax_findings::ExitActivity;
use vmtax_model::{Accelerator, Machine, VmFacts};
use vmtax_profile::{ObservedRows, Sampling, observed_rows};
use vmtax_recording::Recording;

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
