//! Tuning of a running VM by live settings: the next measurement, and the findings so far.

#[cfg(test)]
mod simulated;

use crate::pairs::{Decision, MAX_PAIRS, OUT_OF_TIME, PairSeries, before_after};
use crate::rates;
use std::time::Duration;
use vmtax_findings::{BeforeAfter, TuneFindings, TuneOutcome, TuneRow, TuneVerdict, VmRates};
use vmtax_model::{
    Better, Candidate, LiveChange, LiveMetric, PairPlan, Role, Tried, TuneBlock, TuneMetric,
    TunePhase, TuneRecord, TuneSpec, TuneStep, VmFacts,
};

/// Returns the findings of a tuning; `None` if not even the VM is recorded.
pub fn tune(spec: &TuneSpec, records: &[TuneRecord]) -> Option<TuneFindings> {
    let vm = facts(records)?.clone();
    let InterimResult { kept, phase, .. } = outcome(spec, records);
    let deciding = deciding_change(spec, &kept);
    let is_on = records
        .iter()
        .any(|record| matches!(record, TuneRecord::Kept { candidates } if !candidates.is_empty()));
    Some(TuneFindings {
        metric: metric(spec, &vm, deciding),
        moved: if kept.is_empty() {
            Vec::new()
        } else {
            let judged_by = judging_metric(spec, deciding);
            moved(&vm, records, phase, &kept, deciding, judged_by)
        },
        vm,
        applied: spec.apply,
        unobserved: spec.unobserved.clone(),
        is_on,
        outcome: TuneOutcome {
            total: series(spec, records, phase, &kept).comparison(),
            candidates: (0..spec.candidates.len())
                .map(|number| row(spec, records, number, &kept))
                .collect(),
            not_tried: spec.not_tried.clone(),
            ended: ended(spec, records),
            seconds: elapsed(records).as_secs_f64(),
        },
    })
}

/// Returns the reason why a tuning ended before everything was decided.
fn ended(spec: &TuneSpec, records: &[TuneRecord]) -> Option<String> {
    let recorded = records.iter().find_map(|record| match record {
        TuneRecord::Ended { why } => Some(why.clone()),
        _ => None,
    });
    // With more time something would be left to measure.
    let is_undecided = || {
        let endless = TuneSpec {
            time_ms: u64::MAX,
            ..spec.clone()
        };
        outcome(&endless, records).next.is_some()
    };
    recorded.or_else(|| (spec.apply && is_undecided()).then(|| OUT_OF_TIME.to_owned()))
}

/// The change whose figure decides for all that are kept: the first of them, else the first.
fn deciding_change<'a>(spec: &'a TuneSpec, kept: &[usize]) -> Option<&'a LiveChange> {
    let first = kept
        .first()
        .and_then(|first| spec.candidates.get(*first))
        .or(spec.candidates.first());
    first.map(|candidate| &candidate.change)
}

/// Returns the metric by which `change` is judged; `None` where the user's command gives the figure.
fn judging_metric(spec: &TuneSpec, change: Option<&LiveChange>) -> Option<LiveMetric> {
    match &spec.metric {
        Some(TuneMetric::Command { .. }) => None,
        Some(TuneMetric::Vm(metric)) => Some(*metric),
        None => change?.metric,
    }
}

/// Returns the direction in which a metric is better; `None` where neither is. A VM that gets more done takes more CPU time and
/// exits more often: only a change that is judged by these is to raise or to lower them.
fn better(metric: LiveMetric, judged_by: Option<LiveMetric>) -> Option<Better> {
    let is_judged = judged_by == Some(metric);
    match metric {
        LiveMetric::Run | LiveMetric::Exits if !is_judged => None,
        _ if metric.is_rate() => Some(Better::Higher),
        _ => Some(Better::Lower),
    }
}

