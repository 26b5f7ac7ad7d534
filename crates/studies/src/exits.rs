//! What one VM exit costs, by cause.

use crate::analysis::Analysis;
use crate::reproduce::{Check, Evidence, Tested};
use vmtax_model::{ExitFindings, HostFacts};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

pub(crate) struct Exits(ExitFindings);

impl Exits {
    pub(crate) fn of(recording: &Recording) -> Exits {
        let manifest = &recording.manifest;
        let about = (manifest.vmtax.as_str(), manifest.command.as_slice(), manifest.started.as_str());
        Exits(vmtax_analysis::exits(&recording.plan, &recording.host, &recording.trials, about))
    }
}

impl Analysis for Exits {
    fn report(&self) -> Report<'_> {
        vmtax_report::exits::report(&self.0)
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::exits::json(&self.0)
    }

    fn evidence(&self) -> &dyn Evidence {
        self
    }
}

/// No published result claims anything of them.
impl Evidence for Exits {
    fn test(&self, _: &Check, _: &HostFacts) -> Option<Tested> {
        None
    }
}
