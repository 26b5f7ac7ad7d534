//! Tracing of a request's path before and after a tuning: the layer that changed most with the settings that were
//! kept.

use crate::analysis::StudyError;
use vmtax_model::{GuestTuneSpec, Plan, Probes, Study, Variant, WorkloadName};
use vmtax_recording::Recording;

/// Name of the variant with all settings that were kept.
const TUNED: &str = "tuned";
/// Rounds: the figures that decide are the tuning's own.
const ROUNDS: u32 = 3;

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
