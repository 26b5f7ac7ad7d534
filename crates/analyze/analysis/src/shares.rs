//! Ways to share a tree, compared with the first of the plan: metric by metric, and in one score for each workload.

use crate::estimate::{estimate, median_of, overhead, spread};
use crate::trials::{self, add_warning, add_warnings};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{REPORT_SCHEMA, ShareCell, ShareColumn, ShareFindings, ShareRow, ShareScore};
use vmtax_model::{
    Better, Column, CpuSeconds, FEWEST_ROUNDS, Machine, Metric, Plan, Probes, TrialRecord,
    TrialResult, Warning, WorkloadName,
};
use vmtax_rules::Evidence;

/// Analyzes the trials of a plan whose variants share a tree. Trials that the plan does not contain are ignored.
pub fn shares(plan: &Plan, trials: &[TrialRecord]) -> ShareFindings {
    let ways = plan.columns();
    let of: Vec<Vec<&TrialRecord>> = ways.iter().map(|way| of_way(plan, trials, way)).collect();
    // The host, which has the tree itself, is what all guests would like to be, and not what they replace.
    let base = ways
        .iter()
        .position(|(machine, _)| machine.is_guest())
        .unwrap_or(0);
    let columns: Vec<ShareColumn> = ways
        .iter()
        .zip(&of)
        .map(|(way, trials)| column(plan, way, trials))
        .collect();
    let rows: Vec<ShareRow> = Metric::ALL
        .iter()
        .filter_map(|metric| row(*metric, base, &of))
        .collect();
    let scores = plan
        .workloads
        .iter()
        .filter_map(|w| score(w.name, base, &rows, &of))
        .collect();
    let warnings = warnings(plan, trials, &columns);
    let mut findings = ShareFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: plan.rounds,
        method: METHOD.to_owned(),
        base,
        columns,
        rows,
        scores,
        warnings,
        advice: Vec::new(),
    };
    let evidence = Evidence {
        plan: Some(plan),
        shares: Some(&findings),
        ..Evidence::default()
    };
    findings.advice = vmtax_rules::advice(&evidence);
    findings
}

fn warnings(plan: &Plan, trials: &[TrialRecord], columns: &[ShareColumn]) -> Vec<Warning> {
    let mut all = Vec::new();
    add_warnings(&mut all, trials);
    for &machine in &plan.machines {
        missing(plan, machine, trials)
            .iter()
            .for_each(|w| add_warning(&mut all, w));
    }
    let measured = columns.iter().filter(|c| c.failed.is_none());
    let rounds = measured.map(|c| c.rounds).min().unwrap_or(0);
    if rounds < FEWEST_ROUNDS {
        let needed = FEWEST_ROUNDS;
        add_warning(&mut all, &Warning::TooFewRounds { rounds, needed });
    }
    all
}

const METHOD: &str = "Each share method has a fresh guest in each round, in random order. A relative cost is the \
                      median over rounds of this method's figure over the first one's in the same round (paired; for a rate, the first one's over this), so below ×1 is \
                      faster; its CI bounds are order statistics of the ratios (sign test). A workload's relative cost is that of the \
                      geometric mean of all metrics of a workload.";

fn of_way<'a>(plan: &Plan, trials: &'a [TrialRecord], way: &Column<'_>) -> Vec<&'a TrialRecord> {
    let meant = |t: &&TrialRecord| {
        let variant = if way.0.is_guest() {
            t.variant == way.1
        } else {
            true
        };
        // What probes made longer is no figure of the share.
        t.probes == Probes::None
            && t.machine == way.0
            && variant
            && t.round < plan.rounds
            && plan.workloads.iter().any(|w| w.name == t.workload.name)
    };
    trials.iter().filter(meant).collect()
}

fn column(plan: &Plan, way: &Column<'_>, trials: &[&TrialRecord]) -> ShareColumn {
    let done: BTreeSet<(u32, WorkloadName)> = trials
        .iter()
        .filter(|t| t.result().is_some())
        .map(|t| (t.round, t.workload.name))
        .collect();
    let whole = |round: &u32| {
        plan.workloads
            .iter()
            .all(|w| done.contains(&(*round, w.name)))
    };
    // A way of which some trials have results was measured; those without are counted among the warnings.
    let none = done.is_empty();
    let failed = trials
        .iter()
        .filter(|_| none)
        .find_map(|t| t.failure())
        .map(str::to_owned);
    ShareColumn {
        machine: way.0,
        variant: way.1.to_owned(),
        rounds: (0..plan.rounds).filter(whole).count() as u32,
        facts: trials.iter().find_map(|t| t.share.clone()),
        cpu_seconds: plan
            .workloads
            .iter()
            .filter_map(|w| Some((w.name, cpu_seconds(w.name, trials)?)))
            .collect(),
        kept: trials
            .iter()
            .filter_map(|t| t.result())
            .map(|r| r.kept.clone())
            .find(|k| !k.is_empty())
            .unwrap_or_default(),
        failed,
    }
}

