//! From a plan to a recording: finds what the plan's machines need, runs the slots of its schedule or observes what runs already,
//! and records each trial as it ends.

mod observe;
mod recorder;
mod requirements;
mod run;
mod shares;
pub mod tool_output;
mod workspace;

pub use recorder::Recorder;
pub use requirements::check_named;
pub use run::{CommandFailure, Ended};
pub use tool_output::{check_patterns, exit_report, fio_jobs};

use std::path::Path;
use vmtax_guests::kernel::KernelError;
use vmtax_host::HostError;
use vmtax_model::{
    GuestTuneStep, Machine, Missing, Plan, Probes, SizeRange, Slot, TrialRecord, TuneRecord,
    TuneSpec, TuneStep, WorkloadName, WorkloadSpec,
};
use vmtax_recording::RecordingError;
use vmtax_vm::{Interrupt, MachineError, Streams};
use vmtax_workload::WorkloadError;

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

/// A plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No usable QEMU.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No usable guest kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The firmware's file cannot be read.
    #[error("the firmware {} cannot be read: {source}. Give its file, or a name of QEMU's own, such as qboot.rom", path.display())]
    Firmware {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// An unknown option of a workload, or an invalid value.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] vmtax_model::PlanError),
    /// A metric's pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] crate::tool_output::PatternError),
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The files and disks for the machines cannot be made.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Running VMs cannot be sampled.
    #[error(transparent)]
    Fleet(#[from] vmtax_live::FleetError),
    /// A change to a running VM cannot be written down.
    #[error(transparent)]
    Change(#[from] vmtax_live::ChangeError),
    /// Open file handles need more memory than the machines have.
    #[error(
        "{workload} needs about {held_mib} MiB for open file handles, but a machine has {memory_mib} MiB: use --memory {needed}, a smaller count, or how=cached"
    )]
    HeldTooMany {
        /// Name of the workload.
        workload: WorkloadName,
        /// MiB that they need.
        held_mib: u64,
        /// MiB that a machine has.
        memory_mib: u64,
        /// MiB that suffice.
        needed: u64,
    },
    /// A machine failed to boot the first time: it would fail each time.
    #[error("{machine} failed to boot: {source}")]
    FirstBoot {
        /// Machine that failed to boot.
        machine: Machine,
        /// Reason of the failure.
        source: MachineError,
    },
    /// A twin of somebody's VM does not boot.
    #[error(
        "the test guest with the configuration of {like} failed to boot: {source}\nOverride the setting that fails: --qemu, --machine-type, --cpu-model, --memory or --machine"
    )]
    Twin {
        /// VM whose configuration the test guest has.
        like: String,
        /// Reason of the failed boot.
        source: MachineError,
    },
    /// The plan's VM, or its process, is another one by now, or gone.
    #[error(transparent)]
    Find(#[from] vmtax_vmm::FindError),
    /// A plan of what another tool recorded, which cannot be recorded again.
    #[error(
        "the plan {plan} is of files of another tool: give these to `vmtax import`, stacks to `vmtax profile import`"
    )]
    OfFiles {
        /// Name of the plan.
        plan: String,
    },
    /// A plan of an older version that tunes a running VM.
    #[error(
        "the plan tunes the VM of process {pid} and does not say when that started, so another VM may have its PID by now: `vmtax tune --vm VM` makes a plan of the VM as it is"
    )]
    UnknownStart {
        /// PID of the process.
        pid: i32,
    },
    /// The process to observe is no VM, or no longer one.
    #[error("process {pid} is not a VM: `vmtax vms` lists the running VMs")]
    NoVm {
        /// ID of the process.
        pid: i32,
    },
    /// A VM that ended before it was observed for long enough to say something.
    #[error(
        "the VM of process {pid} exited while it was observed: `vmtax vms` lists the running VMs"
    )]
    Ended {
        /// ID of the VM's process.
        pid: i32,
    },
    /// A VM without VM exits.
    #[error(
        "process {pid} has no VM exits: KVM runs no guest of it (TCG has none). `vmtax profile --vm` shows what its threads do"
    )]
    NoExits {
        /// ID of the process.
        pid: i32,
    },
    /// A VM none of whose packets pass a tap that its VMM reads.
    #[error(
        "the VMM of process {pid} reads no tap, so none of its packets can be traced{}",
        reasons(missing)
    )]
    NoTap {
        /// ID of the process.
        pid: i32,
        /// Network backends that it has in place of one, each with what to do.
        missing: Vec<Missing>,
    },
    /// Requests are to be traced without probes in a VMM whose interrupts the host's kernel does not see.
    #[error(
        "process {pid} runs its guest under TCG, whose interrupts no event of the host's kernel shows: omit --no-probes"
    )]
    NoProbesUnderTcg {
        /// ID of the process.
        pid: i32,
    },
    /// A process cannot be observed.
    #[error(transparent)]
    Observe(#[from] vmtax_observe::ProbeError),
    /// The machine is not available on this host.
    #[error("{machine} is not available on this host: {reason}")]
    NoMachine {
        /// Machine that is not available.
        machine: Machine,
        /// Why, and what to do.
        reason: String,
    },
}

impl From<vmtax_vmm::VmmError> for RunError {
    fn from(error: vmtax_vmm::VmmError) -> RunError {
        RunError::Machine(error.into())
    }
}

/// Returns what is there in place of a tap, each with what to do.
fn reasons(missing: &[Missing]) -> String {
    if missing.is_empty() {
        return ": give it a NIC with -netdev tap".to_owned();
    }
    let reasons = missing
        .iter()
        .map(|missing| format!(". {}: {}; {}", missing.what, missing.why, missing.fix));
    reasons.collect()
}
