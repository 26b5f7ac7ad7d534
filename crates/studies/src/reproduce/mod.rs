//! Reproductions of published results: plans, claims, and what a recording says about each claim.

mod published;

pub use published::{Check, Claim, PublishedError, PublishedResult, Quick, all, find};

use crate::options::values::seconds;
use crate::options::{
    CommonOptions, LazyHost, OptionsError, StudyOptions, WorkloadArguments, on_host, root_share,
    with_help,
};
use clap::Args;
use vmtax_findings::{
    ClaimRow, ClaimUnit, ClaimVerdict, Comparison, Estimate, REPORT_SCHEMA, ReproductionFindings,
};
use vmtax_host::find_program;
use vmtax_model::{FEWEST_ROUNDS, HostFacts, Interval, KvmClass, Machine, Study};
use vmtax_workload::CheckedPlan;

/// Rounds that are worth asking for.
const MOST_ROUNDS: f64 = 500.0;
/// An estimate of the rounds needed is itself uncertain.
const MARGIN: f64 = 1.25;

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
            "Rounds: each workload once on each machine, in random order; a 95 % confidence interval (CI) needs at least 6 [default: the plan's]"
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

/// Questions about published results.
#[derive(Debug)]
pub enum Asked {
    /// The list of published results.
    List,
    /// The claims of one, and its plan.
    Show(Box<PublishedResult>),
    /// The reproduction of one on this host.
    Run(Box<PublishedResult>),
}

impl ReproduceOptions {
    /// Returns the question that is asked.
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
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let Asked::Run(case) = self.asked()? else {
            return OptionsError::usage("name a published result: `vmtax reproduce list` has them");
        };
        on_host(host, |class| self.plan_of(&case, class))
    }
}

impl ReproduceOptions {
    /// Returns the plan of a published result on a host with such a KVM.
    fn plan_of(
        &self,
        case: &PublishedResult,
        class: KvmClass,
    ) -> Result<CheckedPlan, OptionsError> {
        let mut plan = case.plan_here(class, self.quick);
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
        let has_run = self.what.first().is_some_and(|word| word == "run");
        let words = &self.what[1 + usize::from(has_run)..];
        WorkloadArguments::parse(words)?.apply(&mut plan.workloads)?;
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
                "{} needs {program}, which is not installed: apt-get install {program} (Fedora: dnf install {program}; Arch: pacman -S {program})",
                case.name
            ));
        }
        if plan.command().is_some() {
            plan.variants = vec![root_share(None)?];
        }
        self.common.complete(plan)
    }
}

/// The verdict on each of a published result's claims, and on the whole, after so many rounds.
pub fn judge(
    case: &PublishedResult,
    host: &HostFacts,
    rounds: u32,
    evidence: &dyn Evidence,
) -> ReproductionFindings {
    let row = |claim: &Claim| {
        let other = || Tested::untestable("the recording is of another study");
        let tested = evidence.test(&claim.check, host).unwrap_or_else(other);
        ClaimRow {
            what: claim.what.clone(),
            published: claim.published.clone(),
            measured: tested.measured,
            unit: tested.unit,
            verdict: tested.verdict,
            rounds_needed: rounds_needed(&tested, rounds),
            why: tested.why,
            metric: claim.check.metric(),
        }
    };
    let rows: Vec<ClaimRow> = case.tests.iter().map(row).collect();
    let any = |verdict| rows.iter().any(|r| r.verdict == verdict);
    let order = [
        ClaimVerdict::NotReproduced,
        ClaimVerdict::Reproduced,
        ClaimVerdict::Inconclusive,
    ];
    let verdict = order
        .into_iter()
        .find(|verdict| any(*verdict))
        .unwrap_or(ClaimVerdict::NotTestable);
    ReproductionFindings {
        schema: REPORT_SCHEMA,
        name: case.name.clone(),
        title: case.title.clone(),
        source: case.source.clone(),
        claim: case.claim.clone(),
        verdict,
        rows,
    }
}

/// Returns the number of further rounds that would decide an inconclusive claim; `None` for a decided one, and where
/// too many would be needed.
fn rounds_needed(tested: &Tested, rounds: u32) -> Option<u32> {
    if tested.verdict != ClaimVerdict::Inconclusive {
        return None;
    }
    if rounds < FEWEST_ROUNDS {
        return Some(FEWEST_ROUNDS - rounds);
    }
    let all = f64::from(rounds) * tested.times? * MARGIN;
    (all <= MOST_ROUNDS).then(|| (all.ceil() as u32).saturating_sub(rounds).max(1))
}

/// Findings that claims can be tested against.
pub trait Evidence {
    /// Tests a claim against these findings; `None` if the claim is about another study.
    fn test(&self, _check: &Check, _host: &HostFacts) -> Option<Tested> {
        None
    }
}

