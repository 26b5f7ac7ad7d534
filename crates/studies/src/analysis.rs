//! The common interface of all studies' analyses of a recording.

use crate::reproduce::Evidence;
use std::path::PathBuf;
use vmtax_layers::LayersError;
use vmtax_model::limit_remedy;
use vmtax_profile::ProfileError;
use vmtax_recording::{Recording, RecordingError};
use vmtax_report::{Report, ReportError};

/// A study's findings in a recording, and how they are shown.
pub trait Analysis {
    /// The report, for every output format.
    fn report(&self) -> Report<'_>;

    /// Returns the text that a terminal shows for `--details` instead of the detailed report; `None` if it shows the
    /// report.
    fn details(&self) -> Option<String> {
        None
    }

    /// For scripts.
    ///
    /// # Errors
    /// [`ReportError::Json`] for a value JSON has no form for.
    fn json(&self) -> Result<String, ReportError>;

    /// Returns the findings that claims of published results are tested against.
    fn evidence(&self) -> &dyn Evidence;

    /// The report of requests by layer, that has a page of its own beside the first.
    fn layers_report(&self) -> Option<Report<'_>> {
        None
    }

    /// Draws what only the page shows, into the report from then on; the files that stand beside the page.
    ///
    /// # Errors
    /// [`StudyError`] where something cannot be drawn.
    fn draw(&mut self) -> Result<Vec<ReportFile>, StudyError> {
        Ok(Vec::new())
    }

    /// Returns true if the findings contradict a claim or a threshold, so that the exit status tells scripts.
    fn is_contradicted(&self) -> bool {
        false
    }

    /// The status that the measured command gave; `None` where it has none.
    fn command_status(&self) -> Option<i32> {
        None
    }
}

/// Findings, with what writes them.
pub(crate) struct Found<'a, F> {
    pub recording: &'a Recording,
    pub findings: F,
    pub report: for<'r> fn(&'r Recording, &'r F) -> Report<'r>,
    pub json: fn(&Recording, &F) -> Result<String, ReportError>,
    /// Writes the text of [`Analysis::details`].
    pub details: Option<fn(&Recording) -> String>,
    /// Makes the files that stand beside the page.
    pub files: fn(&Recording, &F) -> Vec<ReportFile>,
}

impl<'a, F> Found<'a, F> {
    /// Findings that have one report, and JSON.
    pub(crate) fn new(
        recording: &'a Recording,
        findings: F,
        report: for<'r> fn(&'r Recording, &'r F) -> Report<'r>,
        json: fn(&Recording, &F) -> Result<String, ReportError>,
    ) -> Found<'a, F> {
        Found {
            recording,
            findings,
            report,
            json,
            details: None,
            files: |_, _| Vec::new(),
        }
    }
}

impl<F: Evidence> Analysis for Found<'_, F> {
    fn report(&self) -> Report<'_> {
        (self.report)(self.recording, &self.findings)
    }

    fn json(&self) -> Result<String, ReportError> {
        (self.json)(self.recording, &self.findings)
    }

    fn details(&self) -> Option<String> {
        self.details.map(|details| details(self.recording))
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn draw(&mut self) -> Result<Vec<ReportFile>, StudyError> {
        Ok((self.files)(self.recording, &self.findings))
    }
}

/// The analysis of a study that has one report of its findings, and JSON.
pub(crate) fn found<'a, F: Evidence + 'a>(
    recording: &'a Recording,
    findings: F,
    report: for<'r> fn(&'r Recording, &'r F) -> Report<'r>,
    json: fn(&Recording, &F) -> Result<String, ReportError>,
) -> Box<dyn Analysis + 'a> {
    Box::new(Found::new(recording, findings, report, json))
}

/// A file that stands beside a report's page, in the recording's folder.
pub struct ReportFile {
    /// Name of the file in the recording's directory.
    pub name: &'static str,
    /// All of it.
    pub content: Vec<u8>,
}

/// A recording cannot be analyzed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The recording's traces cannot be read, or there are none.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// A file of the recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The counters of a running VM are not of one process, or not in the order of time.
    #[error("the counters in {folder} are not of one VM: diagnose it again", folder = .folder.display())]
    Counters {
        /// Directory of the recording.
        folder: PathBuf,
    },
    /// The measurements of a tuning cannot be read.
    #[error("{path}: {why}: tune the VM again", path = .path.display())]
    Measurements {
        /// Path of the file with the measurements.
        path: PathBuf,
        /// Reason why it cannot be read.
        why: String,
    },
    /// The samples cannot be read or drawn.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The findings have no form for scripts.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A file beside the page cannot be made.
    #[error("cannot make {file}: {source}{}", limit_remedy(.source))]
    File {
        /// Name of the file.
        file: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// These recordings cannot be compared.
    #[error(
        "{names} have no metric in common that was measured on the same machine by the same workload: `vmtax report` shows what each \
         has{}", .damaged.iter().map(|trial| format!("\nnot counted: {trial}")).collect::<String>()
    )]
    NothingInCommon {
        /// Names of the recordings.
        names: String,
        /// Trials of theirs that cannot be read, each with the reason.
        damaged: Vec<String>,
    },
    /// A profile cannot be read.
    #[error("reading {}: give a profile's recording or a file of folded stacks: {source}", file.display())]
    Unreadable {
        /// Path of the profile's stacks.
        file: PathBuf,
        /// Reason why the file cannot be read.
        source: std::io::Error,
    },
    /// Trials were observed, but all are damaged.
    #[error("some trials have no result; what there is was recorded in {folder}. The first: {first}", folder = .folder.display())]
    Damaged {
        /// Directory of the recording.
        folder: PathBuf,
        /// The first reason.
        first: String,
    },
}
