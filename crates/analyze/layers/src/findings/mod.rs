//! Findings over all trials of a plan.

pub(crate) mod column;
pub(crate) mod column_sums;
pub(crate) mod command;
pub(crate) mod corrected_sums;
pub(crate) mod distribution;
pub(crate) mod heat;
pub(crate) mod nested;
pub(crate) mod plan;
pub(crate) mod round_medians;
mod traced_runs;
pub(crate) mod vm;
pub(crate) mod waterfall;
