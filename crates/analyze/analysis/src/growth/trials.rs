//! From the trials of a plan with a range to points, and what is missing among them.

use super::points::Points;
use super::{Grown, grown};
use crate::interval::FEWEST_ROUNDS;
use crate::overhead::estimate;
use std::collections::BTreeMap;
use vmtax_model::{
    Column, Growth, GrowthFindings, Metric, MissingStep, Outcome, Plan, REPORT_SCHEMA, RoundCost, StepCost,
    TrialRecord, Unit, Warning,
};

/// What the trials of a plan with a range say. Trials that the plan does not mean are passed over.
pub fn growth(plan: &Plan, trials: &[TrialRecord]) -> GrowthFindings {
    let sizes: Vec<u64> = (0..plan.steps()).filter_map(|step| plan.size(step)).collect();
    let columns = plan.columns();
    let mut growths = Vec::new();
    for metric in Metric::ALL.iter().copied().filter(|m| plan.workloads.iter().any(|w| w.name == m.workload())) {
        for &(machine, variant) in &columns {
            growths.extend(column(metric, (machine, variant), &sizes, plan.rounds, trials));
        }
    }
    let missing: Vec<MissingStep> = columns.iter().flat_map(|c| missing(plan, *c, &sizes, trials)).collect();
    let rounds_complete = (0..plan.rounds).filter(|r| complete(plan, *r, &columns, &missing, trials)).count() as u32;
    GrowthFindings {
        schema: REPORT_SCHEMA,
        option: plan.range().map_or(String::new(), |range| range.option.clone()),
        rounds_planned: plan.rounds,
        rounds_complete,
        method: METHOD.to_owned(),
        warnings: warnings(plan, trials, &columns, rounds_complete),
        growths,
        missing,
    }
}

const METHOD: &str = "In each round every size has a fresh machine, in random order. A cost grows where fewer than 5 % of \
                      1,999 random permutations order costs and sizes as well, and where it grows by at least 5 % over \
                      the range. Then O(log n), O(n), O(n log n) and O(n²) are fitted to all rounds but one and \
                      judged by that one, each round once: the best is named, and those that the rounds do not \
                      distinguish from it. Intervals span order statistics of the rounds and hold at least 95 % of the time.";

fn of_column<'a>((machine, variant): Column<'a>, trials: &'a [TrialRecord]) -> impl Iterator<Item = &'a TrialRecord> {
    trials.iter().filter(move |t| t.machine == machine && t.variant == variant)
}

/// How a metric grows on a machine; `None` when no trial there gave a value of it.
fn column(metric: Metric, at: Column<'_>, sizes: &[u64], rounds: u32, trials: &[TrialRecord]) -> Option<Growth> {
    let mut costs: BTreeMap<(u32, u64), f64> = BTreeMap::new();
    for trial in of_column(at, trials).filter(|t| t.round < rounds) {
        let value = trial.result().and_then(|result| result.value(metric));
        if let (Some(size), Some(ns)) = (trial.step, value.and_then(|v| cost_ns(metric, v))) {
            costs.insert((trial.round, size), ns);
        }
    }
    if costs.is_empty() {
        return None;
    }
    let round = |round: u32| sizes.iter().map(|size| costs.get(&(round, *size)).copied()).collect();
    let points = Points { sizes: sizes.iter().map(|&n| n as f64).collect(), rounds: (0..rounds).map(round).collect() };
    let Grown { law, or, p, change, one_more, misfit, curve } = grown(&points);
    let step = |&size: &u64| {
        let of_size = costs.iter().filter(|((_, n), _)| *n == size);
        let rounds: Vec<RoundCost> = of_size.map(|((round, _), ns)| RoundCost { round: *round, ns: *ns }).collect();
        let ns = (!rounds.is_empty()).then(|| estimate(rounds.iter().map(|r| r.ns).collect()));
        StepCost { size, rounds, ns }
    };
    let steps = sizes.iter().map(step).collect();
    let (machine, variant) = (at.0, at.1.to_owned());
    Some(Growth { metric, machine, variant, law, or, p, change, one_more, misfit, steps, curve })
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
    let mut all = Vec::new();
    for &size in sizes {
        let tried = || of_column(at, trials).filter(|t| t.step == Some(size) && t.round < plan.rounds);
        if tried().any(|t| t.result().is_some()) {
            continue;
        }
        if let Some(reason) = tried().find_map(|t| match &t.outcome {
            Outcome::Failed { error } => Some(error.clone()),
            Outcome::Interrupted | Outcome::Done { .. } => None,
        }) {
            all.push(MissingStep { machine: at.0, variant: at.1.to_owned(), size, reason });
        }
    }
    all
}

fn complete(plan: &Plan, round: u32, columns: &[Column<'_>], missing: &[MissingStep], trials: &[TrialRecord]) -> bool {
    let refused = |(machine, variant): &Column<'_>, size: u64| {
        missing.iter().any(|m| m.machine == *machine && m.variant == *variant && m.size == size)
    };
    let sizes = || (0..plan.steps()).filter_map(|step| plan.size(step));
    columns.iter().all(|at| {
        sizes().filter(|size| !refused(at, *size)).all(|size| {
            let done = of_column(*at, trials).filter(|t| t.round == round && t.step == Some(size));
            done.filter(|t| t.result().is_some()).count() >= plan.workloads.len()
        })
    })
}

fn warnings(plan: &Plan, trials: &[TrialRecord], columns: &[Column<'_>], rounds_complete: u32) -> Vec<Warning> {
    let mut all = Vec::new();
    for machine in plan.machines.iter().copied() {
        let own = columns.iter().filter(|(m, _)| *m == machine).count();
        let planned = plan.rounds.saturating_mul((own * plan.steps() * plan.workloads.len()) as u32);
        let of_machine = || trials.iter().filter(|t| t.machine == machine && t.round < plan.rounds);
        let done = of_machine().filter(|t| t.result().is_some()).count() as u32;
        if done < planned {
            let reason = of_machine().find_map(TrialRecord::failure).unwrap_or("the run was cut off").to_owned();
            all.push(Warning::TrialsMissing { machine, missing: planned - done, planned, reason });
        }
    }
    if rounds_complete < FEWEST_ROUNDS {
        all.push(Warning::TooFewRounds { rounds: rounds_complete, needed: FEWEST_ROUNDS });
    }
    for warning in trials.iter().flat_map(|t| &t.warnings) {
        crate::add_warning(&mut all, warning);
    }
    all
}
