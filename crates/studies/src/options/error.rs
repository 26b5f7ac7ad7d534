//! Why no plan can be made.

use std::io;
use vmtax_model::{PlanError, UnknownMachine, UnknownWorkload};
use vmtax_vm::FindError;
use vmtax_workload::WorkloadError;

/// No plan can be made of a study's options.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The plan that they mean is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A workload has no such option, or does not take the value.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// There is no such workload.
    #[error(transparent)]
    UnknownWorkload(#[from] UnknownWorkload),
    /// There is no such machine.
    #[error(transparent)]
    UnknownMachine(#[from] UnknownMachine),
    /// No running VM has the name.
    #[error(transparent)]
    Vm(#[from] FindError),
    /// There is no twin of what they name.
    #[error(transparent)]
    Twin(#[from] vmtax_vm::TwinError),
    /// A file or folder that they name cannot be used.
    #[error("{what}: {source}")]
    File {
        /// The operation that failed, with its file.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// This host has no machine on which the claims can be tested.
    #[error("{0}")]
    NotTestable(String),
    /// They do not go together, or say nothing.
    #[error("{0}")]
    Usage(String),
}

impl OptionsError {
    pub(crate) fn usage<T>(what: impl Into<String>) -> Result<T, OptionsError> {
        Err(OptionsError::Usage(what.into()))
    }

    pub(crate) fn file(what: impl Into<String>, source: io::Error) -> OptionsError {
        OptionsError::File {
            what: what.into(),
            source,
        }
    }
}
