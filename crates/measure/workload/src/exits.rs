//! `exits`: VM exits of each kind, made by the micro-guest's own code; here are its options alone.

use crate::clock::Clock;
use crate::descriptor::{Descriptor, Presets, Workload, options_of, work};
use crate::error::WorkloadError;
use crate::options::{count, options};
use crate::outcome::Yield;
use vmtax_model::{Places, WorkloadName, WorkloadSpec};

options! {
    /// What `exits` is asked to do.
    pub struct ExitWork {
        /// How many exits of each kind.
        count: u32 = count(
            "count", "5000", (1, 1_000_000),
            "exits of each kind; halts, which take a millisecond each, at most 500",
        );
    }
}

pub(crate) static WORKLOAD: Descriptor = Descriptor {
    name: WorkloadName::Exits,
    about: "VM exits of each kind, on the micro-guest",
    options: ExitWork::OPTIONS,
    presets: Presets::NONE,
    parse: work::<ExitWork>,
};

impl Workload for ExitWork {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::MicroGuestOnly(WorkloadName::Exits))
    }
}

/// What a spec of `exits` asks for.
///
/// # Errors
/// As [`crate::check`].
pub fn exit_work(spec: &WorkloadSpec) -> Result<ExitWork, WorkloadError> {
    options_of(spec, ExitWork::OPTIONS)
}

/// `exits` with `count` of each kind.
pub fn exits(count: u32) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::Exits).with(ExitWork::OPTIONS[0].name, count)
}
