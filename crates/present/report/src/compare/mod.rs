//! `compare`'s answer: of each side what is proven against the baseline.

mod terminal;
pub(crate) mod words;

pub use crate::html::compare::html;
pub use terminal::terminal;
pub use words::{duration, foretold};

use crate::ReportError;
use serde::Serialize;
use vmtax_model::{CompareFindings, LayerFindings};
use vmtax_recording::Recording;

/// The findings, with what was found by layer, where that was asked for.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    findings: &'a CompareFindings,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<&'a LayerFindings>,
}

/// Recording and findings for scripts; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(
    recording: &Recording,
    findings: &CompareFindings,
    layers: Option<&LayerFindings>,
) -> Result<String, ReportError> {
    let both = Both { findings, layers };
    crate::json::document(recording, &both).map_err(|source| ReportError::Json { what: "comparison", source })
}

/// The findings alone: of recordings held against each other.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn findings_json(findings: &CompareFindings) -> Result<String, ReportError> {
    let text = serde_json::to_string_pretty(findings);
    text.map(|text| text + "\n").map_err(|source| ReportError::Json { what: "comparison", source })
}
