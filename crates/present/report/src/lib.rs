//! Findings as people and programs see them: terminal, HTML, JSON. Everything is rendered from the recording alone.

pub mod case;
mod charts;
pub mod check;
mod command_layers;
mod doctor;
mod engine;
pub mod exec;
mod guest_code;
mod guest_exits;
mod guest_inside;
pub mod history;
mod html;
mod json;
pub mod layers;
pub mod profile;
mod profile_changes;
mod profile_notes;
mod row;
mod schedule;
pub mod shares;
mod studies;
mod sysbench;
mod table;
mod terminal;
mod text;
mod view;

pub use doctor::{doctor_json, doctor_terminal};
pub use engine::{
    Advice, Block, Cell, Chart, Column, Drawing, Figure, Notice, Origin, Report, Row, Section, Table, Tile, Tone,
};
pub use html::html;
pub use json::json;
pub use studies::{compare, exits, growth, habits};
pub use sysbench::{result, sysbench};
pub use terminal::terminal;
pub use text::printable;
pub use vmtax_model::number::counted;

use vmtax_model::number;

/// The terminal to write for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; no line is wider. Below 40 it is taken as 40.
    pub width: usize,
    /// Whether to colour; `false` when it is no terminal.
    pub color: bool,
}

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A value that JSON has no form for.
    #[error(
        "the {what} cannot be written as JSON ({source}): use the terminal or HTML report, and report the recording as a bug"
    )]
    Json {
        /// Which report.
        what: &'static str,
        /// What serialising said.
        source: serde_json::Error,
    },
}
