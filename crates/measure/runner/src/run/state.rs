//! A run that is under way.

use crate::Requirements;
use crate::images::Images;
use crate::shares::ShareSetup;
use crate::tool_output::Patterns;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{Machine, Probes, SizeRange, Slot, WorkloadSpec};
use vmtax_recording::Writer;
use vmtax_vm::{Interrupt, MachineError, Scratch, Streams, VmmProgram};
use vmtax_workload::{CheckedPlan, CheckedStep};

/// What a run is doing: for people who wait.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// Making disks and the initramfs.
    Preparing,
    /// A machine boots.
    Booting {
        /// Which slot.
        slot: Slot,
    },
    /// A trial is under way.
    Trial {
        /// Which, from 0.
        number: u32,
        /// Which slot.
        slot: Slot,
        /// What runs.
        workload: &'a WorkloadSpec,
        /// Under what.
        probes: Probes,
    },
    /// A budget leaves sizes out.
    LeftOut {
        /// The range without them.
        range: &'a SizeRange,
    },
    /// A trial has no result.
    Failed {
        /// Which, from 0.
        number: u32,
        /// The reason.
        error: &'a MachineError,
    },
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
    /// What is looked for in a command's output.
    pub patterns: &'a Patterns,
    /// The next trial's.
    pub number: u32,
    /// Machines that booted once: a later failure there is an accident, not a verdict.
    pub booted: BTreeSet<(Machine, usize)>,
    /// Steps of a range at which a machine failed to boot the first time, with the reason: not tried again.
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
    /// The VMM of the slot's machine.
    pub fn program(&self, slot: Slot) -> Option<&'a VmmProgram> {
        self.requirements?.program(slot.machine, slot.variant)
    }

    /// The trials of a slot: each workload under each of the plan's probes.
    pub fn all(&self, slot: Slot) -> Vec<Trial<'a>> {
        let plan = &self.steps[slot.step].plan;
        plan.workloads
            .iter()
            .flat_map(|workload| plan.probes_in(slot).iter().map(move |&probes| Trial { workload, probes }))
            .collect()
    }
}
