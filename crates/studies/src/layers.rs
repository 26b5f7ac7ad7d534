//! Where the time of a block request goes, layer by layer.

use crate::analysis::{Analysis, StudyError};
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_layers::LayersError;
use vmtax_model::{CaseUnit, CaseVerdict, Estimate, HostFacts, LayerFindings};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Layers<'a> {
    recording: &'a Recording,
    findings: LayerFindings,
}

impl<'a> Layers<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Result<Layers<'a>, StudyError> {
        Ok(Layers { recording, findings: findings(recording)? })
    }
}

/// Requests by layer, of the recording's observed trials.
pub(crate) fn findings(recording: &Recording) -> Result<LayerFindings, StudyError> {
    let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
    vmtax_layers::findings(&recording.plan, trials).map_err(|error| match recording.damaged.first() {
        // It was observed, but cannot be read.
        Some(first) if matches!(error, LayersError::Unobserved) => {
            StudyError::Damaged { folder: recording.folder.clone(), first: first.clone() }
        }
        _ => error.into(),
    })
}

impl Analysis for Layers<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::layers::report(self.recording, &self.findings)
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::layers::json(self.recording, &self.findings)
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }
}

impl Evidence for LayerFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Share { layers, at_least } => {
                let Some(column) = self.columns.iter().find(|c| c.machine.has_kernel()) else {
                    return Some(Tested::untestable("no guest was observed"));
                };
                if let Some(missing) = column.missing.first() {
                    let why = format!("not every layer was seen: {}: {}", missing.what, missing.why);
                    return Some(Tested::untestable(why));
                }
                let percent = column.rows.iter().filter(|r| layers.contains(&r.layer)).map(|r| r.percent).sum();
                let share = Estimate { median: percent, interval: None };
                Tested::within(share, CaseUnit::Percent, Some(*at_least), None)
            }
            Check::Faster { variant } => {
                let Some(difference) = self.differences.iter().find(|d| d.variant == *variant) else {
                    return Some(Tested::no_value(variant));
                };
                let (verdict, why) = match difference.faster {
                    Some(true) => (CaseVerdict::Holds, "of the first's latency"),
                    Some(false) => (CaseVerdict::DoesNotHoldHere, "of the first's latency"),
                    None => (CaseVerdict::NotTestableHere, "no difference is shown"),
                };
                let measured = Some(difference.ratio);
                Tested { measured, unit: CaseUnit::Ratio, verdict, why: why.to_owned() }
            }
            _ => return None,
        })
    }
}
