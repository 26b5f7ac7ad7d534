//! Recordings compared with each other, and with a baseline's.

use crate::analysis::{Analysis, StudyError};
use crate::reproduce::Evidence;
use std::path::Path;
use vmtax_analysis::Side;
use vmtax_model::{CheckFindings, CompareFindings, Thresholds};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

/// The first recording compared with each other one. `min_effect` is the smallest difference that matters, as a share.
///
/// # Errors
/// [`StudyError::NothingInCommon`].
pub fn compare_recordings(
    recordings: &[Recording],
    min_effect: f64,
) -> Result<CompareFindings, StudyError> {
    let names: Vec<String> = recordings
        .iter()
        .map(|recording| name(&recording.folder))
        .collect();
    let sides: Vec<Side<'_>> = recordings
        .iter()
        .zip(&names)
        .map(|(recording, name)| side(recording, name))
        .collect();
    let findings = vmtax_analysis::compare_recordings(&sides, min_effect);
    if findings.against.iter().all(|a| a.rows.is_empty()) {
        return Err(nothing_in_common(&names, recordings.iter()));
    }
    Ok(findings)
}

/// Compares the metrics of `now` with the baseline's, and lists those that are worse by more than their threshold.
///
/// # Errors
/// [`StudyError::NothingInCommon`].
pub fn check(
    baseline: &Recording,
    now: &Recording,
    thresholds: &Thresholds,
) -> Result<CheckFindings, StudyError> {
    let names = [name(&baseline.folder), name(&now.folder)];
    let findings = vmtax_analysis::check(
        &side(baseline, &names[0]),
        &side(now, &names[1]),
        thresholds,
    );
    if findings.rows.is_empty() {
        return Err(nothing_in_common(&names, [baseline, now]));
    }
    Ok(findings)
}

fn nothing_in_common<'r>(
    names: &[String],
    recordings: impl IntoIterator<Item = &'r Recording>,
) -> StudyError {
    let damaged = recordings
        .into_iter()
        .flat_map(|recording| recording.damaged.clone())
        .collect();
    StudyError::NothingInCommon {
        names: names.join(" and "),
        damaged,
    }
}

fn side<'a>(recording: &'a Recording, name: &'a str) -> Side<'a> {
    Side {
        name,
        plan: &recording.plan,
        trials: &recording.trials,
    }
}

/// A recording by its folder's own name.
fn name(folder: &Path) -> String {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    whole
        .file_name()
        .unwrap_or(whole.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Findings of [`compare_recordings`].
pub(crate) struct Recordings(pub CompareFindings);

impl Analysis for Recordings {
    fn report(&self) -> Report<'_> {
        vmtax_report::compare::report(None, &self.0, None)
    }

    fn json(&self) -> Result<String, ReportError> {
        Ok(vmtax_report::findings_json(&self.0)? + "\n")
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.0
    }
}

/// Findings of [`check`].
pub(crate) struct Baseline(pub CheckFindings);

impl Analysis for Baseline {
    fn report(&self) -> Report<'_> {
        vmtax_report::check::report(&self.0)
    }

    fn json(&self) -> Result<String, ReportError> {
        Ok(vmtax_report::findings_json(&self.0)? + "\n")
    }

    fn evidence(&self) -> &dyn Evidence {
        self
    }

    fn is_contradicted(&self) -> bool {
        self.0.failed()
    }
}

impl Evidence for Baseline {}
