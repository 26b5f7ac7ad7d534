//! Tuning of a running VM by live settings: the next measurement, and the findings so far.

mod moved;
mod series;
#[cfg(test)]
mod simulated;
mod steps;

pub use steps::next_step;

use crate::pairs::{Decision, PairSeries};
use series::{facts, series};
use steps::{InterimResult, elapsed, outcome};
use vmtax_model::{
    LiveChange, TuneFindings, TuneMetric, TunePhase, TuneRecord, TuneRow, TuneSpec, TuneVerdict,
    VmFacts,
};

/// Returns the findings of a tuning; `None` if not even the VM is recorded.
pub fn tune(spec: &TuneSpec, records: &[TuneRecord]) -> Option<TuneFindings> {
    let vm = facts(records)?.clone();
    let InterimResult { kept, phase, .. } = outcome(spec, records);
    let rows: Vec<TuneRow> = (0..spec.candidates.len())
        .map(|number| row(spec, records, number, &kept))
        .collect();
    let total = series(spec, records, phase, &kept).comparison();
    let deciding = deciding_change(spec, &kept);
    let is_on = records
        .iter()
        .any(|record| matches!(record, TuneRecord::Kept { candidates } if !candidates.is_empty()));
    let ended = records.iter().find_map(|record| {
        if let TuneRecord::Ended { why } = record {
            Some(why.clone())
        } else {
            None
        }
    });
    // With more time something would be left to measure.
    let is_undecided = || {
        outcome(
            &TuneSpec {
                time_ms: u64::MAX,
                ..spec.clone()
            },
            records,
        )
        .next
        .is_some()
    };
    let over = || {
        "time limit reached before every change had a conclusive result: increase --duration"
            .to_owned()
    };
    Some(TuneFindings {
        metric: metric(spec, &vm, deciding),
        moved: if kept.is_empty() {
            Vec::new()
        } else {
            moved::moved(&vm, records, phase, &kept, deciding)
        },
        vm,
        applied: spec.apply,
        total,
        candidates: rows,
        is_on,
        not_tried: spec.not_tried.clone(),
        ended: ended.or_else(|| (spec.apply && is_undecided()).then(over)),
        seconds: elapsed(records).as_secs_f64(),
    })
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
        None => first.map_or_else(String::new, |change| moved::label(vm, change)),
    }
}

fn row(spec: &TuneSpec, records: &[TuneRecord], number: usize, kept: &[usize]) -> TuneRow {
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
            Some("the load did not give this figure: it stopped, or is too small")
        }
        Some(Decision::Harms) => Some("taken back: each of the first 3 pairs cost over 5 % more"),
        _ => None,
    };
    let why = why(&screening).or(why(&confirmation)).map(str::to_owned);
    TuneRow {
        candidate: spec.candidates[number].clone(),
        verdict,
        why: refused.or(why),
        screening: screening.comparison(),
        confirmation: confirmation.comparison(),
    }
}
