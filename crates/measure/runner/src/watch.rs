//! Connection of a recording in the making with who asked for it.

use std::path::Path;
use vmtax_model::{
    GuestTuneStep, Plan, Probes, SizeRange, Slot, TrialRecord, TuneRecord, TuneSpec, TuneStep,
    WorkloadSpec,
};
use vmtax_vm::{Interrupt, MachineError, Streams};

/// Connects a recording in the making with who asked for it.
pub struct Watch<'a> {
    /// Ends the recording in good order.
    pub interrupt: &'a Interrupt,
    /// Streams of the plan's command, if it has one.
    pub streams: Option<&'a Streams>,
    /// Callback that receives the progress.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
    /// Decides what is measured next.
    pub decide: &'a mut dyn Decide,
}

/// Decides what is measured next, from what was recorded so far.
pub trait Decide {
    /// Decides after so many complete rounds, which lie in the recording's folder.
    fn after_round(&mut self, folder: &Path, rounds: u32) -> AfterRound;

    /// Returns the next step of the tuning of a running VM.
    fn next_of_vm(&mut self, spec: &TuneSpec, records: &[TuneRecord]) -> TuneStep;

    /// Returns the next step of the tuning of a guest; `None` where nothing is left to measure.
    fn next_of_guest(&mut self, plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneStep>;
}

/// Decision after a complete round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRound {
    /// Another round begins.
    Another,
    /// The run ends.
    End,
    /// The run ends, and the plan has no more rounds than those.
    Whole,
}

/// Progress of a run, for people who wait.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// A note for people, as what is fetched.
    Note(&'a str),
    /// Making disks and the initramfs.
    Preparing,
    /// A machine boots.
    Booting {
        /// Slot whose machine boots.
        slot: Slot,
    },
    /// A trial is under way.
    Trial {
        /// Number of the trial, from 0.
        number: u32,
        /// Slot of the trial.
        slot: Slot,
        /// Workload that runs.
        workload: &'a WorkloadSpec,
        /// Probes that observe it.
        probes: Probes,
    },
    /// A budget leaves sizes out.
    LeftOut {
        /// The range without them.
        range: &'a SizeRange,
    },
    /// A trial has no result.
    Failed {
        /// Number of the trial, from 0.
        number: u32,
        /// Reason of the failure.
        error: &'a MachineError,
    },
}
