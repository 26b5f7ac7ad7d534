//! Tuning of a guest's workload: the next measurement, and the findings so far.

mod measured;
#[cfg(test)]
mod simulated;

use crate::pairs::{Decision, HARMED_PAIRS, OUT_OF_TIME, PairSeries, before_after, medians};
use measured::{
    Figure, InterimResult, Measured, Screening, Standing, confirms, seems_to_help, sorted, without,
};
use std::collections::BTreeSet;
use vmtax_findings::{
    BeforeAfter, GuestTuneFindings, SecondScreening, TuneOutcome, TuneRow, TuneVerdict,
};
use vmtax_model::{
    Better, GuestCandidate, GuestTunePart, GuestTunePhase, GuestTuneSpec, GuestTuneStep, Metric,
    Plan, TrialRecord, WorkloadName,
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
            Some(Better::Lower),
            &pairs.into_iter().flatten().collect::<Vec<_>>(),
        )
    };
    figures.into_iter().filter_map(guard).collect()
}

/// The parts of the time after which no round of a phase begins: the rest is for what comes after.
const SCREENING: f64 = 0.55;
/// Part of the time for screening beside a change that is confirmed: it stays, whatever there is time for.
const BESIDE: f64 = 0.7;
const COMBINATION: f64 = 0.75;
/// Rounds after which most confirmations are decided.
const CONFIRMATION_ROUNDS: f64 = 10.0;

