//! What every study makes of a recording.

use crate::reproduce::Evidence;
use std::path::PathBuf;
use vmtax_layers::LayersError;
use vmtax_model::LayerFindings;
use vmtax_report::{Report, ReportError};

/// A study's findings in a recording, and how they are shown.
pub trait Analysis {
    /// The report, for every output format.
    fn report(&self) -> Report<'_>;

    /// What a terminal shows for details instead of the report with its details; `None`: the report.
    fn details(&self) -> Option<String> {
        None
    }

    /// For scripts.
    ///
    /// # Errors
    /// [`ReportError::Json`] for a value JSON has no form for.
    fn json(&self) -> Result<String, ReportError>;

    /// What claims of published results are tested against.
    fn evidence(&self) -> &dyn Evidence;

    /// Requests by layer beside the findings, that have a page of their own.
    fn layers(&self) -> Option<&LayerFindings> {
        None
    }

    /// The status that the measured command gave; `None` where it has none.
    fn command_status(&self) -> Option<i32> {
        None
    }
}

/// A recording cannot be analyzed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Its traces cannot be read, or there are none.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// Trials were observed, but all are damaged.
    #[error("some trials have no result; what there is was recorded in {folder}. The first: {first}", folder = .folder.display())]
    Damaged {
        /// The recording.
        folder: PathBuf,
        /// The first reason.
        first: String,
    },
}
