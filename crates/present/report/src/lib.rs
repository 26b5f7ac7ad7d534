//! Findings as people and programs see them: terminal, HTML, Markdown, JSON. Everything is rendered from the recording alone.

mod charts;
mod engine;
mod host;
mod json;
mod review;
mod studies;
mod sysbench;
mod text;
mod top;
mod view;

pub use engine::{
    Block, Cell, Chart, Column, FORMATS, Figure, Notice, NoticeKind, Origin, Report, Row, Section,
    Table, Tile, Tone, figures, words,
};
pub use host::{doctor, vms};
pub use json::{findings_json, json, plain_json};
pub use review::{Review, review};
pub use studies::{
    antipatterns, check, compare, exec, exits, fleet, growth, history, import, layers, overhead,
    profile, reproduction, shares, tune, vm_diagnosis, vm_exits, vm_layers,
};
pub use sysbench::{result, sysbench};
pub use text::printable;
pub use top::{
    counter_text, counter_value, csv_head, csv_rows, host_disks, level_cost, openmetrics, sentence,
    top, unknown_columns,
};
pub use vmtax_model::number::counted;

use vmtax_model::number;

/// The terminal to write for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; no line is wider. Below 40 it is taken as 40.
    pub width: usize,
    /// True if the output is coloured; `false` if it is no terminal.
    pub color: bool,
}

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A value that JSON has no form for.
    #[error(
        "the report cannot be written as JSON ({0}): use the terminal or HTML report, and report the recording as a bug"
    )]
    Json(#[from] serde_json::Error),
}
