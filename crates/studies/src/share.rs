//! What each method of sharing a tree with guests costs.

use crate::analysis::Analysis;
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_model::{CaseUnit, CaseVerdict, HostFacts, ShareFindings};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Shares<'a> {
    recording: &'a Recording,
    findings: ShareFindings,
}

impl<'a> Shares<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Shares<'a> {
        Shares { recording, findings: vmtax_analysis::shares(&recording.plan, &recording.trials) }
    }
}

impl Analysis for Shares<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::shares::report(self.recording, &self.findings)
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::shares::json(self.recording, &self.findings)
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }
}

impl Evidence for ShareFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let (Check::Way { variant, .. } | Check::Kept { variant, .. }) = check else { return None };
        let is_column = |c: &vmtax_model::ShareColumn| c.machine.is_guest() && c.variant == *variant;
        let Some(at) = self.columns.iter().position(is_column) else { return Some(Tested::no_value(variant)) };
        let column = &self.columns[at];
        // Why this method, or the one that all are compared with, gave nothing.
        let failed = column.failed.clone().or_else(|| self.columns.get(self.base)?.failed.clone());
        let untestable = |why: &str| Tested::untestable(failed.unwrap_or_else(|| format!("{why} with {variant}")));
        Some(match check {
            Check::Way { metric, at_least, at_most, .. } => {
                let cell = self.rows.iter().find(|r| r.metric == *metric).and_then(|r| r.cells.get(at));
                match cell.and_then(|c| c.against.as_ref()) {
                    Some(tax) => Tested::within(tax.ratio, CaseUnit::Ratio, *at_least, *at_most),
                    None => untestable("no trial gave a value"),
                }
            }
            Check::Kept { property, keeping, .. } => match column.kept.iter().find(|k| k.what == *property) {
                Some(kept) => {
                    let same = kept.keeping == *keeping;
                    let verdict = if same { CaseVerdict::Holds } else { CaseVerdict::DoesNotHoldHere };
                    Tested { measured: None, unit: CaseUnit::Ratio, verdict, why: kept.detail.clone() }
                }
                None => untestable("it was not tried"),
            },
            _ => return None,
        })
    }
}
