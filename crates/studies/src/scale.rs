//! How a cost grows with a size.

use crate::options::{CommonOptions, OptionsError, StudyOptions, named_workloads, plan_file, variants};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use std::collections::BTreeMap;
use vmtax_analysis::{FEWEST_ROUNDS, paired};
use vmtax_model::{
    ClaimUnit, ClaimVerdict, Estimate, Grows, Growth, GrowthFindings, HostFacts, Interval, Law, Metric, Plan,
    SizeRange, Study, parse_size,
};
use vmtax_workload::{CheckedPlan, Preset};

/// Of a range whose ends are no power of two apart.
const STEPS: usize = 8;

/// The options of `vmtax scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "First what is varied: WORKLOAD.OPTION, guest.cpus, guest.memory-mib, guest.disks or guest.memory-regions; \
then the workloads that run. `vmtax agent run WORKLOAD --help-options` lists options. Each size boots a new \
guest in every round, in randomized order: docs/scale.md.

Examples:
  vmtax scale seqread.depth --range 1..32
  vmtax scale guest.cpus threads threads=16 --range 1,2,3,4
  vmtax scale guest.disks seqread --range 1..256
  vmtax scale seqread.block-size --range 4K..256K --vary aio=threads,native
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
    /// Compare disk configurations: KEY=VALUE,VALUE,... as in `vmtax layers`
    #[arg(long, value_name = "KEY=LIST")]
    vary: Vec<String>,
    /// Disk option for all variants: KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ScaleOptions {
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError> {
        let mut plan = match plan_file(&self.what)? {
            Some(plan) => plan,
            None => self.plan_of_words(host)?,
        };
        self.common.measurement.replace_machines(&mut plan);
        if let Some(sizes) = &self.range {
            let option = plan.range().map_or("", |l| l.option.as_str()).to_owned();
            plan.study = Study::Scale(range(&option, sizes, self.steps)?);
        }
        if plan.range().is_none() {
            return OptionsError::usage("nothing grows: give --range FROM..TO, or a plan with a [range]");
        }
        if !self.vary.is_empty() || !self.set.is_empty() {
            plan.variants = variants(&self.vary, &self.set)?;
        }
        self.common.complete(plan)
    }
}

impl ScaleOptions {
    /// What grows comes first; its workload runs, and those that are named.
    fn plan_of_words(&self, host: &HostFacts) -> Result<Plan, OptionsError> {
        let Some((option, words)) = self.what.split_first() else {
            return OptionsError::usage("name what grows first: `vmtax scale seqread.depth --range 1..32`");
        };
        let range = SizeRange { option: option.clone(), steps: Vec::new() };
        let mut words = words.to_vec();
        let mut machines = host.default_machines();
        match range.grows()? {
            Grows::Workload(name, _) => {
                words.retain(|word| word.parse() != Ok(name));
                words.insert(0, name.to_string());
            }
            Grows::Guest(_) if words.iter().all(|word| word.contains('=')) => {
                let what = format!("name what runs while {option} grows: `vmtax scale {option} threads`");
                return OptionsError::usage(what);
            }
            Grows::Guest(size) if !size.is_hosts_too() => machines.retain(|machine| machine.is_linux_guest()),
            Grows::Guest(_) => {}
        }
        let plan = Plan::new("scale", FEWEST_ROUNDS, machines, named_workloads(&words, Preset::Quick, [], None)?);
        Ok(if self.range.is_some() { Plan { study: Study::Scale(range), ..plan } } else { plan })
    }
}

/// `FROM..TO` or `A,B,C`; sizes may end in K, M, G.
fn range(option: &str, text: &str, steps: Option<usize>) -> Result<SizeRange, OptionsError> {
    let size = |word: &str| {
        parse_size(word.trim()).filter(|n| *n > 0).ok_or_else(|| {
            OptionsError::Usage(format!("--range {text}: '{word}' is no size above 0: write 1..32, 4K..64M or 1,2,3"))
        })
    };
    let Some((from, to)) = text.split_once("..") else {
        if steps.is_some() {
            let what = format!("--range {text} names every step: leave --steps out, or write FROM..TO");
            return OptionsError::usage(what);
        }
        let steps = text.split(',').map(size).collect::<Result<_, _>>()?;
        return Ok(SizeRange { option: option.to_owned(), steps });
    };
    let (from, to) = (size(from)?, size(to)?);
    if from >= to {
        return OptionsError::usage(format!("--range {text} does not rise: write the smaller size first"));
    }
    // Doublings where they fit: they stay whole, and multiples of what the range begins with.
    let doublings = (to / from).ilog2() as usize;
    let doubles = to == from << doublings && (2..=10).contains(&doublings);
    Ok(SizeRange::geometric(option, from, to, steps.unwrap_or(if doubles { doublings + 1 } else { STEPS })))
}

