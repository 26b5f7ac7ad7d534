//! `guest-antipatterns`: antipatterns of guest kernels, made by the micro-guest's own code; here are its options alone.

use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::options::{self, Word, count, one_of, seconds};
use crate::{Clock, WorkloadError};
use std::time::Duration;
use vmtax_model::{Places, WorkloadName, WorkloadSpec};

workload! {
    GuestAntipatterns: "avoidable exits and waits of guest kernels, with fixes, in the micro-guest";
    count: u32 = count(
        "count", "500", 2..=1_000_000,
        "runs of each antipattern and each fix; at most 50 of those that take milliseconds",
    );
    form: Word = one_of("form", "both", &["both", "antipattern", "fix"], "both, the antipatterns alone, or the fixes alone");
    time: f64 = seconds(
        options::TIME, "0", 0.0..=60.0,
        "minimum seconds for which each is repeated, so that it can be sampled",
    );
}

impl Workload for GuestAntipatterns {
    fn run(&self, _: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        Err(WorkloadError::MicroGuestOnly(
            WorkloadName::GuestAntipatterns,
        ))
    }
}

/// Work that `guest-antipatterns` does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AntipatternWork {
    /// Number of repetitions of each antipattern and each fix.
    pub count: u32,
    /// True for the antipatterns if they are wanted, then true for the fixes if they are wanted.
    pub forms: [bool; 2],
    /// For how long each is repeated at least.
    pub time: Duration,
}

/// Returns the work that a spec of `guest-antipatterns` asks for.
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
    fn forms_are_words() {
        for (word, forms) in [
            ("both", [true, true]),
            ("antipattern", [true, false]),
            ("fix", [false, true]),
        ] {
            let spec = WorkloadSpec::new(WorkloadName::GuestAntipatterns).with("form", word);
            assert_eq!(antipattern_work(&spec).unwrap().forms, forms, "{word}");
        }
    }
}
