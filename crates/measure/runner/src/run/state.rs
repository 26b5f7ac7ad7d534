//! A run that is under way.

use crate::images::Images;
use crate::shares::ShareSetup;
use crate::tool_output::Patterns;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{Machine, Probes, QemuFacts, Turn, WorkloadSpec};
use vmtax_recording::Writer;
use vmtax_vm::{Interrupt, MachineError, Scratch, Streams};
use vmtax_workload::{CheckedPlan, CheckedRung};

/// What a run is doing: for people who wait.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// Making disks and the initramfs.
    Preparing,
    /// A machine boots.
    Booting {
        /// Whose turn.
        turn: Turn,
    },
    /// A trial is under way.
    Trial {
        /// Which, from 0.
        number: u32,
        /// Whose turn.
        turn: Turn,
        /// What runs.
        workload: &'a WorkloadSpec,
        /// Under what.
        probes: Probes,
    },
    /// A trial has no result.
    Failed {
        /// Which, from 0.
        number: u32,
        /// Why.
        error: &'a MachineError,
    },
}

pub(super) struct Run<'a> {
    pub plan: &'a CheckedPlan,
    /// The plan at each rung of its ladder.
    pub rungs: &'a [CheckedRung],
    pub scratch: &'a Scratch,
    pub images: &'a Images,
    /// The plan's variants.
    pub ways: &'a [ShareSetup],
    /// Their QEMUs.
    pub qemus: &'a [QemuFacts],
    pub events: bool,
    pub interrupt: &'a Interrupt,
    pub streams: Option<&'a Streams>,
    /// What is looked for in a command's output.
    pub patterns: &'a Patterns,
    /// The next trial's.
    pub number: u32,
    /// Machines that booted once: a later failure there is an accident, not a verdict.
    pub booted: BTreeSet<(Machine, usize)>,
    /// Rungs of a ladder at which a machine failed to boot the first time, with the reason: not tried again.
    pub refused: BTreeMap<(Machine, usize, usize), String>,
    pub first_failure: Option<MachineError>,
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
    /// The trials of a turn: each workload under each of the plan's probes.
    pub fn all(&self, turn: Turn) -> Vec<Trial<'a>> {
        let plan = &self.rungs[turn.rung].plan;
        plan.workloads
            .iter()
            .flat_map(|workload| plan.probes_in(turn).iter().map(move |&probes| Trial { workload, probes }))
            .collect()
    }
}
