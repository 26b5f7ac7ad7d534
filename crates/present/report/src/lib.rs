//! Findings as people and programs see them: terminal, HTML, Markdown, JSON. Everything is rendered from the recording
//! alone. Here is everything for scripts, in one document; docs/json.md describes it.

mod charts;
mod engine;
mod host;
mod review;
mod studies;
mod sysbench;
mod text;
mod top;
mod view;

pub use engine::{
    Block, COMMENT_LINES, Cell, Chart, Column, FORMATS, Figure, Notice, NoticeKind, Origin, Report,
    Row, Section, Table, Tile, Tone, figures, words,
};
pub use host::{doctor, vms};
pub use review::{Review, review};
pub use studies::{
    antipatterns, check, compare, exec, exits, fleet, growth, history, import, layers, overhead,
    profile, reproduction, shares, tune, vm_diagnosis, vm_exits, vm_layers,
};
pub use sysbench::{result, sysbench};
pub use text::{command_lines, printable, wrapped};
pub use top::{
    Statement, counter_text, counter_value, csv_head, csv_rows, host_lines, host_statements,
    level_cost, openmetrics, top, unknown_columns, vm_statement,
};
pub use view::NO_VM;
pub use vmtax_model::number::counted;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vmtax_model::{TrialRecord, Warning, number};
use vmtax_recording::Recording;

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

/// The recording and what a study found in it as one JSON document.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for (a path that is not UTF-8).
pub fn json(recording: &Recording, findings: &impl Serialize) -> Result<String, ReportError> {
    let trials = recording.trials.iter().map(trial);
    let trials = trials.collect::<Result<Vec<Value>, _>>()?;
    plain_json(&json!({
        "schema": vmtax_findings::REPORT_SCHEMA,
        "folder": recording.folder.to_string_lossy(),
        "manifest": serde_json::to_value(&recording.manifest)?,
        "plan": serde_json::to_value(&recording.plan)?,
        "host": serde_json::to_value(&recording.host)?,
        "findings": with_remedies(serde_json::to_value(findings)?),
        "trials": trials,
        "damaged": &recording.damaged,
    }))
}

/// Findings that stand alone, as JSON.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn findings_json(findings: &impl Serialize) -> Result<String, ReportError> {
    plain_json(&with_remedies(serde_json::to_value(findings)?))
}

/// Returns findings without warnings as JSON: a profile, the history, doctor's facts.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for (a path that is not UTF-8).
pub fn plain_json(value: &impl Serialize) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(value)?)
}

/// Findings in which each warning also has what the rule about it says, and its remedies.
fn with_remedies(mut findings: Value) -> Value {
    let children: &mut dyn Iterator<Item = &mut Value> = match &mut findings {
        Value::Array(items) => &mut items.iter_mut(),
        Value::Object(fields) => &mut fields.values_mut(),
        _ => &mut std::iter::empty(),
    };
    for child in children {
        *child = with_remedies(child.take());
    }
    let warning = findings.get("warning");
    let warning = warning.and_then(|_| Warning::deserialize(&findings).ok());
    for advice in vmtax_rules::about(warning.as_slice()) {
        findings["finding"] = advice.finding.into();
        findings["remedies"] = json!(advice.remedies);
    }
    findings
}

/// A trial with the summary of each operation beside its histogram, so that a script needs no HDR reader.
fn trial(record: &TrialRecord) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(record)?;
    let operations = value.pointer_mut("/result/operations");
    if let Some(operations) = operations.and_then(Value::as_array_mut) {
        let results = record
            .result()
            .into_iter()
            .flat_map(|result| &result.operations);
        for (json, operation) in operations.iter_mut().zip(results) {
            json["summary"] = serde_json::to_value(operation.latency.summary())?;
        }
    }
    Ok(value)
}