/// Returns the name of the figure that decides: that of the command or metric of the plan, else that of `first`.
fn metric(spec: &TuneSpec, vm: &VmFacts, first: Option<&LiveChange>) -> String {
    match &spec.metric {
        Some(TuneMetric::Command { line, .. }) => format!("what `{line}` prints"),
        Some(TuneMetric::Vm(metric)) => metric.label().to_owned(),
        None => first.map_or_else(String::new, |change| label(vm, change)),
    }
}

fn row(
    spec: &TuneSpec,
    records: &[TuneRecord],
    number: usize,
    kept: &[usize],
) -> TuneRow<Candidate> {
    let series_of = |phase| series(spec, records, phase, &[number]);
    let (screening, confirmation) = (
        series_of(TunePhase::Screening),
        series_of(TunePhase::Confirmation),
    );
    let refused = records.iter().find_map(|record| match record {
        TuneRecord::Refused { candidate, why } if *candidate == number => Some(why.clone()),
        _ => None,
    });
    let verdict = match (screening.decision(), confirmation.decision()) {
        _ if refused.is_some() => TuneVerdict::Refused,
        _ if screening.pairs() == 0 => TuneVerdict::NotMeasured,
        _ if kept.contains(&number) => TuneVerdict::Keep,
        (Some(Decision::Fails), _) | (_, Some(Decision::Fails)) => TuneVerdict::Reject,
        _ => TuneVerdict::Inconclusive,
    };
    let why = |series: &PairSeries| match series.decision() {
        Some(Decision::Unmeasurable) => {
            Some("the load gave no value of this metric: it stopped, or is too small")
        }
        Some(Decision::Harms) => Some("reverted: each of the first 3 pairs cost over 5 % more"),
        _ => None,
    };
    let why = why(&screening).or(why(&confirmation)).map(str::to_owned);
    TuneRow {
        candidate: spec.candidates[number].clone(),
        verdict,
        why: refused.or(why),
        beside: screened_beside(spec, records, number),
        screening: screening.comparison(),
        confirmation: confirmation.comparison(),
    }
}

/// Returns the names of the changes on top of which a candidate was screened last; `None` for the VM as it was.
fn screened_beside(spec: &TuneSpec, records: &[TuneRecord], number: usize) -> Option<String> {
    let base = records.iter().rev().find_map(|record| match record {
        TuneRecord::Pair { plan, .. } if plan.is_of(TunePhase::Screening, &[number]) => {
            Some(&plan.base)
        }
        _ => None,
    });
    let names: Vec<&str> = base?
        .iter()
        .map(|number| spec.candidates[*number].name())
        .collect();
    (!names.is_empty()).then(|| names.join(" + "))
}

