//! Growth of a cost with a size.

use crate::options::values::seconds;
use crate::options::{
    CommonOptions, LazyHost, OptionsError, StudyOptions, named_workloads, plan_file, variants,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use std::collections::BTreeMap;
use vmtax_analysis::paired;
use vmtax_findings::{
    ClaimUnit, ClaimVerdict, Estimate, Growth, GrowthFindings, Law, NoLaw, StepCost,
};
use vmtax_model::{
    FEWEST_ROUNDS, Grows, HostFacts, KvmClass, Metric, Plan, SizeRange, Study, parse_size,
};
use vmtax_workload::{CheckedPlan, Preset};

/// Of a range whose ends are no power of two apart.
const STEPS: usize = 8;
/// A cost that grows by no more from the first step to the last is taken for O(1).
const NO_GROWTH: f64 = 1.05;
/// An exponent that is no further from another growth law's does not exclude that growth law.
const APART: f64 = 0.01;

/// The options of `vmtax scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "First what is varied: WORKLOAD.OPTION, guest.cpus, guest.memory-mib, guest.disks or guest.memory-regions; \
then the workloads that run. `vmtax agent run WORKLOAD --help-options` lists options. Each size boots a new \
guest in every round, in randomized order: docs/scale.md.

Examples:
  vmtax scale disk.depth --range 1..32
  vmtax scale guest.cpus threads threads=16 --range 1,2,3,4
  vmtax scale guest.disks disk --range 1..256
  vmtax scale disk.block-size --range 4K..256K --vary aio=threads,native
  vmtax scale threads.threads --range 1..512 --steps 6 --machine native"
)]
pub struct ScaleOptions {
    /// What is varied, then workloads and their options; or a plan (.toml)
    #[arg(value_name = "OPTION|WORKLOAD|PLAN", required = true)]
    what: Vec<String>,
    /// Sizes: FROM..TO, geometrically spaced, or A,B,C; suffixes K, M, G allowed
    #[arg(long, value_name = "FROM..TO")]
    range: Option<String>,
    /// Number of sizes in FROM..TO [default: doublings where they fit, else 8]
    #[arg(long, value_name = "N", requires = "range")]
    steps: Option<usize>,
    /// Time limit of all rounds: 90s, 10m, 2h; skips problem sizes for which six rounds take longer
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    budget: Option<u32>,
    /// Boot once a round for all sizes, ascending, instead of once for each: for options whose sizes follow on each other,
    /// as open-fids.count with open-fids.keep=yes
    #[arg(long)]
    one_boot: bool,
    /// Compare disk configurations: KEY=VALUE,VALUE,... as in `vmtax layers`
    #[arg(long, value_name = "KEY=LIST")]
    vary: Vec<String>,
    /// Disk options for all variants: KEY=VALUE[,KEY=VALUE...]; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ScaleOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let mut plan = match plan_file(&self.what)? {
            Some(plan) => plan,
            None => self.plan_of_words()?,
        };
        self.common.measurement.replace_machines(&mut plan);
        if let Some(sizes) = &self.range {
            let option = plan.range().map_or("", |l| l.option.as_str()).to_owned();
            plan.study = Study::Scale(range(&option, sizes, self.steps)?);
        }
        let Study::Scale(sizes) = &mut plan.study else {
            return OptionsError::usage(
                "nothing grows: give --range FROM..TO, or a plan with a [range]",
            );
        };
        sizes.budget_s = self.budget.or(sizes.budget_s);
        sizes.one_boot |= self.one_boot;
        // Disks and regions of memory are of guests with a kernel.
        let is_of_guests = matches!(sizes.grows()?, Grows::Disks | Grows::MemoryRegions);
        if !self.vary.is_empty() || !self.set.is_empty() {
            plan.variants = variants(&self.vary, &self.set)?;
        }
        let default = |class: KvmClass| {
            let mut machines = class.default_machines();
            machines.retain(|machine| !is_of_guests || machine.is_linux_guest());
            machines
        };
        self.common.complete_on(host, default, plan)
    }
}

