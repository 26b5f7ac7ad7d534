//! What the measurements of a tuning so far lead to.

use super::left_out::LeftOut;
use crate::pairs::Decision;
use std::collections::BTreeMap;
use vmtax_model::GuestTuneStep;

/// What the measurements so far lead to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What to measure next; `None` where nothing is left, or no time.
    pub next: Option<GuestTuneStep>,
    /// The candidates that are confirmed.
    pub kept: Vec<usize>,
    /// What candidates were screened beside, in this order: first nothing.
    pub bases: Vec<Vec<usize>>,
    /// What was to be confirmed last.
    pub confirmed: Vec<usize>,
    /// Those that are left out without being slower, with the reason.
    pub left_out: BTreeMap<usize, LeftOut>,
    /// Those that are not faster beside others, by the decision that says so.
    pub failed: BTreeMap<usize, Decision>,
    /// Whether the time was over before all was decided.
    pub is_out_of_time: bool,
}
