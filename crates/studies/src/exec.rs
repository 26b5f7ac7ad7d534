//! What a command costs on each machine.

use crate::analysis::Analysis;
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_model::{CommandLayers, ExecFindings, HostFacts, LayerFindings};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Exec<'a> {
    recording: &'a Recording,
    findings: ExecFindings,
    /// What its guests asked of their disks, where that was observed.
    requests: Option<CommandLayers>,
}

impl<'a> Exec<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Exec<'a> {
        let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
        let observed = recording.plan.command().is_some_and(|command| command.layers);
        let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
        let requests = observed.then(|| vmtax_layers::command(&recording.plan, trials));
        Exec { recording, findings, requests }
    }
}

impl Analysis for Exec<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::exec::report(self.recording, &self.findings, self.requests.as_ref())
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::exec::json(self.recording, &self.findings, self.requests.as_ref())
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn layers(&self) -> Option<&LayerFindings> {
        self.requests.as_ref().map(|requests| &requests.layers).filter(|layers| !layers.columns.is_empty())
    }

    fn command_status(&self) -> Option<i32> {
        self.findings.status()
    }
}

impl Evidence for ExecFindings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        let Check::Printed { of, name, machine, at_least } = check else { return None };
        let row = self.printed.iter().find(|row| row.of == *of && row.name == *name);
        let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == *machine));
        let tax = column.and_then(|c| c.tax.as_ref());
        Some(tax.map_or_else(|| Tested::absent(*machine, host), |tax| Tested::at_least(tax.ratio, *at_least)))
    }
}