/// A figure that is shown.
enum Figure {
    /// One that a change may be decided by.
    Metric(LiveMetric),
    /// A latency: its name, how it is read, ns.
    Latency(&'static str, fn(&VmRates) -> Option<f64>),
    /// A part of the time, which rises where the VM gets more done, too: its name, how it is read.
    TimeShare(&'static str, fn(&VmRates) -> Option<f64>),
}

/// Figures in the order of a request's path, then of the CPUs.
const FIGURES: [Figure; 13] = [
    Figure::Metric(LiveMetric::Requests),
    Figure::Metric(LiveMetric::Throughput),
    Figure::Metric(LiveMetric::Latency),
    Figure::Latency("reads", |vm| vm.io?.read_ns),
    Figure::Latency("writes", |vm| vm.io?.write_ns),
    Figure::Metric(LiveMetric::WriteLatency),
    Figure::Latency("p99 of disk requests", |vm| vm.io?.p99_ns),
    Figure::Latency("latency of the busiest host disk, all users", |vm| {
        let devices = vm.disks.iter().filter_map(|disk| disk.device.as_ref());
        devices.max_by(|a, b| a.per_s.total_cmp(&b.per_s))?.mean_ns
    }),
    Figure::Metric(LiveMetric::Run),
    Figure::TimeShare("run-queue wait of the vCPUs (%RDY)", |vm| vm.ready),
    Figure::TimeShare("throttling of the vCPUs (%THR)", |vm| vm.throttled),
    Figure::TimeShare("CPU time of QEMU's other threads", |vm| {
        let others = vm
            .threads
            .iter()
            .filter(|thread| !matches!(thread.role, Role::Vcpu(_)));
        Some(others.map(|thread| thread.run).sum())
    }),
    Figure::Metric(LiveMetric::Exits),
];

/// The figures of all pairs of a phase in which these candidates change; first that of the one disk that shows whether
/// `change` helps, which is judged by a metric.
fn moved(
    vm: &VmFacts,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
    change: Option<&LiveChange>,
    judged_by: Option<LiveMetric>,
) -> Vec<BeforeAfter> {
    let block_rates = |block: &TuneBlock| rates(vm, &block.before, &block.after);
    let pairs: Vec<(VmRates, VmRates)> = pairs(records, phase, changed)
        .filter_map(|[without, with]| Some((block_rates(without)?, block_rates(with)?)))
        .collect();
    let of_disk = change.and_then(|change| {
        let (metric, disk) = (change.metric?, of_one_disk(vm, change)?);
        let better = better(metric, judged_by);
        moved_figure(&pairs, &label(vm, change), metric.unit(), better, |rates| {
            figure(metric, Some(disk), rates)
        })
    });
    let of_vm = FIGURES.iter().filter_map(|shown| match shown {
        Figure::Metric(metric) => {
            let (unit, better) = (metric.unit(), better(*metric, judged_by));
            moved_figure(&pairs, metric.label(), unit, better, |rates| {
                figure(*metric, None, rates)
            })
        }
        Figure::Latency(name, read) => moved_figure(&pairs, name, "ns", Some(Better::Lower), read),
        Figure::TimeShare(name, read) => moved_figure(&pairs, name, "fraction", None, read),
    });
    of_disk.into_iter().chain(of_vm).collect()
}

/// Returns the name of the figure by which a change is measured, with its disk if the VM has several.
fn label(vm: &VmFacts, change: &LiveChange) -> String {
    let of_disk = of_one_disk(vm, change).map_or_else(String::new, |disk| format!(", {disk}"));
    format!("{}{of_disk}", change.metric.map_or("", LiveMetric::label))
}

/// The disk that alone shows whether a change helps, where the VM has others, too.
fn of_one_disk<'a>(vm: &VmFacts, change: &'a LiveChange) -> Option<&'a str> {
    change.disk.as_deref().filter(|_| vm.disks.len() > 1)
}

/// Returns a figure without and with the changes; `None` where it is not known, or 0 all the time.
fn moved_figure(
    pairs: &[(VmRates, VmRates)],
    name: &str,
    unit: &str,
    better: Option<Better>,
    read: impl Fn(&VmRates) -> Option<f64>,
) -> Option<BeforeAfter> {
    let values: Vec<(f64, f64)> = pairs
        .iter()
        .filter_map(|(without, with)| Some((read(without)?, read(with)?)))
        .collect();
    before_after(name, unit, better, &values)
        .filter(|_| values.iter().any(|pair| *pair != (0.0, 0.0)))
}

/// The parts of the time after which no screening, and no confirmation, is begun: the rest is for what comes after.
const SCREENING: f64 = 0.6;
const CONFIRMATION: f64 = 0.85;

/// Result of the measurements so far.
struct InterimResult {
    /// Next pair to measure; `None` if nothing is left, or no time.
    pub next: Option<PairPlan>,
    /// The candidates that helped twice, and of which all together are shown to help.
    pub kept: Vec<usize>,
    /// The phase whose pairs show that: of a single one its confirmation.
    pub phase: TunePhase,
}

impl InterimResult {
    /// Nothing is left to measure.
    fn end(kept: Vec<usize>, phase: TunePhase) -> InterimResult {
        InterimResult {
            next: None,
            kept,
            phase,
        }
    }

