//! What machines cost over native.

use crate::analysis::Analysis;
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_model::{CaseUnit, Findings, HostFacts, Machine, MachineColumn, Metric};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Tax<'a> {
    recording: &'a Recording,
    findings: Findings,
}

impl<'a> Tax<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Tax<'a> {
        let findings = vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials);
        Tax { recording, findings }
    }
}

impl Analysis for Tax<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::tax::report(self.recording, &self.findings)
    }

    fn details(&self) -> Option<String> {
        Some(vmtax_report::sysbench(self.recording, None))
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::json(self.recording, &self.findings)
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }
}

impl Evidence for Findings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Tax { metric, machine, at_least } => {
                let tax = column(self, *metric, *machine).and_then(|c| c.tax.as_ref());
                tax.map_or_else(|| Tested::absent(*machine, host), |tax| Tested::at_least(tax.ratio, *at_least))
            }
            Check::Value { metric, machine, at_most } => {
                let spread = column(self, *metric, *machine).and_then(|c| c.spread.as_ref());
                let value = spread.map(|spread| vmtax_analysis::estimate(spread.values.clone()));
                value.map_or_else(
                    || Tested::absent(*machine, host),
                    |value| Tested::within(value, CaseUnit::Nanoseconds, None, Some(*at_most)),
                )
            }
            _ => return None,
        })
    }
}

fn column(findings: &Findings, metric: Metric, machine: Machine) -> Option<&MachineColumn> {
    findings.rows.iter().find(|r| r.metric == metric)?.machines.iter().find(|c| c.machine == machine)
}