impl ScaleOptions {
    /// Makes the plan of the words: the option that grows comes first; its workload runs, and those that are named.
    fn plan_of_words(&self) -> Result<Plan, OptionsError> {
        let Some((option, words)) = self.what.split_first() else {
            return OptionsError::usage(
                "name what grows first: `vmtax scale disk.depth --range 1..32`",
            );
        };
        let range = SizeRange::new(option, Vec::new());
        let mut words = words.to_vec();
        match range.grows()? {
            Grows::Workload(name, _) => {
                words.retain(|word| word.parse() != Ok(name));
                words.insert(0, name.to_string());
            }
            _ if words.iter().all(|word| word.contains('=')) => {
                let what =
                    format!("name what runs while {option} grows: `vmtax scale {option} threads`");
                return OptionsError::usage(what);
            }
            Grows::Cpus | Grows::Memory | Grows::Disks | Grows::MemoryRegions => {}
        }
        let workloads = named_workloads(&words, Preset::Quick, [], None)?;
        let mut plan = Plan::new("scale", FEWEST_ROUNDS, Vec::new(), workloads);
        if self.range.is_some() {
            plan.study = Study::Scale(range);
        }
        Ok(plan)
    }
}

/// `FROM..TO` or `A,B,C`; sizes may end in K, M, G.
fn range(option: &str, text: &str, steps: Option<usize>) -> Result<SizeRange, OptionsError> {
    let size = |word: &str| {
        parse_size(word.trim()).filter(|n| *n > 0).ok_or_else(|| {
            OptionsError::Usage(format!(
                "--range {text}: '{word}' is no size above 0: write 1..32, 4K..64M or 1,2,3"
            ))
        })
    };
    let Some((from, to)) = text.split_once("..") else {
        if steps.is_some() {
            let what =
                format!("--range {text} names every step: leave --steps out, or write FROM..TO");
            return OptionsError::usage(what);
        }
        let steps = text.split(',').map(size).collect::<Result<_, _>>()?;
        return Ok(SizeRange::new(option, steps));
    };
    let (from, to) = (size(from)?, size(to)?);
    if from >= to {
        return OptionsError::usage(format!(
            "--range {text} does not rise: write the smaller size first"
        ));
    }
    // Doublings where they fit: they stay whole, and multiples of what the range begins with.
    let doublings = (to / from).ilog2() as usize;
    let doubles = to == from << doublings && (2..=10).contains(&doublings);
    Ok(SizeRange::geometric(
        option,
        from,
        to,
        steps.unwrap_or(if doubles { doublings + 1 } else { STEPS }),
    ))
}

impl Evidence for GrowthFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let growth_of = |metric: &Metric, name: &str| {
            growth(self, *metric, name).ok_or_else(|| Tested::no_value(name))
        };
        let tested = match check {
            Check::Law {
                metric,
                variant,
                law,
                against,
            } => growth_of(metric, variant).and_then(|growth| {
                let against = against
                    .as_ref()
                    .map(|name| growth_of(metric, name))
                    .transpose()?;
                Ok(match law {
                    Law::Constant => no_growth(growth, against),
                    law => by_exponent(growth, *law),
                })
            }),
            Check::OneMore {
                metric,
                variant,
                against,
                at_least,
            } => growth_of(metric, variant).and_then(|growth| {
                let against = growth_of(metric, against)?;
                Ok(one_more_than(growth, against, *at_least))
            }),
            Check::At {
                metric,
                variant,
                against,
                size,
                at_least,
            } => {
                let costs = |name: &str| at_size(self, *metric, name, *size);
                let none = format!(
                    "nothing was measured at {size} on both: the range ended below, or it failed"
                );
                let pair = paired(&costs(against), &costs(variant))
                    .ok_or_else(|| Tested::untestable(none));
                pair.map(|pair| Tested::at_least(pair.ratio, *at_least))
            }
            _ => return None,
        };
        Some(tested.unwrap_or_else(|untestable| untestable))
    }
}

