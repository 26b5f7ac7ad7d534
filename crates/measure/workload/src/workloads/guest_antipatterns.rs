//! `guest-antipatterns`: costly habits of guest kernels, made by the micro-guest's own code; here are its options alone.

use crate::clock::Clock;
use crate::descriptor::{Workload, options_of, workload};
use crate::error::WorkloadError;
use crate::options::{self, Word, count, one_of, seconds};
use crate::outcome::Yield;
use std::time::Duration;
use vmtax_model::{Places, WorkloadName, WorkloadSpec};

workload! {
    GuestAntipatterns: "costly habits of guest kernels and their cures, on the micro-guest";
    count: u32 = count(
        "count", "500", (2, 1_000_000),
        "how often each habit and each cure; what takes milliseconds, at most 50 times",
    );
    form: Word = one_of("form", "both", &["both", "habit", "cure"], "both, the habits alone, or the cures alone");
    time: f64 = seconds(
        options::TIME, "0", (0.0, 60.0),
        "seconds for which each is repeated at least, so that it can be looked at",
    );
}

impl Workload for GuestAntipatterns {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::MicroGuestOnly(WorkloadName::GuestAntipatterns))
    }
}

/// What `guest-antipatterns` is asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HabitWork {
    /// How often each is followed.
    pub count: u32,
    /// Whether the habits are wanted, and whether the cures are.
    pub forms: [bool; 2],
    /// For how long each is repeated at least.
    pub time: Duration,
}

/// What a spec of `guest-antipatterns` asks for.
///
/// # Errors
/// As [`crate::check`].
pub fn habit_work(spec: &WorkloadSpec) -> Result<HabitWork, WorkloadError> {
    let GuestAntipatterns { count, form, time } = options_of(spec, GuestAntipatterns::OPTIONS)?;
    let forms = ["habit", "cure"].map(|one| ["both", one].contains(&form));
    Ok(HabitWork { count, forms, time: Duration::from_secs_f64(time) })
}
