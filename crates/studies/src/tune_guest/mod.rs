//! Tuning of a workload in a guest that is booted for it: the settings that make it faster.

mod candidates;
mod handover;
mod handover_guest;
mod like;
mod options;

pub(crate) use candidates::untried;
pub use options::{GuestTuneOptions, Measuring};

use crate::analysis::{Analysis, Found, ReportFile, StudyError};
use crate::reproduce::Evidence;
use vmtax_findings::GuestTuneFindings;
use vmtax_model::{GuestTuneSpec, Plan, Probes, Study, Variant, WorkloadName};
use vmtax_recording::Recording;
use vmtax_report as page;

/// Name of the variant with all settings that were kept.
const TUNED: &str = "tuned";
/// Rounds: the figures that decide are the tuning's own.
const ROUNDS: u32 = 3;

/// Returns the findings of a tuning of a guest.
///
/// # Errors
/// [`StudyError::Measurements`] where the plan tunes no guest.
pub(crate) fn analysis(recording: &Recording) -> Result<Box<dyn Analysis + '_>, StudyError> {
    let found = vmtax_analysis::tune_guest(&recording.plan, &recording.trials);
    let findings = found.ok_or_else(|| StudyError::Measurements {
        path: recording.folder.clone(),
        why: "its plan tunes no guest".to_owned(),
    })?;
    Ok(Box::new(Found {
        files,
        ..Found::new(recording, findings, page::tune::guest::report, page::json)
    }))
}

/// Returns the files that hand over the settings that are kept.
fn files(recording: &Recording, findings: &GuestTuneFindings) -> Vec<ReportFile> {
    let answer = page::tune::guest::answer(recording, findings);
    let of_disk = match findings.changes_disk() {
        true => handover::files(findings, &answer),
        false => Vec::new(),
    };
    let of_guest = handover_guest::file(findings, &answer);
    of_disk.into_iter().chain(of_guest).collect()
}

/// No published result has a claim that a tuning tests.
impl Evidence for GuestTuneFindings {}

/// The plan that traces the requests of a tuned disk, without and with what was kept; `None` where nothing was, or no disk was
/// tuned.
pub fn layers_of_tuned(recording: &Recording) -> Option<Plan> {
    let plan = &recording.plan;
    let found = vmtax_analysis::tune_guest(plan, &recording.trials)?;
    if found.outcome.total.is_none() || found.metric.workload() != WorkloadName::Disk {
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
    Ok(page::layers::moved(&crate::layers::findings(recording)?))
}