/// Result for one claim: a figure, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// Measured figure; `None` if there is none.
    pub measured: Option<Estimate>,
    /// Unit of the figure.
    pub unit: ClaimUnit,
    /// Result: reproduced, not reproduced, inconclusive or not testable.
    pub verdict: ClaimVerdict,
    /// Bounds that the result rests on, or the reason why there is none.
    pub why: String,
    /// Factor on the number of rounds that would decide an inconclusive claim, approximate: an interval narrows with
    /// the square root of the rounds.
    pub times: Option<f64>,
}

impl Tested {
    /// A figure compared with bounds: its interval decides. A figure without one is inconclusive.
    pub fn within(
        figure: Estimate,
        unit: ClaimUnit,
        at_least: Option<f64>,
        at_most: Option<f64>,
    ) -> Tested {
        let claimed = claimed(at_least, at_most, unit);
        let Some(Interval { low, high, .. }) = figure.interval else {
            return Tested::inconclusive(Some(figure), unit, claimed, None);
        };
        let (least, most) = (
            at_least.unwrap_or(f64::NEG_INFINITY),
            at_most.unwrap_or(f64::INFINITY),
        );
        let verdict = if low >= least && high <= most {
            ClaimVerdict::Reproduced
        } else if high < least || low > most {
            ClaimVerdict::NotReproduced
        } else {
            // An end that crosses a bound has to come so much closer to the median.
            let times =
                |end: f64, bound: f64| ((end - figure.median) / (bound - figure.median)).powi(2);
            let crossed = |bound: &f64| (low..high).contains(bound);
            let ends = |bound: f64| times(if bound < figure.median { low } else { high }, bound);
            let times = [least, most]
                .into_iter()
                .filter(crossed)
                .map(ends)
                .reduce(f64::max);
            return Tested::inconclusive(
                Some(figure),
                unit,
                format!("{claimed}; the interval contains the bound"),
                times,
            );
        };
        Tested::decided(Some(figure), unit, verdict, claimed)
    }

    /// It takes more rounds.
    pub fn inconclusive(
        measured: Option<Estimate>,
        unit: ClaimUnit,
        why: String,
        times: Option<f64>,
    ) -> Tested {
        Tested {
            times,
            ..Tested::decided(measured, unit, ClaimVerdict::Inconclusive, why)
        }
    }

    /// A result of this verdict, without an estimate of further rounds.
    pub fn decided(
        measured: Option<Estimate>,
        unit: ClaimUnit,
        verdict: ClaimVerdict,
        why: impl Into<String>,
    ) -> Tested {
        Tested {
            measured,
            unit,
            verdict,
            why: why.into(),
            times: None,
        }
    }

    /// A machine's overhead, that must be at least so many times; `overhead` is `None` where it has none.
    pub fn overhead(
        overhead: Option<&Comparison>,
        machine: Machine,
        at_least: f64,
        host: &HostFacts,
    ) -> Tested {
        match overhead {
            Some(overhead) => Tested::at_least(overhead.ratio, at_least),
            None => Tested::absent(machine, host),
        }
    }

    /// A cost over another, that must be at least so many times.
    pub fn at_least(ratio: Estimate, at_least: f64) -> Tested {
        Tested::within(ratio, ClaimUnit::Ratio, Some(at_least), None)
    }

    /// Nothing can be said.
    pub fn untestable(why: impl Into<String>) -> Tested {
        Tested::decided(None, ClaimUnit::Ratio, ClaimVerdict::NotTestable, why)
    }

    /// A variant has no figure.
    pub fn no_value(variant: &str) -> Tested {
        Tested::untestable(format!("no trial gave a value with {variant}"))
    }

    /// A machine has no figure.
    pub fn absent(machine: Machine, host: &HostFacts) -> Tested {
        Tested::untestable(match (machine, host.kvm.class) {
            (machine, KvmClass::Absent) if machine.is_kvm() => {
                "there is no /dev/kvm here".to_owned()
            }
            (Machine::KVM, KvmClass::EmulatesKernels) => {
                "this host's KVM only emulates guest kernels".to_owned()
            }
            (machine, KvmClass::Broken | KvmClass::NoPermission) if machine.is_kvm() => {
                "KVM cannot be used here: `vmtax doctor` says why".to_owned()
            }
            _ => format!("no trial gave a value on {machine}"),
        })
    }
}

fn claimed(at_least: Option<f64>, at_most: Option<f64>, unit: ClaimUnit) -> String {
    let (times, unit) = match unit {
        ClaimUnit::Ratio => ("×", ""),
        ClaimUnit::Nanoseconds => ("", " ns"),
        ClaimUnit::Percent => ("", " %"),
        ClaimUnit::Count => ("", " exits"),
        ClaimUnit::Exponent => ("", " as exponent"),
    };
    let bound = match (at_least, at_most) {
        (Some(least), Some(most)) => format!("{times}{least} to {times}{most}"),
        (Some(least), None) => format!("at least {times}{least}"),
        (None, most) => format!("at most {times}{}", most.unwrap_or(f64::INFINITY)),
    };
    format!("claimed: {bound}{unit}")
}
