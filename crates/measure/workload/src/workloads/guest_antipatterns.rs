//! `guest-antipatterns`: antipatterns of guest kernels, made by the micro-guest's own code; here are its options alone.

use crate::clock::Clock;
use crate::descriptor::{Workload, options_of, workload};
use crate::error::WorkloadError;
use crate::options::{self, Word, count, one_of, seconds};
use crate::outcome::Yield;
use std::time::Duration;
use vmtax_model::{Places, WorkloadName, WorkloadSpec};

workload! {
    GuestAntipatterns: "avoidable exits and waits of guest kernels, with fixes, in the micro-guest";
    count: u32 = count(
        "count", "500", (2, 1_000_000),
        "how often each antipattern and each fix; what takes milliseconds, at most 50 times",
    );
    form: Word = one_of("form", "both", &["both", "antipattern", "fix"], "both, the antipatterns alone, or the fixes alone");
    time: f64 = seconds(
        options::TIME, "0", (0.0, 60.0),
        "seconds for which each is repeated at least, so that it can be sampled",
    );
}

impl Workload for GuestAntipatterns {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::MicroGuestOnly(
            WorkloadName::GuestAntipatterns,
        ))
    }
}

/// What `guest-antipatterns` is asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AntipatternWork {
    /// How often each is followed.
    pub count: u32,
    /// Whether the antipatterns are wanted, and whether the fixes are.
    pub forms: [bool; 2],
    /// For how long each is repeated at least.
    pub time: Duration,
}

/// What a spec of `guest-antipatterns` asks for.
///
/// # Errors
/// As [`crate::check`].
pub fn antipattern_work(spec: &WorkloadSpec) -> Result<AntipatternWork, WorkloadError> {
    let GuestAntipatterns { count, form, time } = options_of(spec, GuestAntipatterns::OPTIONS)?;
    let forms = ["antipattern", "fix"].map(|one| ["both", one].contains(&form));
    Ok(AntipatternWork {
        count,
        forms,
        time: Duration::from_secs_f64(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_words_of_plans_and_recordings_are_read() {
        for (word, forms) in [
            ("both", [true, true]),
            ("habit", [true, false]),
            ("fix", [false, true]),
            ("cure", [false, true]),
        ] {
            let spec = WorkloadSpec::new(WorkloadName::GuestAntipatterns).with("form", word);
            assert_eq!(antipattern_work(&spec).unwrap().forms, forms, "{word}");
        }
    }
}
