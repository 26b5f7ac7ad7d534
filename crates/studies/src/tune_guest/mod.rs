//! Tuning of a workload in a guest that is booted for it: the settings that make it faster.

mod candidates;
mod fio;
mod handover;
mod handover_guest;
mod like;
mod options;

pub use options::GuestTuneOptions;
pub(crate) use options::Measuring;

use crate::analysis::{Analysis, ReportFile, StudyError};
use crate::reproduce::Evidence;
use handover::files;
use vmtax_model::{GuestTuneFindings, GuestTuneSpec, Plan, Probes, Study, Variant, WorkloadName};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

/// Name of the variant with all settings that were kept.
const TUNED: &str = "tuned";
/// Rounds: the figures that decide are the tuning's own.
const ROUNDS: u32 = 3;

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

/// The plan that traces the requests of a tuned disk, without and with what was kept; `None` where nothing was, or no disk was
/// tuned.
pub fn layers_of_tuned(recording: &Recording) -> Option<Plan> {
    let plan = &recording.plan;
    let found = vmtax_analysis::tune_guest(plan, &recording.trials)?;
    if found.total.is_none() || found.metric.workload() != WorkloadName::Disk {
        return None;
    }
    let variant = |name: &str, set| Variant {
        name: name.to_owned(),
        set,
    };
    let variants = vec![
        variant(GuestTuneSpec::BASELINE, found.baseline),
        variant(TUNED, found.tuned),
    ];
    let probes = vec![Probes::None, Probes::Layers, Probes::None];
    let name = format!("{}-layers", plan.name);
    Some(Plan {
        study: Study::Layers,
        name,
        variants,
        probes,
        rounds: ROUNDS,
        ..plan.clone()
    })
}

/// The layer that moved most, in a sentence; `None` where the requests of one of the two were not followed.
///
/// # Errors
/// [`StudyError`] where the recording has no traced requests.
pub fn moved_layer(recording: &Recording) -> Result<Option<String>, StudyError> {
    Ok(vmtax_report::layers::moved(&crate::layers::findings(
        recording,
    )?))
}
