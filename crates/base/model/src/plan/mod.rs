//! Plans: the trials to make, and the study that they are made for. What a command line means, and what a person can write.

mod check;
mod command;
mod definition;
mod file;
mod guest;
mod schedule;
mod settings;
mod study;
#[cfg(test)]
mod tests;
mod variant;

pub use command::{
    CommandSpec, Execution, Forward, MetricPattern, NOT_EXECUTABLE, NOT_FOUND, Net, OWN, Printed,
    TIMED_OUT,
};
pub use definition::Plan;
pub use guest::{Guest, PinnedCpus, Pinning};
pub use schedule::{Column, SharedBoot, Slot};
pub use study::{
    Compare, Grows, ObservedVm, ProfileSettings, SizeRange, Study, VmStudy, WithCommand,
};
pub use variant::Variant;

/// A plan cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, an unknown key, a wrong type: the message names line and column.
    #[error("the plan cannot be read: {0}")]
    Syntax(String),
    /// From a newer vmtax.
    #[error("the plan has schema {0}, this vmtax knows up to {known}: update vmtax", known = crate::SCHEMA)]
    TooNew(u32),
    /// Nothing would be run.
    #[error("the plan has no {0}: add at least one")]
    Empty(&'static str),
    /// A value that is not allowed, or values that do not go together; this is the whole message.
    #[error("{0}")]
    Invalid(String),
}

pub(crate) fn range(what: &str, value: u32, low: u32, high: u32) -> Result<(), PlanError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Invalid(format!(
            "{what} is {value}: give {low} to {high}"
        )))
    }
}
