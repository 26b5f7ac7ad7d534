//! Steps of a guest's tuning: all candidates alone; the one that saves most again, as soon as it stands out; the
//! others beside it; those that help one more at a time; the remaining ones once more beside all of these, since one
//! may mask another; the kept ones again, on boots that were not used to choose them.

use super::measured::{Measured, confirms, sorted};
use super::outcome::{InterimResult, LeftOut};
use super::screening::{Screening, Standing, seems_to_help};
use crate::pairs::Decision;
use std::collections::BTreeSet;
use vmtax_model::{GuestTunePhase, GuestTuneStep, Plan, TrialRecord, Variant};

/// The parts of the time after which no round of a phase begins: the rest is for what comes after.
const SCREENING: f64 = 0.55;
/// Part of the time for screening beside a change that is confirmed: it stays, whatever there is time for.
const BESIDE: f64 = 0.7;
const COMBINATION: f64 = 0.75;
/// Rounds after which most confirmations are decided.
const CONFIRMATION_ROUNDS: f64 = 10.0;

/// The next step, from what was recorded so far; `None` where nothing is left to measure, or no time.
pub fn next_guest_step(plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneStep> {
    let measured = Measured::new(plan.guest_tune()?, trials);
    outcome(&measured, plan.variants.first()?).next
}

/// Returns the findings so far, and the next step to measure.
pub(super) fn outcome(measured: &Measured<'_>, baseline: &Variant) -> InterimResult {
    let mut outcome = InterimResult::default();
    if let Some(set) = chosen(measured, baseline, &mut outcome) {
        confirm(measured, set, &mut outcome);
    }
    outcome
}

/// Returns the candidates to confirm; `None` if something is left to measure first.
fn chosen(
    measured: &Measured<'_>,
    baseline: &Variant,
    outcome: &mut InterimResult,
) -> Option<Vec<usize>> {
    let (mut base, mut phase) = (Vec::new(), GuestTunePhase::Screening);
    loop {
        if outcome.bases.last() != Some(&base) {
            outcome.bases.push(base.clone());
        }
        let candidates = open(measured, baseline, outcome);
        let is_second = phase == GuestTunePhase::SecondScreening;
        let before = outcome
            .bases
            .get(..outcome.bases.len() - 1)
            .unwrap_or_default();
        let screening = Screening::new(measured, phase, &base, before, candidates);
        let until = match () {
            () if is_second => 1.0,
            () if outcome.kept.is_empty() => SCREENING,
            () => BESIDE,
        };
        let until_s = until_s(measured, until, &base);
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
        if outcome.next.is_some() {
            return None;
        }
        let helped = screening.helped(until_s, outcome);
        if outcome.next.is_some() {
            return None;
        }
        let set = combined(measured, baseline, &base, helped, outcome)?;
        if set == base || is_second {
            return Some(set);
        }
        (base, phase) = (set, GuestTunePhase::SecondScreening);
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
            outcome.next = Some(GuestTuneStep {
                phase: GuestTunePhase::Confirmation,
                configurations,
            });
        }
        None => {}
        Some(decided) => {
            outcome.failed.insert(first, decided);
            outcome
                .left_out
                .insert(first, LeftOut::NotConfirmed { beside: None });
        }
    }
}

