//! Overheads of machines over native.

use crate::analysis::{Analysis, Found};
use crate::options::values::duration;
use crate::options::{
    CommonOptions, LazyHost, OptionsError, StudyOptions, named_workloads, plan_file, set_duration,
    with_help,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use vmtax_findings::{ClaimUnit, Findings, MachineColumn};
use vmtax_model::{HostFacts, KvmClass, Machine, Metric, Needs, Plan, WorkloadName};
use vmtax_recording::Recording;
use vmtax_report as page;
use vmtax_workload::{CheckedPlan, Preset};

/// The options of `vmtax run`.
#[derive(Debug, Args)]
#[command(
    mut_arg("rounds", with_help("Rounds: each workload once on each machine, in random order; a 95 % confidence interval (CI) needs at least 6 [default: 8; with --quick or --full: 6]")),
    after_help = help()
)]
pub struct OverheadOptions {
    /// Workloads with their options, as in `disk bs=64K`, or a plan (.toml) [default: the first list below]
    #[arg(value_name = "WORKLOAD|PLAN")]
    what: Vec<String>,
    /// Reduced workload sizes: under 3 minutes on 2 cores
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Full workload sizes, as in a published report (docs/workloads.md): takes hours, writes 2 GiB of files in each round
    #[arg(long)]
    full: bool,
    /// Duration of each time-limited workload: 500ms, 5s; `syscalls` divides it among its calls
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    #[command(flatten)]
    common: CommonOptions,
}

/// The workloads, as they are registered, and examples.
fn help() -> String {
    let list = |fits: fn(Needs) -> bool| -> String {
        let named = WorkloadName::ALL.iter().filter(|name| fits(name.needs()));
        named
            .map(|name| format!("  {name:<20}{}\n", vmtax_workload::descriptor(*name).about))
            .collect()
    };
    format!(
        "Workloads that run by default:
{}Workloads that run only when named:
{}fio with your own job: `vmtax layers --fio JOB`, `vmtax tune --fio JOB`.
`vmtax agent run WORKLOAD --help-options` lists a workload's options (for `disk` with fio's names; `agent` is the part of vmtax that runs in a guest). Without --kernel, the host distribution's kernel package is downloaded and unpacked, not installed.

Examples:
  vmtax run --quick
  vmtax run syscalls disk --rounds 12
  vmtax run cpu max-prime=20000 --machine native,tcg --duration 5s
  vmtax run --quick --dry-run > plan.toml && vmtax run plan.toml",
        list(|needs| matches!(needs, Needs::System | Needs::Disk)),
        list(|needs| matches!(needs, Needs::Share | Needs::Network | Needs::MicroGuest)),
    )
}

impl StudyOptions for OverheadOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        if let Some(mut plan) = plan_file(&self.what)? {
            if self.quick || self.full {
                return OptionsError::usage(
                    "a plan's file says itself how much is run: leave --quick and --full out",
                );
            }
            set_duration(&mut plan.workloads, self.duration)?;
            self.common.measurement.replace_machines(&mut plan);
            return self.common.complete(plan);
        }
        let (preset, name) = match (self.quick, self.full) {
            (true, _) => (Preset::Quick, "quick"),
            (_, true) => (Preset::Full, "full"),
            _ => (Preset::Default, "default"),
        };
        let workloads = named_workloads(&self.what, preset, WorkloadName::usual(), self.duration)?;
        let mut plan = Plan::new(name, preset.rounds(), Vec::new(), workloads);
        self.common.measurement.replace_machines(&mut plan);
        self.common
            .complete_on(host, KvmClass::default_machines, plan)
    }
}

/// Returns the overheads of machines over native in a recording.
pub(crate) fn analysis(recording: &Recording) -> Box<dyn Analysis + '_> {
    let findings = vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials);
    Box::new(Found {
        details: Some(|recording| page::sysbench(recording, None)),
        ..Found::new(recording, findings, page::overhead::report, page::json)
    })
}

impl Evidence for Findings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Overhead {
                metric,
                machine,
                at_least,
            } => {
                let overhead = column(self, *metric, *machine).and_then(|c| c.overhead.as_ref());
                Tested::overhead(overhead, *machine, *at_least, host)
            }
            Check::Value {
                metric,
                machine,
                at_most,
            } => {
                let spread = column(self, *metric, *machine).and_then(|c| c.spread.as_ref());
                let value = spread.map(|spread| vmtax_analysis::estimate(spread.values.clone()));
                value.map_or_else(
                    || Tested::absent(*machine, host),
                    |value| Tested::within(value, ClaimUnit::Nanoseconds, None, Some(*at_most)),
                )
            }
            _ => return None,
        })
    }
}

fn column(findings: &Findings, metric: Metric, machine: Machine) -> Option<&MachineColumn> {
    findings
        .rows
        .iter()
        .find(|r| r.metric == metric)?
        .machines
        .iter()
        .find(|c| c.machine == machine)
}
