//! `exits` and `habits`: made by the micro-guest's own code; here are their options alone.

use crate::options::{Kind, OptionInfo, Values};
use crate::{WorkloadError, check};
use std::time::Duration;
use vmtax_model::WorkloadSpec;

pub(crate) const OPTIONS: &[OptionInfo] = &[OptionInfo {
    name: "count",
    default: "5000",
    help: "exits of each kind; halts, which take a millisecond each, at most 500",
    kind: Kind::Count { min: 1, max: 1_000_000 },
}];

pub(crate) const HABIT_OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "count",
        default: "500",
        help: "how often each habit and each cure; what takes milliseconds, at most 50 times",
        kind: Kind::Count { min: 2, max: 1_000_000 },
    },
    OptionInfo {
        name: "form",
        default: "both",
        help: "both, the habits alone, or the cures alone",
        kind: Kind::OneOf(&["both", "habit", "cure"]),
    },
    OptionInfo {
        name: "time",
        default: "0",
        help: "seconds for which each is repeated at least, so that it can be looked at",
        kind: Kind::Seconds { min: 0.0, max: 60.0 },
    },
];

/// How many exits of each kind are asked for.
///
/// # Errors
/// As [`check`].
pub fn exit_count(spec: &WorkloadSpec) -> Result<u32, WorkloadError> {
    count(&Values(&check(spec)?))
}

/// Which habits are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HabitWork {
    /// How often each is followed.
    pub count: u32,
    /// Whether the habits are wanted, and whether the cures are.
    pub forms: [bool; 2],
    /// For how long each is repeated at least.
    pub time: Duration,
}

/// What `habits` is asked to do.
///
/// # Errors
/// As [`check`].
pub fn habit_work(spec: &WorkloadSpec) -> Result<HabitWork, WorkloadError> {
    let full = check(spec)?;
    let values = Values(&full);
    let forms = ["habit", "cure"].map(|form| ["both", form].contains(&values.text("form")));
    Ok(HabitWork { count: count(&values)?, forms, time: Duration::from_secs_f64(values.real("time")?) })
}

fn count(values: &Values<'_>) -> Result<u32, WorkloadError> {
    Ok(u32::try_from(values.number("count")?).unwrap_or(u32::MAX))
}