/// When the last round of a phase may begin at the latest, s: after this part of the time, and so that there is time to confirm `set` and
/// one more.
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
fn open(measured: &Measured<'_>, baseline: &Variant, outcome: &mut InterimResult) -> Vec<usize> {
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
    let needless: Vec<(usize, LeftOut)> = open
        .iter()
        .filter_map(|one| Some((*one, needless(measured, baseline, base, *one)?)))
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
fn needless(
    measured: &Measured<'_>,
    baseline: &Variant,
    set: &[usize],
    candidate: usize,
) -> Option<LeftOut> {
    let spec = measured.spec;
    let own = &spec.candidates[candidate].set;
    let contradicts = |other: &&usize| {
        let theirs = &spec.candidates[**other].set;
        own.iter()
            .any(|(key, value)| theirs.get(key).is_some_and(|other| other != value))
    };
    if let Some(other) = set.iter().find(contradicts) {
        return Some(LeftOut::Excluded {
            by: spec.candidates[*other].name.clone(),
        });
    }
    let is_in_it = spec.settings(baseline, &sorted(set, candidate)) == spec.settings(baseline, set);
    (is_in_it && !set.is_empty()).then(|| LeftOut::Contained {
        beside: spec.name(set),
    })
}

/// `base` with those of the candidates that help beside it and each other, added one at a time; `None` where something is left to
/// measure.
fn combined(
    measured: &Measured<'_>,
    baseline: &Variant,
    base: &[usize],
    helped: Vec<usize>,
    outcome: &mut InterimResult,
) -> Option<Vec<usize>> {
    let spec = measured.spec;
    let settings = |numbers: &[usize]| spec.settings(baseline, numbers);
    let mut set = base.to_vec();
    for candidate in helped {
        if let Some(why) = needless(measured, baseline, &set, candidate) {
            outcome.left_out.insert(candidate, why);
            continue;
        }
        let with = sorted(&set, candidate);
        // Beside the base the screening has measured it.
        if set != base {
            let series = measured.series(
                &|part| part.phase == GuestTunePhase::Combination,
                &set,
                &with,
            );
            match seems_to_help(&series) {
                Some(Decision::Helps) => {}
                None if measured.seconds < until_s(measured, COMBINATION, &set) => {
                    let configurations = vec![set, with];
                    outcome.next = Some(GuestTuneStep {
                        phase: GuestTunePhase::Combination,
                        configurations,
                    });
                    return None;
                }
                decided => {
                    outcome.is_out_of_time |= decided.is_none();
                    outcome
                        .failed
                        .insert(candidate, decided.unwrap_or(Decision::Undecided));
                    let beside = spec.name(&set);
                    let why = if decided.is_none() {
                        LeftOut::Undecided { beside }
                    } else {
                        LeftOut::NoFaster { beside }
                    };
                    outcome.left_out.insert(candidate, why);
                    continue;
                }
            }
        }
        set = with;
        // What the new one sets as well is no change of its own any more.
        while let Some(other) = set
            .iter()
            .copied()
            .find(|other| settings(&without(&set, *other)) == settings(&set))
        {
            outcome.left_out.insert(
                other,
                LeftOut::Contained {
                    beside: spec.name(&without(&set, other)),
                },
            );
            set = without(&set, other);
        }
    }
    Some(set)
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
        let open: BTreeSet<Vec<usize>> = each
            .iter()
            .filter(|(_, decided)| decided.is_none())
            .map(|(one, _)| without(&set, *one))
            .collect();
        if total.is_none() || !open.is_empty() {
            if has_time(measured, 1.0) {
                let none = total.is_none().then(Vec::new);
                let others = none
                    .into_iter()
                    .chain(open.into_iter().filter(|other| !other.is_empty()));
                let configurations = [set].into_iter().chain(others).collect();
                outcome.next = Some(GuestTuneStep {
                    phase: GuestTunePhase::Confirmation,
                    configurations,
                });
            } else {
                outcome.is_out_of_time = true;
            }
            return;
        }
        let failed = each
            .iter()
            .filter_map(|(one, decided)| Some((*one, (*decided)?)));
        let failed: Vec<(usize, Decision)> = failed
            .filter(|(_, decided)| *decided != Decision::Helps)
            .collect();
        if failed.is_empty() {
            outcome.kept = if total == Some(Decision::Helps) {
                set
            } else {
                Vec::new()
            };
            return;
        }
        // Of several that seem to add nothing, each may stand for the other: the one that adds least goes.
        let adds = |one: usize| {
            measured
                .series(&confirms(&set), &without(&set, one), &set)
                .median()
        };
        let Some((least, decided)) = failed
            .into_iter()
            .max_by(|a, b| adds(a.0).total_cmp(&adds(b.0)))
        else {
            return;
        };
        let others = without(&set, least);
        let beside = (!others.is_empty()).then(|| measured.spec.name(&others));
        outcome
            .left_out
            .insert(least, LeftOut::NotConfirmed { beside });
        outcome.failed.insert(least, decided);
        set = others;
    }
}

/// A set without one of it.
pub(super) fn without(set: &[usize], one: usize) -> Vec<usize> {
    set.iter().copied().filter(|other| *other != one).collect()
}
