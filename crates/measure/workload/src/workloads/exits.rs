//! `exits`: VM exits of each kind, made by the micro-guest's own code; here are its options alone.

use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::options::count;
use crate::{Clock, WorkloadError};
use vmtax_model::{Places, WorkloadName, WorkloadSpec};

workload! {
    Exits: "VM exits of each kind, in the micro-guest (no operating system)";
    count: u32 = count(
        "count", "5000", 1..=1_000_000,
        "exits of each kind; halts, which take a millisecond each, at most 500",
    );
}

impl Workload for Exits {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::MicroGuestOnly(WorkloadName::Exits))
    }
}

/// Returns the number of exits of each kind that a spec of `exits` asks for.
///
/// # Errors
/// As [`crate::check`].
pub fn exit_count(spec: &WorkloadSpec) -> Result<u32, WorkloadError> {
    Ok(options_of::<Exits>(spec, Exits::OPTIONS)?.count)
}

/// `exits` with `count` of each kind.
pub fn exits(count: u32) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::Exits).with(Exits::OPTIONS[0].name, count)
}
