//! `layers`' answer: where the time of a request goes. Tables and sentences from the findings alone; nothing is measured
//! or estimated here.

mod details;
pub(crate) mod terminal;
pub(crate) mod view;
pub(crate) mod words;

pub use crate::html::layers::html;
pub use details::details;
pub use terminal::terminal;

use crate::{ReportError, json::document};
use vmtax_model::LayerFindings;
use vmtax_recording::Recording;

/// The recording and its findings as one JSON document; docs/json.md describes it.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for (a path that is not UTF-8).
pub fn json(recording: &Recording, findings: &LayerFindings) -> Result<String, ReportError> {
    document(recording, findings).map_err(|source| ReportError::Json { what: "report of the layers", source })
}