/// The next step, from what was recorded so far; `None` where nothing is left to measure, or no time.
pub fn next_guest_step(plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneStep> {
    outcome(&Measured::new(plan, trials)?).next
}

/// Returns the findings so far, and the next step to measure.
fn outcome(measured: &Measured<'_>) -> InterimResult {
    let mut outcome = InterimResult::default();
    if let Some(set) = chosen(measured, &mut outcome) {
        confirm(measured, set, &mut outcome);
    }
    outcome
}

/// Returns the candidates to confirm; `None` if something is left to measure first.
fn chosen(measured: &Measured<'_>, outcome: &mut InterimResult) -> Option<Vec<usize>> {
    let (mut base, mut phase) = (Vec::new(), GuestTunePhase::Screening);
    loop {
        if outcome.bases.last() != Some(&base) {
            outcome.bases.push(base.clone());
        }
        let candidates = open(measured, outcome);
        let is_second = phase == GuestTunePhase::SecondScreening;
        let before = outcome.bases.split_last().map_or(&[][..], |(_, all)| all);
        let screening = Screening::new(measured, phase, &base, before, candidates);
        let until_s = until_s(measured, screening_part(phase, &outcome.kept), &base);
        if is_second && !screening.has_time(until_s) {
            outcome.is_out_of_time = true;
            return Some(base);
        }
        match screening.standing() {
            // One that stood out was not confirmed: others are decided by all rounds.
            _ if base.is_empty() && !outcome.failed.is_empty() => {}
            Standing::Open(candidates) => screening.go_on(candidates, until_s, outcome),
            Standing::Out(first) if base.is_empty() => {
                confirm_first(measured, first, outcome);
                if outcome.next.is_none() {
                    if !outcome.failed.contains_key(&first) {
                        base = vec![first];
                    }
                    continue;
                }
            }
            Standing::Out(one) => {
                base = sorted(&base, one);
                continue;
            }
            Standing::Nothing => {}
        }
        let helped = screening.helped(until_s, outcome)?;
        let set = combined(measured, &base, helped, outcome)?;
        if set == base || is_second {
            return Some(set);
        }
        (base, phase) = (set, GuestTunePhase::SecondScreening);
    }
}

/// Returns the part of the time after which no round of a screening begins.
fn screening_part(phase: GuestTunePhase, kept: &[usize]) -> f64 {
    match phase {
        GuestTunePhase::SecondScreening => 1.0,
        _ if kept.is_empty() => SCREENING,
        _ => BESIDE,
    }
}

/// The change that stands out is confirmed before the others are screened to the end: what most people look for is known early.
fn confirm_first(measured: &Measured<'_>, first: usize, outcome: &mut InterimResult) {
    match measured
        .series(&confirms(&[first]), &[], &[first])
        .decision()
    {
        // It stays if there is no time for the others.
        Some(Decision::Helps) => outcome.kept = vec![first],
        None if has_time(measured, SCREENING) => {
            outcome.confirmed = vec![first];
            let configurations = vec![vec![first], Vec::new()];
            outcome.measure(GuestTunePhase::Confirmation, configurations);
        }
        None => {}
        Some(decided) => {
            let why = "no faster in the confirmation".to_owned();
            outcome.fail(first, decided, why);
        }
    }
}

/// When the last round of a phase may begin at the latest, s: after this part of the time, and so that there is time to
/// confirm `set` and one more.
fn until_s(measured: &Measured<'_>, part: f64, set: &[usize]) -> f64 {
    let budget_s = f64::from(measured.spec.budget_s);
    let configurations = if set.is_empty() { 2 } else { set.len() + 3 };
    let confirmation_s = measured.boot_s * configurations as f64 * CONFIRMATION_ROUNDS;
    (budget_s * part).min(budget_s - confirmation_s)
}

fn has_time(measured: &Measured<'_>, part: f64) -> bool {
    measured.seconds < f64::from(measured.spec.budget_s) * part
}

/// The candidates that may help beside the last base: those that were neither shown to harm nor to add nothing.
fn open(measured: &Measured<'_>, outcome: &mut InterimResult) -> Vec<usize> {
    let Some((base, before)) = outcome.bases.split_last() else {
        return Vec::new();
    };
    let harms = |decision| matches!(decision, Some(Decision::Harms | Decision::Unmeasurable));
    let is_open = |one: &usize| {
        let harmed = before
            .iter()
            .any(|earlier| harms(measured.screening(earlier, *one).decision()));
        !base.contains(one)
            && !harmed
            && !outcome.failed.contains_key(one)
            && measured.refused(*one).is_none()
    };
    let mut open: Vec<usize> = (0..measured.spec.candidates.len())
        .filter(is_open)
        .collect();
    let needless: Vec<(usize, String)> = open
        .iter()
        .filter_map(|one| Some((*one, needless(measured, base, *one)?)))
        .collect();
    open.retain(|one| needless.iter().all(|(other, _)| other != one));
    // What was said of it beside others holds no more.
    outcome
        .left_out
        .retain(|one, _| !open.contains(one) && !base.contains(one));
    outcome.left_out.extend(needless);
    open
}

/// Why a candidate is nothing beside others; `None` where it may be something.
fn needless(measured: &Measured<'_>, set: &[usize], candidate: usize) -> Option<String> {
    let spec = measured.spec;
    let own = &spec.candidates[candidate].set;
    let contradicts = |other: &&usize| {
        let theirs = &spec.candidates[**other].set;
        own.iter()
            .any(|(key, value)| theirs.get(key).is_some_and(|other| other != value))
    };
    if let Some(other) = set.iter().find(contradicts) {
        let by = &spec.candidates[*other].name;
        return Some(format!("mutually exclusive with {by}, which is faster"));
    }
    let is_in_it = measured.settings(&sorted(set, candidate)) == measured.settings(set);
    (is_in_it && !set.is_empty()).then(|| contained(spec, set))
}

/// Why a candidate is left out whose settings a set has.
fn contained(spec: &GuestTuneSpec, set: &[usize]) -> String {
    format!("{} has it", spec.name(set))
}

/// `base` with those of the candidates that help beside it and each other, added one at a time; `None` where something is left to
/// measure.
fn combined(
    measured: &Measured<'_>,
    base: &[usize],
    helped: Vec<usize>,
    outcome: &mut InterimResult,
) -> Option<Vec<usize>> {
    let mut set = base.to_vec();
    for candidate in helped {
        if let Some(why) = needless(measured, &set, candidate) {
            outcome.left_out.insert(candidate, why);
            continue;
        }
        // Beside the base the screening has measured it.
        if set == base || helps_beside(measured, &set, candidate, outcome)? {
            set = without_contained(measured, sorted(&set, candidate), outcome);
        }
    }
    Some(set)
}

/// Returns true if a candidate helps beside a set; `None` where that is left to measure.
fn helps_beside(
    measured: &Measured<'_>,
    set: &[usize],
    candidate: usize,
    outcome: &mut InterimResult,
) -> Option<bool> {
    let with = sorted(set, candidate);
    let is_combination = |part: &GuestTunePart| part.phase == GuestTunePhase::Combination;
    let beside = measured.spec.name(set);
    match seems_to_help(&measured.series(&is_combination, set, &with)) {
        Some(Decision::Helps) => return Some(true),
        Some(decided) => outcome.fail(candidate, decided, format!("no faster beside {beside}")),
        None if measured.seconds < until_s(measured, COMBINATION, set) => {
            outcome.measure(GuestTunePhase::Combination, vec![set.to_vec(), with]);
            return None;
        }
        None => {
            outcome.is_out_of_time = true;
            let why = format!("time limit reached before it was decided beside {beside}");
            outcome.fail(candidate, Decision::Undecided, why);
        }
    }
    Some(false)
}

/// Returns a set without the changes that others of it contain: what these set as well is no change of its own any more.
fn without_contained(
    measured: &Measured<'_>,
    mut set: Vec<usize>,
    outcome: &mut InterimResult,
) -> Vec<usize> {
    let is_contained =
        |set: &[usize], one| measured.settings(&without(set, one)) == measured.settings(set);
    while let Some(one) = set.iter().copied().find(|one| is_contained(&set, *one)) {
        set = without(&set, one);
        outcome.left_out.insert(one, contained(measured.spec, &set));
    }
    set
}

/// Measures all against none, and all against all without one, for each; where one does not help, the others again without it.
fn confirm(measured: &Measured<'_>, mut set: Vec<usize>, outcome: &mut InterimResult) {
    let first = std::mem::take(&mut outcome.kept);
    while !set.is_empty() {
        outcome.confirmed.clone_from(&set);
        // What was confirmed first stays where there is no time for more.
        outcome.kept = if first.iter().all(|one| set.contains(one)) {
            first.clone()
        } else {
            Vec::new()
        };
        let decision = |other: &[usize]| measured.series(&confirms(&set), other, &set).decision();
        let total = decision(&[]);
        let each: Vec<(usize, Option<Decision>)> = match set.len() {
            1 => vec![(set[0], total)],
            _ => set
                .iter()
                .map(|one| (*one, decision(&without(&set, *one))))
                .collect(),
        };
        if total.is_none() || each.iter().any(|(_, decided)| decided.is_none()) {
            return confirm_further(measured, set, total, &each, outcome);
        }
        // Of several that seem to add nothing, each may stand for the other: the one that adds least goes.
        let adds = |one: usize| {
            measured
                .series(&confirms(&set), &without(&set, one), &set)
                .median()
        };
        let failed = each
            .into_iter()
            .filter_map(|(one, decided)| Some((one, decided?)))
            .filter(|(_, decided)| *decided != Decision::Helps);
        let Some((least, decided)) = failed.max_by(|a, b| adds(a.0).total_cmp(&adds(b.0))) else {
            outcome.kept = if total == Some(Decision::Helps) {
                set
            } else {
                Vec::new()
            };
            return;
        };
        let others = without(&set, least);
        let why = match others.is_empty() {
            true => "no faster in the confirmation".to_owned(),
            false => format!(
                "no faster beside {} in the confirmation",
                measured.spec.name(&others)
            ),
        };
        outcome.fail(least, decided, why);
        set = others;
    }
}

/// Measures once more what is not decided of a confirmation, if there is time: the `total`, and `each` without one.
fn confirm_further(
    measured: &Measured<'_>,
    set: Vec<usize>,
    total: Option<Decision>,
    each: &[(usize, Option<Decision>)],
    outcome: &mut InterimResult,
) {
    if !has_time(measured, 1.0) {
        outcome.is_out_of_time = true;
        return;
    }
    let open: BTreeSet<Vec<usize>> = each
        .iter()
        .filter(|(_, decided)| decided.is_none())
        .map(|(one, _)| without(&set, *one))
        .filter(|others| !others.is_empty())
        .collect();
    let none = total.is_none().then(Vec::new);
    let configurations = [set].into_iter().chain(none).chain(open);
    outcome.measure(GuestTunePhase::Confirmation, configurations.collect());
}
