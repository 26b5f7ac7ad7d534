//! From a plan to a recording: finds what the plan's machines need, takes the turns in order, writes each trial down as
//! it ends.

mod control;
mod exec;
mod images;
mod means;
mod observe;
mod pin;
mod run;
mod shares;
pub mod tool_output;

pub use means::{Means, find_means};
pub use observe::profile;
pub use run::{Ended, Progress, Watch, run};

use vmtax_guests::kernel::KernelError;
use vmtax_host::HostError;
use vmtax_model::{Machine, WorkloadName};
use vmtax_recording::RecordingError;
use vmtax_vm::MachineError;
use vmtax_workload::WorkloadError;

/// A plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No QEMU that will do.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No guest kernel that will do.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An option that a workload does not have, or a value it does not take.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] vmtax_model::PlanError),
    /// A figure cannot be looked for.
    #[error(transparent)]
    Pattern(#[from] crate::tool_output::PatternError),
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The files and disks for the machines cannot be made.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Names held open take more memory than the machines have.
    #[error(
        "{workload} is to hold names open that take some {held_mib} MiB of a machine's memory, which has {memory_mib} MiB: give --memory {needed}, a smaller count, or how=cached"
    )]
    HeldTooMany {
        /// Which workload.
        workload: WorkloadName,
        /// MiB that they take.
        held_mib: u64,
        /// MiB that a machine has.
        memory_mib: u64,
        /// MiB that would do.
        needed: u64,
    },
    /// A machine that did not come up in its first turn will not in a later one.
    #[error("{machine} does not come up: {source}")]
    FirstBoot {
        /// Which.
        machine: Machine,
        /// Why.
        source: MachineError,
    },
    /// A process cannot be observed.
    #[error(transparent)]
    Observe(#[from] vmtax_observe::ProbeError),
    /// The machine cannot be had on this host.
    #[error("{machine} cannot be had here: {reason}")]
    NoMachine {
        /// Which.
        machine: Machine,
        /// Why, and what to do.
        reason: String,
    },
}