/// A cost that is claimed not to grow, beside one that does where there is one: the difference tells most, since what
/// disturbs a round disturbs both.
fn no_growth(growth: &Growth, against: Option<&Growth>) -> Tested {
    let tested = |verdict, why| Tested::decided(growth.change, ClaimUnit::Ratio, verdict, why);
    let difference = against.map(|against| {
        let (name, this) = (&against.variant, &growth.variant);
        let why =
            format!("a tenth of what one more costs with {name}, less what it costs with {this}; claimed: above 0");
        above_zero(&one_more_by_round(against), &one_more_by_round(growth), 0.1, 1.0, why)
    });
    match (growth.law, difference) {
        (_, Some(tested)) if tested.verdict != ClaimVerdict::Inconclusive => tested,
        (Some(Law::Constant), _) if growth.or.is_empty() => tested(
            ClaimVerdict::Reproduced,
            "it changes by less than 5 % over the whole range, as claimed",
        ),
        (_, Some(tested)) => tested,
        _ if growth.grows => tested(
            ClaimVerdict::NotReproduced,
            "it grows, where no growth is claimed",
        ),
        (law, None) => {
            let figure = growth.change.filter(|_| law.is_some());
            let bound = figure
                .map(|figure| Tested::within(figure, ClaimUnit::Ratio, None, Some(NO_GROWTH)));
            let why = format!(
                "no growth is shown; claimed: at most ×{NO_GROWTH} from the first step to the last"
            );
            let times = bound.and_then(|bound| bound.times);
            Tested::inconclusive(growth.change, ClaimUnit::Ratio, why, times)
        }
    }
}

/// A growth law is claimed: the exponents that its cost may grow with contain the growth law's, and exclude those that a
/// measurement can distinguish from it. Of O(n) and O(n log n) it distinguishes neither.
fn by_exponent(growth: &Growth, claimed: Law) -> Tested {
    let measured = growth.steps.iter().filter(|step| step.ns.is_some());
    let sizes: Vec<f64> = measured.map(|step| step.size as f64).collect();
    let bottom = sizes.iter().copied().reduce(f64::min);
    let Some((bottom, top)) = bottom.zip(sizes.into_iter().reduce(f64::max)) else {
        return Tested::no_value(&growth.variant);
    };
    let own = claimed.exponent(bottom, top);
    let (slower, faster) = neighbors(claimed);
    let excluded = [Some(slower), faster].into_iter().flatten();
    let excluded = excluded.map(|law| format!(" and not that of {}", law.notation()));
    let names = format!(
        "claimed: the exponent of {}{}",
        claimed.notation(),
        excluded.collect::<String>()
    );
    let Some(exponents) = growth.exponent else {
        return without_exponent(growth, &names);
    };
    let figure = Estimate {
        median: f64::midpoint(exponents.low, exponents.high),
        interval: Some(exponents),
    };
    let unit = ClaimUnit::Exponent;
    if exponents.low <= own && own <= exponents.high {
        let least = slower.exponent(bottom, top) + APART;
        let most = faster.map(|law| law.exponent(bottom, top) - APART);
        let tested = Tested::within(figure, unit, Some(least), most);
        return Tested {
            why: names,
            ..tested
        };
    }
    // A cache may be exceeded by more than the exponents allow for.
    if exponents.low > own && growth.no_law == Some(NoLaw::CostSteps) {
        let why =
            format!("{names}; one item costs more from some size on, as where a cache is exceeded");
        return Tested::inconclusive(Some(figure), unit, why, None);
    }
    Tested::decided(Some(figure), unit, ClaimVerdict::NotReproduced, names)
}

/// Returns the next growth law below and above one that a measurement can distinguish from it.
fn neighbors(law: Law) -> (Law, Option<Law>) {
    match law {
        Law::Constant | Law::Logarithmic => (Law::Constant, Some(Law::Linear)),
        Law::Linear | Law::Linearithmic => (Law::Logarithmic, Some(Law::Quadratic)),
        Law::Quadratic => (Law::Linearithmic, None),
    }
}

/// Tests the claim of a growth law, which `names` has, where the growth has no exponent.
fn without_exponent(growth: &Growth, names: &str) -> Tested {
    if growth.law == Some(Law::Constant) && growth.or.is_empty() {
        let why = format!("it changes by less than 5 %; {names}");
        let verdict = ClaimVerdict::NotReproduced;
        return Tested::decided(growth.change, ClaimUnit::Ratio, verdict, why);
    }
    let why = format!("{names}; no exponent can be named yet");
    let times = growth.law.map(|_| 2.0);
    Tested::inconclusive(growth.change, ClaimUnit::Ratio, why, times)
}