    /// A pair with and without the `changed` candidates, beside those of `base`, is measured next.
    fn pair(phase: TunePhase, changed: Vec<usize>, base: Vec<usize>) -> InterimResult {
        let next = Some(PairPlan {
            phase,
            changed,
            base,
            changed_first: false,
        });
        InterimResult {
            next,
            ..InterimResult::end(Vec::new(), phase)
        }
    }
}

/// The next step, from what was recorded so far. The order within a pair is drawn by `seed`: of two pairs in a row one is A B, the
/// other B A, so that what drifts meanwhile cancels.
pub fn next_step(spec: &TuneSpec, seed: u64, records: &[TuneRecord]) -> TuneStep {
    let InterimResult { next, kept, .. } = outcome(spec, records);
    let Some(pair) = next else {
        return TuneStep::End(kept);
    };
    let number = series(spec, records, pair.phase, &pair.changed).pairs() as u64;
    let changed_first = is_drawn(seed, pair.phase, &pair.changed, number / 2) != (number % 2 == 1);
    TuneStep::Pair(PairPlan {
        changed_first,
        ..pair
    })
}

/// Returns the candidates to keep by the records so far, and the next pair to measure.
fn outcome(spec: &TuneSpec, records: &[TuneRecord]) -> InterimResult {
    let has_time = |part: f64| elapsed(records) < spec.time().mul_f64(part);
    let mut helped = Vec::new();
    for candidate in (0..spec.candidates.len()).filter(|candidate| !is_refused(records, *candidate))
    {
        let screening = series(spec, records, TunePhase::Screening, &[candidate]);
        match screening.decision() {
            Some(Decision::Helps) => helped.push(candidate),
            None if has_time(SCREENING) => {
                return InterimResult::pair(TunePhase::Screening, vec![candidate], helped);
            }
            _ => {}
        }
    }
    let mut kept = Vec::new();
    for candidate in helped.clone() {
        match series(spec, records, TunePhase::Confirmation, &[candidate]).decision() {
            Some(Decision::Helps) => kept.push(candidate),
            None if has_time(CONFIRMATION) => {
                let mut others = helped;
                others.retain(|other| *other != candidate);
                return InterimResult::pair(TunePhase::Confirmation, vec![candidate], others);
            }
            _ => {}
        }
    }
    // A confirmation beside nothing else is the total.
    let phase = if helped.len() == 1 {
        TunePhase::Confirmation
    } else {
        TunePhase::Total
    };
    match series(spec, records, phase, &kept).decision() {
        decision if kept.is_empty() || decision == Some(Decision::Helps) => {
            InterimResult::end(kept, phase)
        }
        None if has_time(1.0) => InterimResult::pair(phase, kept, Vec::new()),
        _ => InterimResult::end(Vec::new(), phase),
    }
}

/// Returns true if a candidate could not be set.
fn is_refused(records: &[TuneRecord], candidate: usize) -> bool {
    records
        .iter()
        .any(|record| matches!(record, TuneRecord::Refused { candidate: refused, .. } if *refused == candidate))
}

/// From the first measurement's start to the last one's end.
fn elapsed(records: &[TuneRecord]) -> Duration {
    let blocks = records.iter().filter_map(|record| match record {
        TuneRecord::Pair { without, with, .. } => Some([without, with]),
        _ => None,
    });
    let spans = blocks
        .flatten()
        .map(|block| (block.before.at_ns, block.after.at_ns));
    let whole = spans.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)));
    whole.map_or(Duration::ZERO, |(first, last)| {
        Duration::from_nanos(last.saturating_sub(first))
    })
}

/// A coin for each two pairs.
fn is_drawn(seed: u64, phase: TunePhase, changed: &[usize], number: u64) -> bool {
    let first = changed.first().copied().unwrap_or(0) as u64;
    fastrand::Rng::with_seed(seed ^ ((phase as u64) << 56) ^ (first << 40) ^ number).bool()
}

