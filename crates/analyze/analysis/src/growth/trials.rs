//! From the trials of a plan with a range to points, and what is missing among them.

use super::fit::Points;
use super::grown;
use crate::estimate::estimate;
use crate::trials::add_warnings;
use std::collections::BTreeMap;
use vmtax_findings::{Growth, GrowthFindings, MissingStep, REPORT_SCHEMA, RoundCost, StepCost};
use vmtax_model::{
    Column, FEWEST_ROUNDS, Metric, Outcome, Plan, SharedBoot, TrialRecord, Unit, Warning,
};

/// Analyzes the trials of a plan with a range. Trials that the plan does not contain are ignored.
pub fn growth(plan: &Plan, trials: &[TrialRecord]) -> GrowthFindings {
    let sizes: Vec<u64> = (0..plan.steps())
        .filter_map(|step| plan.size(step))
        .collect();
    let columns = plan.columns();
    let runs = |metric: &&Metric| plan.workloads.iter().any(|w| w.name == metric.workload());
    let mut growths = Vec::new();
    for &metric in Metric::ALL.iter().filter(runs) {
        growths.extend(
            columns
                .iter()
                .filter_map(|at| column(metric, *at, plan, &sizes, trials)),
        );
    }
    let missing: Vec<MissingStep> = columns
        .iter()
        .flat_map(|c| missing(plan, *c, &sizes, trials))
        .collect();
    let rounds_complete = (0..plan.rounds)
        .filter(|r| complete(plan, *r, &columns, &missing, trials))
        .count() as u32;
    GrowthFindings {
        schema: REPORT_SCHEMA,
        option: plan
            .range()
            .map_or(String::new(), |range| range.option.clone()),
        rounds_planned: plan.rounds,
        rounds_complete,
        method: if plan.shared_boot() == Some(SharedBoot::Sizes) {
            method(ONE_BOOT)
        } else {
            method(OWN_BOOTS)
        },
        warnings: warnings(plan, trials, &columns, rounds_complete),
        growths,
        missing,
    }
}

const OWN_BOOTS: [&str; 4] = [
    "In each round every size has a fresh machine, in random order.",
    "cost and size are correlated by rank (permutation test, 1,999 permutations, p < 5 %), most rounds rise,",
    "passes through every size's interval",
    "2.5",
];
const ONE_BOOT: [&str; 4] = [
    "In each round a machine boots once and measures all sizes, in ascending order, which is not randomized: what changes \
     with the time since boot counts as growth.",
    "more rounds rise than chance explains (sign test over boots, p < 5 %)",
    "passes through the interval of what every size costs beyond the first of the same boot, as a share of what the last \
     does: the boot's constant part cancels",
    "3",
];

/// Returns the description of the method: the parts that differ between ranges (order within a round, test for growth,
/// condition for a growth law, largest factor), with the common text.
fn method([round, grows, allowed, factor]: [&str; 4]) -> String {
    format!(
        "{round} A cost grows if {grows} and the minimum at the last size is 5 % above that at the first. A growth law f is \
         allowed if some curve a + b f(n) {allowed}, where b may be up to {factor} times as large at larger sizes, as for a list \
         that no longer fits in a cache; of these, the one with the smallest leave-one-round-out error is named. One more: \
         what an additional unit costs, the slope of the line through a round's costs (robust), median over rounds. \
         last/first: median of the rounds' own ratios, not the ratio of the medians. Intervals end at two of the \
         rounds' sorted values and hold at least 95 % of the time."
    )
}

fn of_column<'a>(
    (machine, variant): Column<'a>,
    trials: &'a [TrialRecord],
) -> impl Iterator<Item = &'a TrialRecord> {
    trials
        .iter()
        .filter(move |t| t.machine == machine && t.variant == variant)
}

/// A metric's costs on a machine in ns, by round and size.
type Costs = BTreeMap<(u32, u64), f64>;

/// A metric's cost on a machine, by round and size; empty when no trial there gave a value of it.
fn costs(metric: Metric, at: Column<'_>, plan: &Plan, trials: &[TrialRecord]) -> Costs {
    let of_trial = |trial: &TrialRecord| {
        let ns = cost_ns(metric, trial.result()?.value(metric)?)?;
        Some(((trial.round, trial.step?), ns))
    };
    of_column(at, trials)
        .filter(|t| t.round < plan.rounds)
        .filter_map(of_trial)
        .collect()
}

/// Returns the costs as points of the plan's rounds and sizes.
fn points(costs: &Costs, plan: &Plan, sizes: &[u64]) -> Points {
    let cost = |round: u32, size: &u64| costs.get(&(round, *size)).copied();
    let round = |round: u32| sizes.iter().map(|size| cost(round, size)).collect();
    Points {
        sizes: sizes.iter().map(|&n| n as f64).collect(),
        rounds: (0..plan.rounds).map(round).collect(),
        one_boot: plan.shared_boot() == Some(SharedBoot::Sizes),
    }
}

