//! `history`'s answer: a metric over the runs, and where it changed.

mod plot;
mod terminal;
pub(crate) mod words;

pub use crate::html::history::html;
pub use terminal::{listing, terminal};

use crate::ReportError;
use serde::Serialize;

/// What `history` prints for scripts; docs/history.md describes it.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(document: &impl Serialize) -> Result<String, ReportError> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n").map_err(|source| ReportError::Json { what: "history", source })
}