/// The pairs of a phase in which these candidates change, by the figure that counts.
fn series(
    spec: &TuneSpec,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
) -> PairSeries {
    let candidate = changed
        .first()
        .and_then(|first| spec.candidates.get(*first));
    let Some((vm, candidate)) = facts(records).zip(candidate) else {
        return PairSeries::default();
    };
    let cost = |block| cost(spec, candidate, vm, block);
    // A recording of somebody else may have any number.
    pairs(records, phase, changed)
        .take(3 * MAX_PAIRS as usize)
        .map(|[without, with]| Some((cost(with)? / cost(without)?).ln()))
        .collect()
}

/// Returns the measurements of a phase in which these candidates change: each without them and with them.
fn pairs<'a>(
    records: &'a [TuneRecord],
    phase: TunePhase,
    changed: &[usize],
) -> impl Iterator<Item = [&'a TuneBlock; 2]> {
    records.iter().filter_map(move |record| match record {
        TuneRecord::Pair {
            plan,
            without,
            with,
        } if plan.is_of(phase, changed) => Some([&**without, &**with]),
        _ => None,
    })
}

/// Returns the facts of the VM; `None` if they are not recorded.
fn facts(records: &[TuneRecord]) -> Option<&VmFacts> {
    records.iter().find_map(|record| match record {
        TuneRecord::Vm(vm) => Some(&**vm),
        _ => None,
    })
}

/// Returns the deciding figure of a measurement as a cost: above 0, and more is worse. `None` without such a figure,
/// or where it is 0.
fn cost(spec: &TuneSpec, candidate: &Candidate, vm: &VmFacts, block: &TuneBlock) -> Option<f64> {
    let rates = || rates(vm, &block.before, &block.after);
    let (value, is_rate) = match &spec.metric {
        Some(TuneMetric::Command {
            higher_is_better, ..
        }) => (block.printed?, *higher_is_better),
        Some(TuneMetric::Vm(metric)) => (figure(*metric, None, &rates()?)?, metric.is_rate()),
        None => {
            let LiveChange { metric, disk, .. } = &candidate.change;
            let metric = (*metric)?;
            let value = figure(metric, disk.as_deref(), &rates()?)?;
            (value, metric.is_rate())
        }
    };
    Some(if is_rate { 1.0 / value } else { value }).filter(|cost| cost.is_finite() && *cost > 0.0)
}

/// A figure of the VM in a measurement; of requests those of this disk, else of all.
fn figure(metric: LiveMetric, disk: Option<&str>, rates: &VmRates) -> Option<f64> {
    let io = || match disk {
        Some(name) => rates.disk(name)?.io,
        None => rates.io,
    };
    match metric {
        LiveMetric::Latency => io()?.blkavg_ns,
        LiveMetric::WriteLatency => io()?.write_and_flush_ns,
        LiveMetric::Throughput => io().map(|io| io.read_bytes_per_s + io.written_bytes_per_s),
        LiveMetric::Requests => io().map(|io| io.per_s()),
        LiveMetric::Run => rates.run,
        LiveMetric::Exits => rates.exits.map(|exits| exits.per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DiskRates, IoRates};

    #[test]
    fn a_disks_figure_is_its_own_whatever_the_others_do() {
        let io = |requests: f64, ns| IoRates {
            reads_per_s: requests,
            read_bytes_per_s: requests * 4096.0,
            blkavg_ns: Some(ns),
            ..IoRates::default()
        };
        let disk = |name: &str, io| DiskRates {
            name: name.to_owned(),
            io: Some(io),
            ..DiskRates::default()
        };
        let all = io(1010.0, 5e5);
        let rates = VmRates {
            disks: vec![disk("slow", io(10.0, 4e7)), disk("fast", io(1000.0, 1e5))],
            io: Some(all),
            ..VmRates::default()
        };
        assert_eq!(figure(LiveMetric::Latency, Some("slow"), &rates), Some(4e7));
        assert_eq!(
            figure(LiveMetric::Throughput, Some("fast"), &rates),
            Some(4_096_000.0)
        );
        assert_eq!(figure(LiveMetric::Latency, None, &rates), Some(5e5));
        assert_eq!(figure(LiveMetric::Requests, Some("gone"), &rates), None);
    }
}
