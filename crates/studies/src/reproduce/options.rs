//! The options of `vmtax reproduce`, and the plan that they mean.

use super::published::{PublishedResult, find};
use crate::exec::root_share;
use crate::options::values::seconds;
use crate::options::{CommonOptions, OptionsError, StudyOptions, WorkloadArguments, with_help};
use clap::Args;
use vmtax_host::find_program;
use vmtax_model::{HostFacts, Study};
use vmtax_workload::CheckedPlan;

/// The options of `vmtax reproduce`.
#[derive(Debug, Args)]
#[command(
    override_usage = "vmtax reproduce list\n       vmtax reproduce show NAME\n       vmtax reproduce [OPTIONS] NAME [WORKLOAD.OPTION=VALUE]...",
    mut_arg(
        "machine",
        with_help(
            "Where to measure, comma separated: native (this host); kvm or tcg: a Linux guest; micro-kvm or micro-tcg: a small test guest without an operating system [default: those of the published result that this host supports]"
        )
    ),
    mut_arg(
        "rounds",
        with_help(
            "Rounds: each workload once natively and once in each guest, in random order; a 95 % confidence interval (CI) needs 6 [default: the plan's]"
        )
    ),
    mut_arg(
        "timeout",
        with_help("Timeout of each run of a workload: 90s, 10m, 2h [default: the plan's]")
    ),
    after_help = "`list` names the published results; `show NAME` prints the source, claims, published figures and the plan. \
The exit status is 1 if a claim is not reproduced: docs/reproduce.md.

Examples:
  vmtax reproduce list
  vmtax reproduce show 9p-fids
  vmtax reproduce 9p-fids --quick
  vmtax reproduce sysbench-five --real"
)]
pub struct ReproduceOptions {
    /// A published result, as `vmtax reproduce list` names it, and options of its workloads as WORKLOAD.OPTION=VALUE
    #[arg(value_name = "NAME", required = true)]
    what: Vec<String>,
    /// Smaller problem size where available; claims that need the full size are not tested
    #[arg(long)]
    quick: bool,
    /// Time limit of all rounds: 90s, 10m, 2h; skips problem sizes for which six rounds take longer [default: the plan's]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    budget: Option<u32>,
    /// For sysbench-five: run the installed sysbench itself
    #[arg(long)]
    real: bool,
    #[command(flatten)]
    common: CommonOptions,
}

/// What is asked about published results.
#[derive(Debug)]
pub enum Asked {
    /// Which there are.
    List,
    /// What one claims, and its plan.
    Show(Box<PublishedResult>),
    /// Whether one is reproduced on this host.
    Run(Box<PublishedResult>),
}

impl ReproduceOptions {
    /// What is asked.
    ///
    /// # Errors
    /// For an unknown name, and words of another form.
    pub fn asked(&self) -> Result<Asked, OptionsError> {
        let words: Vec<&str> = self.what.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["list"] => Ok(Asked::List),
            ["show", name] => Ok(Asked::Show(Box::new(self.find(name)?))),
            ["run", name, ..] | [name, ..] if !matches!(*name, "run" | "show" | "list") => {
                Ok(Asked::Run(Box::new(self.find(name)?)))
            }
            _ => OptionsError::usage(
                "write `vmtax reproduce list`, `vmtax reproduce show NAME` or `vmtax reproduce NAME`",
            ),
        }
    }

    /// The form by the program that was measured then is a published result of its own.
    fn find(&self, name: &str) -> Result<PublishedResult, OptionsError> {
        if !self.real {
            return find(name).map_err(|e| OptionsError::Usage(e.to_string()));
        }
        find(&format!("{name}-real")).or_else(|_| {
            OptionsError::usage(format!(
                "--real is of sysbench-five, not of '{}'",
                name.escape_default()
            ))
        })
    }
}

impl StudyOptions for ReproduceOptions {
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError> {
        let Asked::Run(case) = self.asked()? else {
            return OptionsError::usage("name a published result: `vmtax reproduce list` has them");
        };
        let mut plan = case.plan_here(host, self.quick);
        match &mut plan.study {
            Study::Scale(range) => range.budget_s = self.budget.or(range.budget_s),
            Study::Compare(compare) => {
                compare.settings.budget_s = self.budget.or(compare.settings.budget_s)
            }
            _ if self.budget.is_none() => {}
            _ => {
                return OptionsError::usage(format!(
                    "{} has no budget: give --rounds instead",
                    case.name
                ));
            }
        }
        self.common.measurement.replace_machines(&mut plan);
        let at = if self.what.first().is_some_and(|word| word == "run") {
            2
        } else {
            1
        };
        WorkloadArguments::parse(&self.what[at..])?.apply(&mut plan.workloads)?;
        if !plan.machines.iter().any(|m| m.is_guest()) {
            return Err(OptionsError::NotTestable(format!(
                "{}: not testable: it takes a KVM that runs guest kernels with hardware virtualization. `vmtax doctor` says what this \
                 host has.",
                case.name
            )));
        }
        if let Some(program) = case
            .needs
            .as_ref()
            .filter(|program| find_program(program).is_none())
        {
            return OptionsError::usage(format!(
                "{} needs {program}, which is not installed: apt-get install {program}",
                case.name
            ));
        }
        if plan.command().is_some() {
            plan.variants = vec![root_share(None)?];
        }
        self.common.complete(plan)
    }
}