/// Returns the growth of a metric on a machine; `None` when no trial there gave a value of it.
fn column(
    metric: Metric,
    at: Column<'_>,
    plan: &Plan,
    sizes: &[u64],
    trials: &[TrialRecord],
) -> Option<Growth> {
    let costs_at = |at: Column<'_>| costs(metric, at, plan, trials);
    let costs = costs_at(at);
    if costs.is_empty() {
        return None;
    }
    let with_other_qemus = plan
        .columns()
        .into_iter()
        .filter(|other| is_other_qemu(plan, at, *other));
    let flat = with_other_qemus
        .map(|other| (other.1, points(&costs_at(other), plan, sizes)))
        .find(|(_, points)| is_flat(points));
    let own = points(&costs, plan, sizes);
    let found = grown(&own, flat.as_ref().map(|(_, points)| points));
    Some(Growth {
        metric,
        machine: at.0,
        variant: at.1.to_owned(),
        constant_from: flat
            .filter(|_| found.exponent.is_some())
            .map(|(variant, _)| variant.to_owned()),
        steps: sizes.iter().map(|size| step_cost(*size, &costs)).collect(),
        grows: found.grows,
        law: found.law,
        or: found.or,
        no_law: found.no_law,
        exponent: found.exponent,
        p: found.p,
        change: found.change,
        one_more: found.one_more,
        misfit: found.misfit,
        curve: found.curve,
    })
}

fn step_cost(size: u64, costs: &Costs) -> StepCost {
    let of_size = costs.iter().filter(|((_, n), _)| *n == size);
    let rounds: Vec<RoundCost> = of_size
        .map(|((round, _), ns)| RoundCost {
            round: *round,
            ns: *ns,
        })
        .collect();
    let ns = (!rounds.is_empty()).then(|| estimate(rounds.iter().map(|r| r.ns).collect()));
    StepCost { size, rounds, ns }
}

/// Returns true if two columns of a plan differ only in the QEMU.
fn is_other_qemu(plan: &Plan, at: Column<'_>, other: Column<'_>) -> bool {
    let settings = |(_, variant): Column<'_>| {
        let mut set = plan
            .variants
            .iter()
            .find(|v| v.name == variant)?
            .set
            .clone();
        Some((set.remove("qemu"), set))
    };
    match (settings(at), settings(other)) {
        (Some((own, rest)), Some((others, same))) => {
            at.0 == other.0 && own != others && rest == same
        }
        _ => false,
    }
}

/// Returns true if the rounds are enough to show growth, and show none.
fn is_flat(points: &Points) -> bool {
    let found = grown(points, None);
    !found.grows && found.no_law.is_none()
}

/// A metric's value as what one of the things that it counts costs, nanoseconds; `None` for what is no cost.
fn cost_ns(metric: Metric, value: f64) -> Option<f64> {
    let ns = match metric.unit() {
        // What is counted has no time of its own: it grows as it is.
        Unit::Nanoseconds | Unit::Mebibytes | Unit::Count => value,
        Unit::Seconds => value * 1e9,
        Unit::PerSecond | Unit::MebibytesPerSecond => 1e9 / value,
    };
    (ns.is_finite() && ns > 0.0).then_some(ns)
}

/// The steps of a column that were tried and gave nothing.
fn missing(plan: &Plan, at: Column<'_>, sizes: &[u64], trials: &[TrialRecord]) -> Vec<MissingStep> {
    let missing = |&size: &u64| {
        let tried =
            || of_column(at, trials).filter(|t| t.step == Some(size) && t.round < plan.rounds);
        if tried().any(|t| t.result().is_some()) {
            return None;
        }
        let reason = tried().find_map(|t| match &t.outcome {
            Outcome::Failed { error } => Some(error.clone()),
            Outcome::Interrupted | Outcome::Done { .. } => None,
        });
        Some(MissingStep {
            machine: at.0,
            variant: at.1.to_owned(),
            size,
            reason: reason?,
        })
    };
    sizes.iter().filter_map(missing).collect()
}

fn complete(
    plan: &Plan,
    round: u32,
    columns: &[Column<'_>],
    missing: &[MissingStep],
    trials: &[TrialRecord],
) -> bool {
    let refused = |(machine, variant): &Column<'_>, size: u64| {
        missing
            .iter()
            .any(|m| m.machine == *machine && m.variant == *variant && m.size == size)
    };
    let sizes = || (0..plan.steps()).filter_map(|step| plan.size(step));
    columns.iter().all(|at| {
        sizes().filter(|size| !refused(at, *size)).all(|size| {
            let done = of_column(*at, trials).filter(|t| t.round == round && t.step == Some(size));
            done.filter(|t| t.result().is_some()).count() >= plan.workloads.len()
        })
    })
}

fn warnings(
    plan: &Plan,
    trials: &[TrialRecord],
    columns: &[Column<'_>],
    rounds_complete: u32,
) -> Vec<Warning> {
    let mut all = Vec::new();
    for machine in plan.machines.iter().copied() {
        let own = columns.iter().filter(|(m, _)| *m == machine).count();
        let planned = plan
            .rounds
            .saturating_mul((own * plan.steps() * plan.workloads.len()) as u32);
        let of_machine = || {
            trials
                .iter()
                .filter(|t| t.machine == machine && t.round < plan.rounds)
        };
        let done = of_machine().filter(|t| t.result().is_some()).count() as u32;
        if done < planned {
            let reason = of_machine()
                .find_map(TrialRecord::failure)
                .unwrap_or("the run was cut off")
                .to_owned();
            all.push(Warning::TrialsMissing {
                machine,
                missing: planned - done,
                planned,
                reason,
            });
        }
    }
    if rounds_complete < FEWEST_ROUNDS {
        all.push(Warning::TooFewRounds {
            rounds: rounds_complete,
            needed: FEWEST_ROUNDS,
        });
    }
    add_warnings(&mut all, trials);
    all
}
