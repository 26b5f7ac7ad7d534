//! What all trials of a plan say together.

pub(crate) mod column;
pub(crate) mod command;
pub(crate) mod distribution;
pub(crate) mod gathered;
pub(crate) mod heat;
pub(crate) mod nested;
pub(crate) mod plan;
pub(crate) mod tally;
pub(crate) mod waterfall;
