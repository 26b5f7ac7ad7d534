//! Tuning of a workload in a guest that is booted for it: the settings that make it faster.

mod candidates;
mod fio;
mod handover;
mod handover_guest;
mod layers;
mod like;
mod options;

pub use layers::{layers_of_tuned, moved_layer};
pub use options::GuestTuneOptions;
pub(crate) use options::Measuring;

use crate::analysis::{Analysis, ReportFile, StudyError};
use crate::reproduce::Evidence;
use handover::files;
use vmtax_model::GuestTuneFindings;
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct GuestTuning<'a> {
    recording: &'a Recording,
    findings: GuestTuneFindings,
}

impl<'a> GuestTuning<'a> {
    /// Of a recording whose plan tunes a guest.
    ///
    /// # Errors
    /// [`StudyError::Measurements`] where it does not.
    pub(crate) fn of(recording: &'a Recording) -> Result<GuestTuning<'a>, StudyError> {
        let findings =
            vmtax_analysis::tune_guest(&recording.plan, &recording.trials).ok_or_else(|| {
                StudyError::Measurements {
                    path: recording.folder.clone(),
                    why: "its plan tunes no guest".to_owned(),
                }
            })?;
        Ok(GuestTuning {
            recording,
            findings,
        })
    }
}

impl Analysis for GuestTuning<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::tune_guest::report(self.recording, &self.findings)
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::json(self.recording, &self.findings)
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn draw(&mut self) -> Result<Vec<ReportFile>, StudyError> {
        let answer = vmtax_report::tune_guest::answer(self.recording, &self.findings);
        let of_disk = if self.findings.changes_disk() {
            files(&self.findings, &answer)
        } else {
            Vec::new()
        };
        Ok(of_disk
            .into_iter()
            .chain(handover_guest::file(&self.findings, &answer))
            .collect())
    }
}

/// No published result has a claim that a tuning tests.
impl Evidence for GuestTuneFindings {}
