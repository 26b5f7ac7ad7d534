//! What is run: sysbench's five tests, system calls, block requests, operations on a shared tree, each timed.
//!
//! The same code runs natively and inside a guest. A workload is given as a [`WorkloadSpec`]; [`check`] says whether it
//! can be run as written and [`run`] runs it. Each module states the definition it follows.
//!
//! A new workload is a block of the table in `vmtax-model`, a module here, and its line in [`descriptor`].

mod buffer;
mod clock;
mod descriptor;
mod error;
mod exec;
mod exits;
mod guest_antipatterns;
mod options;
mod outcome;
mod seqread;
mod share;
mod sysbench;
mod syscalls;

pub use clock::Clock;
pub use descriptor::{Checked, Descriptor, Preset, Room};
pub use error::WorkloadError;
pub use exits::{exit_count, exits};
pub use guest_antipatterns::{HabitWork, habit_work};
pub use options::OptionInfo;
pub use seqread::{BlockWork, block_work, requests, run_with_series};
pub use share::bonnie::small_bonnie;
pub use share::fs_semantics::{Guest, lingering, look};

use vmtax_model::{Places, TrialResult, WorkloadName, WorkloadSpec};

/// What is known of a workload: its options, its presets.
pub const fn descriptor(name: WorkloadName) -> &'static Descriptor {
    match name {
        WorkloadName::Cpu => &sysbench::cpu::WORKLOAD,
        WorkloadName::Threads => &sysbench::threads::WORKLOAD,
        WorkloadName::Mutex => &sysbench::mutex::WORKLOAD,
        WorkloadName::Memory => &sysbench::memory::WORKLOAD,
        WorkloadName::Fileio => &sysbench::fileio::WORKLOAD,
        WorkloadName::Syscalls => &syscalls::WORKLOAD,
        WorkloadName::Seqread => &seqread::WORKLOAD,
        WorkloadName::Tree => &share::tree::WORKLOAD,
        WorkloadName::Bonnie => &share::bonnie::WORKLOAD,
        WorkloadName::OpenFids => &share::open_fids::WORKLOAD,
        WorkloadName::Names => &share::names::WORKLOAD,
        WorkloadName::FsSemantics => &share::fs_semantics::WORKLOAD,
        WorkloadName::Exec => &exec::WORKLOAD,
        WorkloadName::Exits => &exits::WORKLOAD,
        WorkloadName::GuestAntipatterns => &guest_antipatterns::WORKLOAD,
    }
}

/// Parses every option, fills in the defaults, and sees that they go together.
///
/// # Errors
/// An unknown option, a value out of range, or options that do not go together.
pub fn check(spec: &WorkloadSpec) -> Result<Checked, WorkloadError> {
    Checked::new(spec, descriptor(spec.name))
}

/// [`check`], and then [`Checked::run`].
///
/// # Errors
/// As they have.
pub fn run(spec: &WorkloadSpec, places: &Places) -> Result<TrialResult, WorkloadError> {
    check(spec)?.run(places)
}

/// Has a trial measure for so many seconds in all, where the workload has an option for its time.
///
/// # Errors
/// As [`check`].
pub fn set_duration(spec: &mut WorkloadSpec, seconds: f64) -> Result<(), WorkloadError> {
    if descriptor(spec.name).options.iter().any(|option| option.name == options::TIME) {
        let each = seconds / check(spec)?.parts() as f64;
        spec.options.insert(options::TIME.to_owned(), each.to_string());
    }
    Ok(())
}
