//! Result of the measurements of a tuning so far.

use super::left_out::LeftOut;
use crate::pairs::Decision;
use std::collections::BTreeMap;
use vmtax_model::GuestTuneStep;

/// Result of the measurements so far.
#[derive(Debug, Default)]
pub(super) struct Outcome {
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
