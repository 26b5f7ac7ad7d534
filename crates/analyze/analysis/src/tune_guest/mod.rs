//! Tuning of a guest's workload: the next measurement, and the findings so far.

mod measured;
mod outcome;
mod screening;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_masked;
mod steps;

pub use steps::next_guest_step;

use crate::pairs::{Decision, PairSeries};
use measured::{Figure, Measured, confirms};
use outcome::{InterimResult, LeftOut};
use std::collections::BTreeSet;
use steps::{outcome, without};
use vmtax_model::{
    BeforeAfter, GuestTuneFindings, GuestTunePart, GuestTunePhase, GuestTuneRow, GuestTuneSpec,
    Metric, Plan, SecondScreening, TrialRecord, TuneVerdict, WorkloadName,
};

/// Returns the findings of a tuning; `None` if the plan tunes no guest.
pub fn tune_guest(plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneFindings> {
    let (spec, baseline) = (plan.guest_tune()?, plan.variants.first()?);
    let measured = Measured::new(spec, trials);
    let found = outcome(&measured, baseline);
    let value = |trial: &TrialRecord| trial.result().and_then(|result| result.value(spec.metric));
    let total = measured.pairs(&confirms(&found.kept), &[], &found.kept, &value);
    let medians = medians(&total);
    let candidates: Vec<GuestTuneRow> = (0..spec.candidates.len())
        .map(|number| row(&measured, number, &found))
        .collect();
    let over = || {
        "time limit reached before every change had a conclusive result: increase --duration"
            .to_owned()
    };
    let bounds = candidates
        .iter()
        .filter_map(|row| Some(1.0 - row.screening?.ratio.interval?.low));
    Some(GuestTuneFindings {
        metric: spec.metric,
        total: measured
            .series(&confirms(&found.kept), &[], &found.kept)
            .comparison()
            .filter(|_| !found.kept.is_empty()),
        before: medians.map(|(before, _)| before),
        after: medians.map(|(_, after)| after),
        guards: if found.kept.is_empty() {
            Vec::new()
        } else {
            guards(&measured, &found.kept)
        },
        at_most: if found.kept.is_empty() {
            bounds.reduce(f64::max)
        } else {
            None
        },
        baseline: baseline.set.clone(),
        tuned: spec.settings(baseline, &found.kept),
        not_tried: spec.not_tried.clone(),
        job_notes: spec.job_notes.clone(),
        like: spec.like.clone(),
        ended: (found.next.is_some() || found.is_out_of_time).then(over),
        rounds: trials
            .iter()
            .map(|trial| trial.round)
            .collect::<BTreeSet<_>>()
            .len() as u32,
        boots: trials
            .iter()
            .map(|trial| (trial.round, &trial.variant))
            .collect::<BTreeSet<_>>()
            .len() as u32,
        seconds: measured.seconds,
        second_screening: second_screening(measured.spec, &candidates),
        candidates,
    })
}

fn second_screening(spec: &GuestTuneSpec, rows: &[GuestTuneRow]) -> Option<SecondScreening> {
    let parts: Vec<&GuestTunePart> = spec
        .parts
        .iter()
        .filter(|part| part.phase == GuestTunePhase::SecondScreening)
        .collect();
    let base = parts.first()?.configurations.first()?;
    let screened: BTreeSet<usize> = parts
        .iter()
        .flat_map(|part| &part.configurations)
        .flatten()
        .copied()
        .collect();
    let screened = screened
        .into_iter()
        .filter(|number| !base.contains(number))
        .filter_map(|number| rows.get(number));
    let screened: Vec<&GuestTuneRow> = screened.collect();
    let name = |row: &&GuestTuneRow| row.candidate.name.clone();
    Some(SecondScreening {
        beside: spec.name(base),
        candidates: screened.iter().map(name).collect(),
        kept: screened
            .iter()
            .filter(|row| row.verdict == TuneVerdict::Keep)
            .map(name)
            .collect(),
        boots: parts
            .iter()
            .map(|part| part.rounds * part.configurations.len() as u32)
            .sum(),
    })
}

fn medians(pairs: &[Option<(f64, f64)>]) -> Option<(f64, f64)> {
    let pairs: Vec<(f64, f64)> = pairs.iter().flatten().copied().collect();
    let median =
        |of: &dyn Fn(&(f64, f64)) -> f64| crate::estimate(pairs.iter().map(of).collect()).median;
    (!pairs.is_empty()).then(|| (median(&|pair| pair.0), median(&|pair| pair.1)))
}

fn row(measured: &Measured<'_>, number: usize, found: &InterimResult) -> GuestTuneRow {
    // Beside the most that it was measured beside.
    let others = found
        .bases
        .iter()
        .rev()
        .filter(|base| !base.contains(&number));
    let screened = others
        .map(|base| (base, measured.screening(base, number)))
        .find(|(_, series)| series.pairs() > 0);
    let (beside, screening) =
        screened.map_or_else(Default::default, |(base, series)| (base.clone(), series));
    let set = if found.kept.contains(&number) {
        &found.kept
    } else {
        &found.confirmed
    };
    let confirmation = match set.contains(&number) {
        true => measured.series(&confirms(set), &without(set, number), set),
        false => PairSeries::default(),
    };
    let refused = measured.refused(number);
    let decided = [screening.decision(), found.failed.get(&number).copied()];
    let is_rejected = decided
        .iter()
        .any(|decided| matches!(decided, Some(Decision::Fails | Decision::Harms)));
    let verdict = match () {
        () if refused.is_some() => TuneVerdict::Refused,
        () if screening.pairs() == 0 => TuneVerdict::NotMeasured,
        () if found.kept.contains(&number) => TuneVerdict::Keep,
        () if decided.contains(&Some(Decision::Undecided)) => TuneVerdict::Inconclusive,
        () if is_rejected
            || (found.left_out.contains_key(&number)
                && screening.decision() == Some(Decision::Helps)) =>
        {
            TuneVerdict::Reject
        }
        () => TuneVerdict::Inconclusive,
    };
    let why = match screening.decision() {
        Some(Decision::Unmeasurable) => Some(LeftOut::Unmeasurable),
        Some(Decision::Harms) => Some(LeftOut::Harms),
        _ => found.left_out.get(&number).cloned(),
    };
    GuestTuneRow {
        candidate: measured.spec.candidates[number].clone(),
        verdict,
        why: refused.or(why.map(|why| why.to_string())),
        beside: (!beside.is_empty()).then(|| measured.spec.name(&beside)),
        screening: screening.comparison(),
        confirmation: confirmation.comparison(),
    }
}

/// Returns other figures that changed with the kept settings: the tail of latencies, and the host CPU time of
/// requests.
fn guards(measured: &Measured<'_>, kept: &[usize]) -> Vec<BeforeAfter> {
    let is_disk = measured.spec.metric.workload() == WorkloadName::Disk;
    let of_each = |trial: &TrialRecord| {
        let operations: u64 = trial
            .result()?
            .operations
            .iter()
            .map(|operation| operation.latency.count())
            .sum();
        Some(operations.max(1) as f64 / 1e9)
    };
    let tail = |trial: &TrialRecord| trial.result()?.value(Metric::DiskTail);
    let vcpus = |trial: &TrialRecord| Some(trial.cpu_seconds.as_ref()?.guest / of_each(trial)?);
    let qemu = |trial: &TrialRecord| Some(trial.cpu_seconds.as_ref()?.qemu / of_each(trial)?);
    let figures: [(&str, Figure<'_>); 3] = match is_disk {
        true => [
            ("p99 request latency", &tail),
            ("CPU time of the vCPUs per request", &vcpus),
            ("CPU time of QEMU's other threads per request", &qemu),
        ],
        false => [
            ("p99 request latency", &tail),
            ("CPU time of the vCPUs", &vcpus),
            ("CPU time of QEMU's other threads", &qemu),
        ],
    };
    let guard = |(name, figure): (&str, Figure<'_>)| {
        let pairs = measured.pairs(&confirms(kept), &[], kept, figure);
        let (before, after) = medians(&pairs)?;
        let logs: Vec<f64> = pairs
            .iter()
            .flatten()
            .map(|(before, after)| (after / before).ln())
            .collect();
        let is_whole = logs.iter().all(|log| log.is_finite());
        let comparison = PairSeries { logs, empty: 0 }
            .comparison()
            .filter(|_| is_whole);
        Some(BeforeAfter {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            before,
            after,
            comparison,
        })
    };
    figures.into_iter().filter_map(guard).collect()
}
