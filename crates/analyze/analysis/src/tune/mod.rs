//! Tuning of a running VM by live settings: the next measurement, and the findings so far.

#[cfg(test)]
mod simulated;
mod steps;

pub use steps::next_step;

use crate::pairs::{Decision, OUT_OF_TIME, PairSeries, before_after};
use crate::rates;
use steps::{InterimResult, elapsed, facts, figure, outcome, pairs, series};
use vmtax_findings::{BeforeAfter, TuneFindings, TuneOutcome, TuneRow, TuneVerdict, VmRates};
use vmtax_model::{
    Candidate, LiveChange, LiveMetric, Role, Tried, TuneBlock, TuneMetric, TunePhase, TuneRecord,
    TuneSpec, VmFacts,
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
            moved(&vm, records, phase, &kept, deciding)
        },
        vm,
        applied: spec.apply,
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
    /// Another one: its name, its unit, how it is read.
    Other(&'static str, &'static str, fn(&VmRates) -> Option<f64>),
}

/// Figures in the order of a request's path, then of the CPUs. Of all, more costs more, except rates per second and %RUN.
const FIGURES: [Figure; 13] = [
    Figure::Metric(LiveMetric::Requests),
    Figure::Metric(LiveMetric::Throughput),
    Figure::Metric(LiveMetric::Latency),
    Figure::Other("reads", "ns", |vm| vm.io?.read_ns),
    Figure::Other("writes", "ns", |vm| vm.io?.write_ns),
    Figure::Metric(LiveMetric::WriteLatency),
    Figure::Other("p99 of disk requests", "ns", |vm| vm.io?.p99_ns),
    Figure::Other("latency of the busiest host disk, all users", "ns", |vm| {
        let devices = vm.disks.iter().filter_map(|disk| disk.device.as_ref());
        devices.max_by(|a, b| a.per_s.total_cmp(&b.per_s))?.mean_ns
    }),
    Figure::Metric(LiveMetric::Run),
    Figure::Other("run-queue wait of the vCPUs (%RDY)", "fraction", |vm| {
        vm.ready
    }),
    Figure::Other("throttling of the vCPUs (%THR)", "fraction", |vm| {
        vm.throttled
    }),
    Figure::Other("CPU time of QEMU's other threads", "fraction", |vm| {
        let others = vm
            .threads
            .iter()
            .filter(|thread| !matches!(thread.role, Role::Vcpu(_)));
        Some(others.map(|thread| thread.run).sum())
    }),
    Figure::Metric(LiveMetric::Exits),
];

/// The figures of all pairs of a phase in which these candidates change; first that of the one disk that shows whether
/// `change` helps.
fn moved(
    vm: &VmFacts,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
    change: Option<&LiveChange>,
) -> Vec<BeforeAfter> {
    let block_rates = |block: &TuneBlock| rates(vm, &block.before, &block.after);
    let pairs: Vec<(VmRates, VmRates)> = pairs(records, phase, changed)
        .filter_map(|[without, with]| Some((block_rates(without)?, block_rates(with)?)))
        .collect();
    let of_disk = change.and_then(|change| {
        let (metric, disk) = (change.metric?, of_one_disk(vm, change)?);
        moved_figure(&pairs, &label(vm, change), metric.unit(), |rates| {
            figure(metric, Some(disk), rates)
        })
    });
    let of_vm = FIGURES.iter().filter_map(|shown| match shown {
        Figure::Metric(metric) => moved_figure(&pairs, metric.label(), metric.unit(), |rates| {
            figure(*metric, None, rates)
        }),
        Figure::Other(name, unit, read) => moved_figure(&pairs, name, unit, read),
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
    read: impl Fn(&VmRates) -> Option<f64>,
) -> Option<BeforeAfter> {
    let values: Vec<(f64, f64)> = pairs
        .iter()
        .filter_map(|(without, with)| Some((read(without)?, read(with)?)))
        .collect();
    before_after(name, unit, &values).filter(|_| values.iter().any(|pair| *pair != (0.0, 0.0)))
}
