//! Result of the measurements of a tuning so far: the candidates that are kept, and why others are not.

use crate::pairs::{Decision, HARMED_PAIRS};
use std::collections::BTreeMap;
use std::fmt;
use vmtax_model::GuestTuneStep;
use vmtax_model::number::factor;

/// Result of the measurements so far.
#[derive(Debug, Default)]
pub(super) struct InterimResult {
    /// Next step to measure; `None` if nothing is left, or no time.
    pub next: Option<GuestTuneStep>,
    /// The candidates that are confirmed.
    pub kept: Vec<usize>,
    /// Sets of candidates beside which others were screened, in this order; the first is empty.
    pub bases: Vec<Vec<usize>>,
    /// Candidates of the last confirmation.
    pub confirmed: Vec<usize>,
    /// Those that are left out without being slower, with the reason.
    pub left_out: BTreeMap<usize, LeftOut>,
    /// Those that are not faster beside others, by the decision that says so.
    pub failed: BTreeMap<usize, Decision>,
    /// True if the time was over before everything was decided.
    pub is_out_of_time: bool,
}

/// Reason why a candidate is not kept, with the names of the changes that it is about.
#[derive(Debug, Clone)]
pub(super) enum LeftOut {
    /// It helps, by too little.
    SavesLittle,
    /// The median of so many rounds saves nothing.
    SavesNothing { rounds: usize },
    /// It helped in some rounds, and cannot become significant any more.
    CannotBecomeSignificant,
    /// Where time is short: among the slower half of `all` after so many rounds, with a median ratio of costs.
    SlowerHalf {
        rounds: usize,
        ratio: f64,
        all: usize,
    },
    /// It sets otherwise what one that is faster sets.
    Excluded { by: String },
    /// These set it, too.
    Contained { beside: String },
    /// Beside these it was not faster.
    NoFaster { beside: String },
    /// The time was over before it was decided beside these.
    Undecided { beside: String },
    /// The confirmation did not confirm it, beside these if there were any.
    NotConfirmed { beside: Option<String> },
    /// The workload does not give the figure with it.
    Unmeasurable,
    /// It cost more in each of the first rounds.
    Harms,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::SavesLittle => write!(f, "faster by less than 2 %"),
            LeftOut::SavesNothing { rounds } => {
                write!(f, "dropped after {rounds} rounds: not faster")
            }
            LeftOut::CannotBecomeSignificant => {
                write!(f, "faster in too few rounds to be significant")
            }
            LeftOut::SlowerHalf { rounds, ratio, all } => {
                let ratio = factor(*ratio);
                write!(
                    f,
                    "dropped after {rounds} rounds to save time: ×{ratio} by then, among the slower half of {all} changes"
                )
            }
            LeftOut::Excluded { by } => write!(f, "mutually exclusive with {by}, which is faster"),
            LeftOut::Contained { beside } => write!(f, "{beside} has it"),
            LeftOut::NoFaster { beside } => write!(f, "no faster beside {beside}"),
            LeftOut::Undecided { beside } => write!(
                f,
                "time limit reached before it was decided beside {beside}"
            ),
            LeftOut::NotConfirmed { beside: None } => write!(f, "no faster in the confirmation"),
            LeftOut::NotConfirmed {
                beside: Some(others),
            } => {
                write!(f, "no faster beside {others} in the confirmation")
            }
            LeftOut::Unmeasurable => write!(f, "the workload did not give this figure"),
            LeftOut::Harms => write!(
                f,
                "each of the first {HARMED_PAIRS} rounds cost over 5 % more"
            ),
        }
    }
}