/// Returns the median CPU seconds of a workload's trials; `None` where none are known.
fn cpu_seconds(workload: WorkloadName, trials: &[&TrialRecord]) -> Option<CpuSeconds> {
    let seconds: Vec<CpuSeconds> = trials
        .iter()
        .filter(|t| t.workload.name == workload && t.result().is_some())
        .filter_map(|t| t.cpu_seconds)
        .collect();
    let median = |part: fn(&CpuSeconds) -> f64| median_of(seconds.iter().map(part));
    let has_server = seconds.iter().any(|s| s.server.is_some());
    (!seconds.is_empty()).then(|| CpuSeconds {
        guest: median(|s| s.guest),
        qemu: median(|s| s.qemu),
        ready: median(|s| s.ready),
        server: has_server.then(|| median(|s| s.server.unwrap_or(0.0))),
    })
}

/// The trials of a machine that have no result, where there are any.
fn missing(plan: &Plan, machine: Machine, trials: &[TrialRecord]) -> Option<Warning> {
    let reasons: Vec<&str> = trials
        .iter()
        .filter(|t| t.machine == machine)
        .filter_map(TrialRecord::failure)
        .collect();
    let ways = if machine.is_guest() {
        plan.variants.len()
    } else {
        1
    };
    let planned = plan
        .rounds
        .saturating_mul((plan.workloads.len() * ways) as u32);
    let reason = reasons
        .first()?
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    Some(Warning::TrialsMissing {
        machine,
        missing: reasons.len() as u32,
        planned,
        reason,
    })
}

fn values(trials: &[&TrialRecord], metric: Metric) -> BTreeMap<u32, f64> {
    trials::values(results(trials, metric.workload()), metric)
}

/// A workload's results, with their rounds.
fn results<'a>(
    trials: &'a [&TrialRecord],
    workload: WorkloadName,
) -> impl Iterator<Item = (u32, &'a TrialResult)> {
    trials
        .iter()
        .filter(move |t| t.workload.name == workload)
        .filter_map(|t| Some((t.round, t.result()?)))
}

fn row(metric: Metric, base: usize, of: &[Vec<&TrialRecord>]) -> Option<ShareRow> {
    let all: Vec<BTreeMap<u32, f64>> = of.iter().map(|trials| values(trials, metric)).collect();
    let cells: Vec<ShareCell> = all
        .iter()
        .zip(of)
        .enumerate()
        .map(|(i, (values, trials))| {
            let results = || results(trials, metric.workload()).map(|(_, result)| result);
            ShareCell {
                spread: spread(
                    values.values().copied().collect(),
                    trials::latency(results(), metric).and_then(|l| l.summary()),
                ),
                against: all
                    .get(base)
                    .filter(|_| i != base)
                    .and_then(|base| overhead(Some(metric.better()), base, values)),
                unsupported: trials::unsupported(results(), metric),
            }
        })
        .collect();
    cells
        .iter()
        .any(|c| c.spread.is_some())
        .then_some(ShareRow { metric, cells })
}

/// A workload's metrics in one figure for each column; `None` for one that has a single metric, or none.
fn score(
    workload: WorkloadName,
    base: usize,
    rows: &[ShareRow],
    of: &[Vec<&TrialRecord>],
) -> Option<ShareScore> {
    let metrics: Vec<Metric> = rows
        .iter()
        .map(|r| r.metric)
        .filter(|m| m.workload() == workload)
        .collect();
    if metrics.len() < 2 {
        return None;
    }
    let of_column = |trials: &Vec<&TrialRecord>| {
        let mut logs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let base = of.get(base)?;
        let both = |m: &Metric| !values(base, *m).is_empty() && !values(trials, *m).is_empty();
        let metrics: Vec<Metric> = metrics.iter().copied().filter(both).collect();
        for &metric in &metrics {
            let (base, own) = (values(base, metric), values(trials, metric));
            for (round, value) in own {
                let Some(base) = base.get(&round) else {
                    continue;
                };
                let ratio = match metric.better() {
                    Better::Higher => base / value,
                    Better::Lower => value / base,
                };
                if ratio.is_finite() && ratio > 0.0 {
                    logs.entry(round).or_default().push(ratio.ln());
                }
            }
        }
        // A round that lacks a metric would be a mean of something else.
        let whole = logs.values().filter(|l| l.len() == metrics.len());
        let means: Vec<f64> = whole
            .map(|l| (l.iter().sum::<f64>() / l.len() as f64).exp())
            .collect();
        (!means.is_empty()).then(|| estimate(means))
    };
    Some(ShareScore {
        workload,
        cells: of.iter().map(of_column).collect(),
    })
}
