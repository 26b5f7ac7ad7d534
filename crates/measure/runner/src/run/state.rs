//! A run that is under way.

use super::size_times::SizeTimes;
use crate::RunError;
use crate::images::Images;
use crate::requirements::Requirements;
use crate::shares::ShareSetup;
use crate::tool_output::Patterns;
use crate::watch::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use vmtax_model::{KernelFacts, Machine, Probes, Slot, WorkloadSpec};
use vmtax_recording::Writer;
use vmtax_vm::{Interrupt, MachineError, Scratch, Streams, VmmProgram};
use vmtax_workload::{CheckedPlan, CheckedStep};

/// Rounds and trials that a recording has of the parts of a tuning before the one that is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeforePart {
    /// Number of rounds.
    pub rounds: u32,
    /// Number of trials.
    pub trials: u32,
}

/// A failure of the plan's command on the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFailure {
    /// Where it ran.
    pub machine: Machine,
    /// Exit status; 128 + n for signal n, 127 where the program was not found.
    pub status: i32,
}

pub(super) struct Run<'a> {
    pub plan: &'a CheckedPlan,
    /// The plan at each step of its range.
    pub steps: &'a [CheckedStep],
    pub scratch: &'a Scratch,
    pub images: &'a Images,
    /// The plan's variants.
    pub share_setups: &'a [ShareSetup],
    pub requirements: Option<&'a Requirements>,
    pub events: bool,
    pub interrupt: &'a Interrupt,
    pub streams: Option<&'a Streams>,
    /// Patterns of the metrics that are read from a command's output.
    pub patterns: &'a Patterns,
    /// The next trial's.
    pub number: u32,
    /// Rounds and trials that the recording has of earlier parts of a tuning.
    pub before: Option<BeforePart>,
    /// Machines that booted once: a later failure there is an accident, not a verdict.
    pub booted: BTreeSet<(Machine, usize)>,
    /// Steps of a range at which a machine failed to boot the first time, with the reason: not tried again.
    pub refused: BTreeMap<(Machine, usize, usize), String>,
    pub first_failure: Option<MachineError>,
    /// True after the plan's command failed in the last boot.
    pub has_command_failed: bool,
    /// A failure of the plan's command that ends the run.
    pub command_failure: Option<CommandFailure>,
    /// Number of the range's steps that are measured: a budget may leave the last ones out.
    pub kept_steps: usize,
    pub size_times: Option<SizeTimes<'a>>,
    /// When the slot began, with the boot that it has alone or is the first of.
    pub slot_began: Instant,
    pub writer: &'a mut Writer,
    pub progress: &'a mut dyn FnMut(Progress<'_>),
}

/// A trial to be made.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub workload: &'a WorkloadSpec,
    pub probes: Probes,
}

impl<'a> Run<'a> {
    /// The VMM of the slot's machine.
    pub fn program(&self, slot: Slot) -> Option<&'a VmmProgram> {
        self.requirements?.program(slot.machine, slot.variant)
    }

    /// The kernel of the slot's guest; `None` without one.
    pub fn kernel(&self, slot: Slot) -> Option<&'a KernelFacts> {
        self.requirements?.kernels().get(slot.variant)
    }

    /// Returns true if a budget leaves the slot's size out, which is decided before its first trial. After a budget's
    /// first round, the sizes that are kept stay.
    pub fn is_left_out(&mut self, slot: Slot) -> Result<bool, RunError> {
        let exceeds = |times: &SizeTimes<'_>| slot.round == 0 && times.exceeds_budget(slot.step);
        if slot.step < self.kept_steps && self.size_times.as_ref().is_some_and(exceeds) {
            self.kept_steps = slot.step;
            if let Some(range) = self.writer.keep_sizes(slot.step)? {
                (self.progress)(Progress::LeftOut { range });
            }
        }
        Ok(slot.step >= self.kept_steps)
    }

    /// Returns true if the slot is of a candidate of a tuning: its baseline is the first variant of all.
    pub fn is_candidate(&self, slot: Slot) -> bool {
        self.before
            .is_some_and(|before| before.rounds > 0 || slot.variant > 0)
    }

    /// The slot's round in the recording.
    pub fn round(&self, slot: Slot) -> u32 {
        self.before
            .map_or(0, |before| before.rounds)
            .saturating_add(slot.round)
    }

    /// Notes what the slot took; the next one begins.
    pub fn note_time(&mut self, slot: Slot) {
        let took = self.slot_began.elapsed();
        self.slot_began = Instant::now();
        if let Some(times) = self.size_times.as_mut().filter(|_| slot.round == 0) {
            times.add(slot.step, took);
        }
    }

    /// The trials of a slot: each workload under each of the plan's probes.
    pub fn all(&self, slot: Slot) -> Vec<Trial<'a>> {
        let step = &self.steps[slot.step];
        let workloads = step.specs(slot.variant).iter();
        let probes = || step.plan.probes_in(slot).iter();
        workloads
            .flat_map(|workload| probes().map(move |&probes| Trial { workload, probes }))
            .collect()
    }
}
