//! `scale`'s answer: does a cost grow with a size, by which law, and what does one more item cost?

mod terminal;
pub(crate) mod words;

pub use crate::html::growth::html;
pub use terminal::terminal;

use crate::ReportError;
use vmtax_model::GrowthFindings;
use vmtax_recording::Recording;

/// Recording and findings for scripts; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(recording: &Recording, findings: &GrowthFindings) -> Result<String, ReportError> {
    crate::json::document(recording, findings).map_err(|source| ReportError::Json { what: "report of growth", source })
}
