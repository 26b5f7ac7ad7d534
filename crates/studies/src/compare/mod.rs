//! Comparison of VM configurations: the fastest of several, or a metric that became slower.

mod forecast;
mod interim;
mod one_boot;
mod options;
mod recordings;
mod sides;

pub use forecast::forecast;
pub use interim::InterimAnalyses;
pub use options::{CompareOptions, Compared};
pub(crate) use recordings::{Baseline, Recordings};
pub use recordings::{check, compare_recordings};

use crate::analysis::{Analysis, StudyError};
use crate::layers;
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_model::{ClaimUnit, CompareFindings, HostFacts, LayerFindings, Probes};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Comparison<'a> {
    recording: &'a Recording,
    findings: CompareFindings,
    /// Requests by layer, where they were observed.
    layers: Option<LayerFindings>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Result<Comparison<'a>, StudyError> {
        let findings = vmtax_analysis::compare(&recording.plan, &recording.trials);
        let observed = recording.plan.probes.contains(&Probes::Layers);
        let layers = observed.then(|| layers::findings(recording)).transpose()?;
        Ok(Comparison {
            recording,
            findings,
            layers,
        })
    }
}

impl Analysis for Comparison<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::compare::report(Some(self.recording), &self.findings, self.layers.as_ref())
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::compare::json(self.recording, &self.findings, self.layers.as_ref())
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn layers_report(&self) -> Option<Report<'_>> {
        self.layers
            .as_ref()
            .map(|layers| vmtax_report::layers::report(self.recording, layers))
    }
}

impl Evidence for CompareFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let Check::Side {
            metric,
            variant,
            at_least,
            at_most,
        } = check
        else {
            return None;
        };
        let side = self.against.iter().find(|a| a.variant == *variant);
        let row = side.and_then(|a| a.rows.iter().find(|r| r.metric == *metric));
        Some(row.map_or_else(
            || Tested::no_value(variant),
            |row| Tested::within(row.comparison.ratio, ClaimUnit::Ratio, *at_least, *at_most),
        ))
    }
}
