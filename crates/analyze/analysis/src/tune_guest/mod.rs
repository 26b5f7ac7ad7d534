//! Tuning of a guest's workload: the next measurement, and the findings so far.

mod measured;
mod screening;
#[cfg(test)]
mod simulated;
mod steps;

pub use steps::next_guest_step;

use crate::pairs::{Decision, HARMED_PAIRS, OUT_OF_TIME, PairSeries, before_after, medians};
use measured::{Figure, InterimResult, Measured, confirms, without};
use std::collections::BTreeSet;
use steps::outcome;
use vmtax_findings::{
    BeforeAfter, GuestTuneFindings, SecondScreening, TuneOutcome, TuneRow, TuneVerdict,
};
use vmtax_model::{
    GuestCandidate, GuestTunePart, GuestTunePhase, GuestTuneSpec, Metric, Plan, TrialRecord,
    WorkloadName,
};

/// Returns the findings of a tuning; `None` if the plan tunes no guest.
pub fn tune_guest(plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneFindings> {
    let measured = Measured::new(plan, trials)?;
    let spec = measured.spec;
    let found = outcome(&measured);
    let value = |trial: &TrialRecord| trial.result().and_then(|result| result.value(spec.metric));
    let total = measured.pairs(&confirms(&found.kept), &[], &found.kept, &value);
    let medians = medians(&total.into_iter().flatten().collect::<Vec<_>>());
    let candidates: Vec<TuneRow<GuestCandidate>> = (0..spec.candidates.len())
        .map(|number| row(&measured, number, &found))
        .collect();
    let bounds = candidates
        .iter()
        .filter_map(|row| Some(1.0 - row.screening?.ratio.interval?.low));
    let is_undecided = found.next.is_some() || found.is_out_of_time;
    Some(GuestTuneFindings {
        metric: spec.metric,
        before: medians.map(|[before, _]| before),
        after: medians.map(|[_, after]| after),
        guards: if found.kept.is_empty() {
            Vec::new()
        } else {
            guards(&measured, &found.kept)
        },
        at_most: bounds.reduce(f64::max).filter(|_| found.kept.is_empty()),
        baseline: measured.baseline.set.clone(),
        tuned: measured.settings(&found.kept),
        job_notes: spec.job_notes.clone(),
        like: spec.like.clone(),
        rounds: measured.round_count(),
        boots: measured.boots(),
        second_screening: second_screening(measured.spec, &candidates),
        outcome: TuneOutcome {
            total: measured
                .series(&confirms(&found.kept), &[], &found.kept)
                .comparison()
                .filter(|_| !found.kept.is_empty()),
            candidates,
            not_tried: spec.not_tried.clone(),
            ended: is_undecided.then(|| OUT_OF_TIME.to_owned()),
            seconds: measured.seconds,
        },
    })
}

fn second_screening(
    spec: &GuestTuneSpec,
    rows: &[TuneRow<GuestCandidate>],
) -> Option<SecondScreening> {
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
    let screened: Vec<&TuneRow<GuestCandidate>> = screened.collect();
    let name = |row: &&TuneRow<GuestCandidate>| row.candidate.name.clone();
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

fn row(measured: &Measured<'_>, number: usize, found: &InterimResult) -> TuneRow<GuestCandidate> {
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
    let why = match screening.decision() {
        Some(Decision::Unmeasurable) => {
            Some("the workload gave no value of this metric".to_owned())
        }
        Some(Decision::Harms) => Some(format!(
            "each of the first {HARMED_PAIRS} rounds cost over 5 % more"
        )),
        _ => found.left_out.get(&number).cloned(),
    };
    TuneRow {
        candidate: measured.spec.candidates[number].clone(),
        verdict: match refused {
            Some(_) => TuneVerdict::Refused,
            None => verdict(&screening, number, found),
        },
        why: refused.or(why),
        beside: (!beside.is_empty()).then(|| measured.spec.name(&beside)),
        screening: screening.comparison(),
        confirmation: confirmation.comparison(),
    }
}

/// Returns the decision on a candidate that could be booted.
fn verdict(screening: &PairSeries, number: usize, found: &InterimResult) -> TuneVerdict {
    let screened = screening.decision();
    let decided = [screened, found.failed.get(&number).copied()];
    let is_rejected = decided
        .iter()
        .any(|decided| matches!(decided, Some(Decision::Fails | Decision::Harms)));
    let is_left_out = found.left_out.contains_key(&number) && screened == Some(Decision::Helps);
    // Interrupted in its first pair.
    let has_no_figure = screened.is_none() && screening.comparison().is_none();
    match () {
        () if has_no_figure => TuneVerdict::NotMeasured,
        () if found.kept.contains(&number) => TuneVerdict::Keep,
        () if decided.contains(&Some(Decision::Undecided)) => TuneVerdict::Inconclusive,
        () if is_rejected || is_left_out => TuneVerdict::Reject,
        () => TuneVerdict::Inconclusive,
    }
}

/// Returns other figures that changed with the kept settings: the tail of latencies, and the host CPU time of
/// requests.
fn guards(measured: &Measured<'_>, kept: &[usize]) -> Vec<BeforeAfter> {
    let per_request = match measured.spec.metric.workload() {
        WorkloadName::Disk | WorkloadName::Fio => " per request",
        _ => "",
    };
    let billions = |trial: &TrialRecord| {
        let operations = trial.result()?.operations.iter();
        let count: u64 = operations.map(|operation| operation.latency.count()).sum();
        Some(count.max(1) as f64 / 1e9)
    };
    let tail = |trial: &TrialRecord| {
        let result = trial.result()?;
        result
            .value(Metric::DiskTail)
            .or(result.value(Metric::FioTail))
    };
    let vcpus = |trial: &TrialRecord| Some(trial.cpu_seconds.as_ref()?.guest / billions(trial)?);
    let qemu = |trial: &TrialRecord| Some(trial.cpu_seconds.as_ref()?.qemu / billions(trial)?);
    let figures: [(String, Figure<'_>); 3] = [
        ("p99 request latency".to_owned(), &tail),
        (format!("CPU time of the vCPUs{per_request}"), &vcpus),
        (
            format!("CPU time of QEMU's other threads{per_request}"),
            &qemu,
        ),
    ];
    let guard = |(name, figure): (String, Figure<'_>)| {
        let pairs = measured.pairs(&confirms(kept), &[], kept, figure);
        before_after(
            &name,
            "ns",
            &pairs.into_iter().flatten().collect::<Vec<_>>(),
        )
    };
    figures.into_iter().filter_map(guard).collect()
}
