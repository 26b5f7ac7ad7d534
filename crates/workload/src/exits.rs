//! `exits` and `habits`: made by the micro-guest's own code; here are their options alone.

use crate::options::{Kind, OptionInfo, Values};
use crate::{WorkloadError, check};
use vmtax_model::WorkloadSpec;

pub(crate) const OPTIONS: &[OptionInfo] = &[OptionInfo {
    name: "count",
    default: "5000",
    help: "exits of each kind; halts, which take a millisecond each, at most 500",
    kind: Kind::Count { min: 1, max: 1_000_000 },
}];

pub(crate) const HABIT_OPTIONS: &[OptionInfo] = &[OptionInfo {
    name: "count",
    default: "500",
    help: "how often each habit and each cure; what takes milliseconds, at most 50 times",
    kind: Kind::Count { min: 2, max: 1_000_000 },
}];

/// How many exits of each kind, or habits, are asked for.
///
/// # Errors
/// As [`check`].
pub fn exit_count(spec: &WorkloadSpec) -> Result<u32, WorkloadError> {
    let full = check(spec)?;
    Ok(u32::try_from(Values(&full).number("count")?).unwrap_or(u32::MAX))
}
