//! Files that a run writes: each trial with all that is noted of it, each slot's logs.

use super::state::{Run, Trial};
use crate::RunError;
use jiff::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{
    CpuSeconds, Execution, Outcome, PinnedCpus, ShareFacts, SharedBoot, Slot, TrialRecord, Warning,
};
use vmtax_vm::{MachineError, Monitor, RunningMachine, Vm};

impl Run<'_> {
    /// Writes down that the trials of slots that share a boot have no result, from the first slot's trial `from` on.
    pub(super) fn skip(
        &mut self,
        boot: &[Slot],
        from: usize,
        error: MachineError,
    ) -> Result<(), RunError> {
        self.write_failed(
            boot,
            from,
            &format!("{} no longer ran: {error}", boot[0].machine),
        )?;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    pub(super) fn write_failed(
        &mut self,
        boot: &[Slot],
        from: usize,
        why: &str,
    ) -> Result<(), RunError> {
        let kept = self.kept_steps;
        let trials = |slot: &Slot| {
            self.all(*slot)
                .into_iter()
                .map(|trial| (*slot, trial))
                .collect::<Vec<_>>()
        };
        let all: Vec<(Slot, Trial<'_>)> = boot
            .iter()
            .filter(|slot| slot.step < kept)
            .flat_map(trials)
            .collect();
        for (slot, trial) in all.into_iter().skip(from) {
            let outcome = Outcome::Failed {
                error: why.to_owned(),
            };
            self.write(slot, trial, outcome, TrialNotes::none())?;
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        slot: Slot,
        Trial { workload, probes }: Trial<'_>,
        outcome: Outcome,
        notes: TrialNotes,
    ) -> Result<(), RunError> {
        let variant = if slot.machine.is_guest() {
            self.plan.variants[slot.variant].name.clone()
        } else {
            String::new()
        };
        self.writer.write(&TrialRecord {
            schema: vmtax_model::SCHEMA,
            number: self.number,
            round: self.round(slot),
            machine: slot.machine,
            variant,
            step: self.plan.size(slot.step),
            turn: (self.plan.shared_boot() == Some(SharedBoot::Variants)).then_some(slot.turn),
            probes,
            workload: workload.clone(),
            started: notes.started.to_string(),
            wall_s: notes.wall_s,
            outcome,
            share: notes.share,
            cpu_seconds: notes.cpu_seconds,
            control_s: notes.control_s,
            execution: notes.execution,
            pinned: notes.pinned,
            warnings: notes.warnings,
        })?;
        self.number += 1;
        Ok(())
    }

    /// One machine's logs in one round.
    pub(super) fn log_folder(&self, slot: Slot) -> Result<PathBuf, RunError> {
        let shared = self.plan.shared_boot();
        // By number: a variant's name may hold anything.
        let has_variant = self.plan.variants.len() > 1 && shared != Some(SharedBoot::Variants);
        let variant = if has_variant {
            format!("-{}", slot.variant)
        } else {
            String::new()
        };
        let size = self
            .plan
            .size(slot.step)
            .filter(|_| shared != Some(SharedBoot::Sizes));
        let step = size.map_or(String::new(), |size| format!("-at-{size}"));
        let name = format!("{:04}-{}{variant}{step}", self.round(slot), slot.machine);
        let folder = self.writer.folder().join("turns").join(name);
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(failed("creating", &folder, source)),
        }
    }
}

/// Notes on a trial besides how it ended.
pub(super) struct TrialNotes {
    pub(super) started: Timestamp,
    pub(super) wall_s: f64,
    pub(super) share: Option<ShareFacts>,
    pub(super) cpu_seconds: Option<CpuSeconds>,
    pub(super) control_s: Option<f64>,
    pub(super) execution: Option<Execution>,
    pub(super) pinned: Option<PinnedCpus>,
    pub(super) warnings: Vec<Warning>,
}

impl TrialNotes {
    /// Of a trial that could not be begun.
    pub(super) fn none() -> TrialNotes {
        TrialNotes {
            started: Timestamp::now(),
            wall_s: 0.0,
            share: None,
            cpu_seconds: None,
            control_s: None,
            execution: None,
            pinned: None,
            warnings: Vec::new(),
        }
    }
}

/// `turn.json`: what a slot's trials have in common.
pub(super) fn note_boot(
    log: &Path,
    slot: Slot,
    machine: &dyn RunningMachine,
) -> Result<(), RunError> {
    let note = serde_json::json!({
        "schema": vmtax_model::SCHEMA,
        "round": slot.round,
        "machine": slot.machine,
        "variant": slot.variant,
        "step": slot.step,
        "boot_s": machine.boot().as_secs_f64(),
        "ready_s": machine.ready().as_secs_f64(),
        "agent": machine.hello(),
    });
    let path = log.join("turn.json");
    fs::write(&path, format!("{note:#}\n")).map_err(|e| failed("writing", &path, e))
}

/// Where KVM runs the guest: which device has which address, by which the guest's exits are named later. At the slot's end,
/// as a guest places its devices itself. A monitor that does not answer costs the names alone.
pub(super) fn note_memory_tree(
    log: &Path,
    slot: Slot,
    machine: &dyn RunningMachine,
) -> Result<(), RunError> {
    if !slot.machine.is_kvm() {
        return Ok(());
    }
    let Some(Ok(tree)) = machine.vm().and_then(Vm::monitor).map(Monitor::memory_tree) else {
        return Ok(());
    };
    let path = log.join(vmtax_model::files::MEMORY_TREE);
    fs::write(&path, tree).map_err(|e| failed("writing", &path, e))
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> RunError {
    MachineError::System {
        what: format!("{verb} {}", path.display()),
        source,
    }
    .into()
}