impl Evidence for GrowthFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Law { metric, variant, law } => {
                growth(self, *metric, variant).map_or_else(|| Tested::no_value(variant), |growth| by_law(growth, *law))
            }
            Check::OneMore { metric, variant, against, at_least } => {
                let one_more = |name: &str| growth(self, *metric, name)?.one_more;
                match (one_more(variant), one_more(against)) {
                    (Some(this), Some(that)) => one_more_over(this, that, against, *at_least),
                    _ => Tested::no_value(variant),
                }
            }
            Check::At { metric, variant, against, size, at_least } => {
                let costs = |name: &str| at_size(self, *metric, name, *size);
                match paired(&costs(against), &costs(variant)) {
                    Some(pair) => Tested::at_least(pair.ratio, *at_least),
                    None => Tested::untestable(format!(
                        "nothing was measured at {size} on both: the range ended below, or it failed"
                    )),
                }
            }
            _ => return None,
        })
    }
}

fn by_law(growth: &Growth, claimed: Law) -> Tested {
    let measured = growth.change;
    let tested = |verdict, named: String| Tested {
        measured,
        unit: ClaimUnit::Ratio,
        verdict,
        why: format!("bottom to top; {named}"),
    };
    let Some(law) = growth.law else {
        return tested(ClaimVerdict::Inconclusive, "too few rounds or steps to name a growth law".to_owned());
    };
    let laws: Vec<Law> = [law].iter().chain(&growth.or).copied().collect();
    let verdict = if laws.contains(&claimed) { ClaimVerdict::Reproduced } else { ClaimVerdict::NotReproduced };
    let all: Vec<&str> = laws.iter().map(|law| law.notation()).collect();
    tested(verdict, format!("{}, where {} is claimed", all.join(" or "), claimed.notation()))
}

/// What one more costs, over the most that one more of the other may cost.
fn one_more_over(this: Estimate, that: Estimate, against: &str, at_least: f64) -> Tested {
    let most = that.interval.map_or(that.median, |i| i.high.max(that.median));
    if most <= 0.0 {
        let verdict = if this.at_least() > 0.0 { ClaimVerdict::Reproduced } else { ClaimVerdict::NotReproduced };
        let why = format!("one more costs nothing with {against}");
        return Tested { measured: Some(this), unit: ClaimUnit::Nanoseconds, verdict, why };
    }
    let over = |ns: f64| ns / most;
    let interval = this.interval.map(|i| Interval { low: over(i.low), high: over(i.high), ..i });
    Tested::at_least(Estimate { median: over(this.median), interval }, at_least)
}

fn growth<'a>(findings: &'a GrowthFindings, metric: Metric, variant: &str) -> Option<&'a Growth> {
    findings.growths.iter().find(|g| g.metric == metric && g.variant == variant)
}

fn at_size(findings: &GrowthFindings, metric: Metric, variant: &str, size: u64) -> BTreeMap<u32, f64> {
    let steps = growth(findings, metric, variant).map_or(&[][..], |g| g.steps.as_slice());
    let step = steps.iter().find(|r| r.size == size);
    step.map_or(BTreeMap::new(), |r| r.rounds.iter().map(|c| (c.round, c.ns)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_people_write_them() {
        let steps = |text: &str, n| range("seqread.depth", text, n).map(|l| l.steps).map_err(|e| e.to_string());
        assert_eq!(steps("1..32", None).unwrap(), [1, 2, 4, 8, 16, 32]);
        assert_eq!(steps("4K..64K", None).unwrap(), [4096, 8192, 16384, 32768, 65536]);
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
