//! The formats of a report that a file or another program takes. What a terminal shows depends on its width and is apart.

use super::Report;

/// A renderer of whole reports.
type Renderer = fn(&Report<'_>) -> String;

/// Every format: its name as typed, and its renderer.
pub const FORMATS: &[(&str, Renderer)] = &[
    ("html", |report| report.html()), // a page that stands alone
    ("markdown", |report| report.markdown()),
];

impl Report<'_> {
    /// The report in the format of that name; `None` for a name that is not in [`FORMATS`].
    pub fn in_format(&self, name: &str) -> Option<String> {
        let (_, render) = FORMATS.iter().find(|(known, _)| *known == name)?;
        Some(render(self))
    }
}
