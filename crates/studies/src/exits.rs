//! What one VM exit costs, by cause.

use crate::analysis::Analysis;
use crate::options::{CommonOptions, OptionsError, StudyOptions};
use crate::reproduce::Evidence;
use clap::Args;
use vmtax_model::{ExitFindings, HostFacts, Machine, Plan};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};

/// A fresh QEMU each: what one of them had by luck counts once.
const ROUNDS: u32 = 3;

/// The options of `vmtax exits`.
#[derive(Debug, Args)]
#[command(
    after_help = "Port and memory accesses in user space and in the kernel, cpuid, MSRs, halt and wake-up, end of
interrupt, injection: each stamped, as distributions. It takes seconds and no guest kernel.

Examples:
  vmtax exits
  vmtax exits --guest micro-kvm --count 100000 --json"
)]
pub struct ExitsOptions {
    /// Where: micro-kvm, micro-tcg (comma separated) [default: both, without KVM micro-tcg]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    guest: Option<Vec<Machine>>,
    /// How many of each kind in a round
    #[arg(long, value_name = "N", default_value_t = 5000)]
    count: u32,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ExitsOptions {
    fn plan(&self, host: &HostFacts) -> Result<Plan, OptionsError> {
        let machines = self.guest.clone().unwrap_or_else(|| host.micro_guests().to_vec());
        self.common.complete(Plan::new("exits", ROUNDS, machines, vec![vmtax_workload::exits(self.count)]))
    }
}

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
impl Evidence for Exits {}