/// Tests the claim that one more costs so many times as much as with another variant.
fn one_more_than(growth: &Growth, against: &Growth, at_least: f64) -> Tested {
    let (name, other) = (&growth.variant, &against.variant);
    let figure = |growth: &Growth| {
        let all: Vec<f64> = one_more_by_round(growth).into_values().collect();
        if all.is_empty() {
            return String::new();
        }
        let ns = vmtax_analysis::estimate(all).median;
        format!("{ns:.2} ns with {}", growth.variant)
    };
    let why = format!(
        "one more costs {}, {}; what it costs with {name} less {at_least} times what it costs with {other}; claimed: above 0",
        figure(growth),
        figure(against)
    );
    above_zero(
        &one_more_by_round(growth),
        &one_more_by_round(against),
        1.0,
        at_least,
        why,
    )
}

/// One cost less another of the same rounds, each times a factor, is claimed to be above 0.
fn above_zero(
    this: &BTreeMap<u32, f64>,
    that: &BTreeMap<u32, f64>,
    times: f64,
    other: f64,
    why: String,
) -> Tested {
    let both = this.iter();
    let differences: Vec<f64> = both
        .filter_map(|(round, ns)| Some(times * ns - other * that.get(round)?))
        .collect();
    if differences.is_empty() {
        return Tested::untestable("no round has both sizes with both variants");
    }
    let figure = vmtax_analysis::estimate(differences);
    Tested {
        why,
        ..Tested::within(figure, ClaimUnit::Nanoseconds, Some(0.0), None)
    }
}

/// Returns the cost of one more on average from the first step with values to the last, by round.
fn one_more_by_round(growth: &Growth) -> BTreeMap<u32, f64> {
    let measured = growth.steps.iter().filter(|step| step.ns.is_some());
    let steps: Vec<&StepCost> = measured.collect();
    let [first, .., last] = steps.as_slice() else {
        return BTreeMap::new();
    };
    let more = (last.size - first.size) as f64;
    let rounds = last.rounds.iter().filter_map(|top| {
        let bottom = first.rounds.iter().find(|cost| cost.round == top.round)?;
        Some((top.round, (top.ns - bottom.ns) / more))
    });
    rounds.collect()
}

fn growth<'a>(findings: &'a GrowthFindings, metric: Metric, variant: &str) -> Option<&'a Growth> {
    findings
        .growths
        .iter()
        .find(|g| g.metric == metric && g.variant == variant)
}

fn at_size(
    findings: &GrowthFindings,
    metric: Metric,
    variant: &str,
    size: u64,
) -> BTreeMap<u32, f64> {
    let steps = growth(findings, metric, variant).map_or(&[][..], |g| g.steps.as_slice());
    let step = steps.iter().find(|r| r.size == size);
    step.map_or(BTreeMap::new(), |r| {
        r.rounds.iter().map(|c| (c.round, c.ns)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_people_write_them() {
        let steps = |text: &str, n| {
            range("disk.depth", text, n)
                .map(|l| l.steps)
                .map_err(|e| e.to_string())
        };
        assert_eq!(steps("1..32", None).unwrap(), [1, 2, 4, 8, 16, 32]);
        assert_eq!(
            steps("4K..64K", None).unwrap(),
            [4096, 8192, 16384, 32768, 65536]
        );
        assert_eq!(steps("1,3,9", None).unwrap(), [1, 3, 9]);
        assert_eq!(steps("1000..278000", None).unwrap().len(), 8);
        assert_eq!(steps("1..1000", Some(4)).unwrap(), [1, 10, 100, 1000]);
        for (text, n, why) in [
            ("32..1", None, "does not rise"),
            ("4..4", None, "does not rise"),
            ("0..4", None, "no size"),
            ("a..4", None, "no size"),
            ("", None, "no size"),
            ("1,2,4", Some(3), "leave --steps out"),
        ] {
            let error = steps(text, n).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
