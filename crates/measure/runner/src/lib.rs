//! From a plan to a recording: finds what the plan's machines need, takes the turns in order, writes each trial down as
//! it ends.

mod control;
mod exec;
mod images;
mod observe;
mod pin;
mod requirements;
mod run;
mod shares;
pub mod tool_output;

pub use observe::profile;
pub use requirements::{Requirements, find_requirements};
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
    /// A figure cannot be searched for.
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
        "{workload} needs about {held_mib} MiB of a machine's {memory_mib} MiB for open file handles: give --memory {needed}, a smaller count, or how=cached"
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
    /// A machine that failed to boot in its first turn will not in a later one.
    #[error("{machine} failed to boot: {source}")]
    FirstBoot {
        /// Which.
        machine: Machine,
        /// Why.
        source: MachineError,
    },
    /// A process cannot be observed.
    #[error(transparent)]
    Observe(#[from] vmtax_observe::ProbeError),
    /// The machine is not available on this host.
    #[error("{machine} is not available on this host: {reason}")]
    NoMachine {
        /// Which.
        machine: Machine,
        /// Why, and what to do.
        reason: String,
    },
}
