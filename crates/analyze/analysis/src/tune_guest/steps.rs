//! What to measure next on a guest: all candidates alone; those that help one more at a time; what is left anew, on boots that
//! chose none of it.

use super::measured::{Measured, confirms};
use crate::pairs::{Decision, MIN_EFFECT, Series};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{GuestTunePhase, GuestTuneStep, Plan, TrialRecord, Variant};

/// The parts of the time after which no round of a phase begins: the rest is for what comes after.
const SCREENING: f64 = 0.55;
const COMBINATION: f64 = 0.75;
/// Rounds after which the half that saves least is dropped, where there is no time for more rounds of all (successive halving).
const HALVINGS: [usize; 2] = [2, 4];
/// Rounds that all candidates get where there is time.
const ROUNDS: f64 = 8.0;

/// What the measurements so far lead to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What to measure next; `None` where nothing is left, or no time.
    pub next: Option<GuestTuneStep>,
    /// The candidates that are confirmed.
    pub kept: Vec<usize>,
    /// What was to be confirmed last.
    pub confirmed: Vec<usize>,
    /// Those that are left out without being slower, with the reason.
    pub left_out: BTreeMap<usize, String>,
    /// Those that are not faster beside others, by the decision that says so.
    pub failed: BTreeMap<usize, Decision>,
    /// Whether the time was over before all was decided.
    pub is_out_of_time: bool,
}

/// The next step, from what was recorded so far; `None` where nothing is left to measure, or no time.
pub fn next_guest_step(plan: &Plan, trials: &[TrialRecord]) -> Option<GuestTuneStep> {
    let measured = Measured::new(plan.guest_tune()?, trials);
    outcome(&measured, plan.variants.first()?).next
}

/// What was found so far, and what is left to measure.
pub(super) fn outcome(measured: &Measured<'_>, baseline: &Variant) -> Outcome {
    let mut outcome = Outcome::default();
    let helped = screened(measured, &mut outcome);
    if outcome.next.is_some() {
        return outcome;
    }
    let set = combined(measured, baseline, helped, &mut outcome);
    if outcome.next.is_some() {
        return outcome;
    }
    confirm(measured, set, &mut outcome);
    outcome
}

fn has_time(measured: &Measured<'_>, part: f64) -> bool {
    measured.seconds < f64::from(measured.spec.budget_s) * part
}

/// The candidates that help alone, those that help most first.
fn screened(measured: &Measured<'_>, outcome: &mut Outcome) -> Vec<usize> {
    let all: Vec<Series> = (0..measured.spec.candidates.len()).map(|number| measured.screening(number)).collect();
    let dropped = dropped(measured, &all);
    let (mut open, mut helped): (Vec<Vec<usize>>, Vec<(usize, f64)>) = Default::default();
    for (candidate, series) in all.iter().enumerate() {
        match series.decision() {
            _ if measured.refused(candidate).is_some() => {}
            Some(Decision::Helps) if series.median() > -MIN_EFFECT.ln_1p() => {
                outcome.left_out.insert(candidate, "faster by less than 2 %".to_owned());
            }
            Some(Decision::Helps) => helped.push((candidate, series.median())),
            None if dropped.contains_key(&candidate) => {
                let rounds = dropped[&candidate];
                outcome.left_out.insert(candidate, format!("dropped after {rounds} rounds: others save more"));
            }
            None => open.push(vec![candidate]),
            Some(_) => {}
        }
    }
    if !open.is_empty() {
        if has_time(measured, SCREENING) {
            let configurations = [vec![Vec::new()], open].concat();
            outcome.next = Some(GuestTuneStep { phase: GuestTunePhase::Screening, configurations });
        } else {
            outcome.is_out_of_time = true;
        }
    }
    helped.sort_by(|a, b| a.1.total_cmp(&b.1));
    helped.into_iter().map(|(candidate, _)| candidate).collect()
}

/// The candidates that are dropped early, with the rounds after which they are: of those that boot, half each time.
fn dropped(measured: &Measured<'_>, all: &[Series]) -> BTreeMap<usize, usize> {
    let mut dropped = BTreeMap::new();
    if measured.first_round_s * ROUNDS <= f64::from(measured.spec.budget_s) * SCREENING {
        return dropped;
    }
    let boots = |candidate: &usize| measured.refused(*candidate).is_none();
    let mut left: Vec<usize> = (0..all.len()).filter(boots).collect();
    for rounds in HALVINGS {
        if left.iter().any(|candidate| all[*candidate].pairs() < rounds && all[*candidate].decision().is_none()) {
            break;
        }
        let rank = |candidate: usize| match all[candidate].logs.get(..rounds) {
            Some(first) => crate::estimate(first.to_vec()).median,
            None => f64::INFINITY,
        };
        left.sort_by(|a, b| rank(*a).total_cmp(&rank(*b)));
        let last = left.split_off(left.len().div_ceil(2));
        dropped.extend(last.into_iter().map(|candidate| (candidate, rounds)));
    }
    dropped
}

/// Those of the candidates that help beside each other, added one at a time.
fn combined(measured: &Measured<'_>, baseline: &Variant, helped: Vec<usize>, outcome: &mut Outcome) -> Vec<usize> {
    let spec = measured.spec;
    let settings = |numbers: &[usize]| spec.settings(baseline, numbers);
    let mut set: Vec<usize> = Vec::new();
    for candidate in helped {
        let own = &spec.candidates[candidate];
        let contradicts = |other: &&usize| {
            let theirs = &spec.candidates[**other].set;
            own.set.iter().any(|(key, value)| theirs.get(key).is_some_and(|other| other != value))
        };
        if let Some(other) = set.iter().find(contradicts) {
            let why = format!("{} excludes it, and helps more", spec.candidates[*other].name);
            outcome.left_out.insert(candidate, why);
            continue;
        }
        let with = sorted(&set, candidate);
        if settings(&with) == settings(&set) {
            outcome.left_out.insert(candidate, format!("{} has it", spec.name(&set)));
            continue;
        }
        if !set.is_empty() {
            let series = measured.series(&|part| part.phase == GuestTunePhase::Combination, (&set, &with));
            match series.decision() {
                Some(Decision::Helps) => {}
                None if has_time(measured, COMBINATION) => {
                    let configurations = vec![set, with];
                    outcome.next = Some(GuestTuneStep { phase: GuestTunePhase::Combination, configurations });
                    return Vec::new();
                }
                decided => {
                    outcome.is_out_of_time |= decided.is_none();
                    outcome.failed.insert(candidate, decided.unwrap_or(Decision::Undecided));
                    let why = if decided.is_none() { "time limit reached before it was decided" } else { "no faster" };
                    outcome.left_out.insert(candidate, format!("{why} beside {}", spec.name(&set)));
                    continue;
                }
            }
        }
        set = with;
        // What the new one sets as well is no change of its own any more.
        while let Some(other) = set.iter().copied().find(|other| settings(&without(&set, *other)) == settings(&set)) {
            outcome.left_out.insert(other, format!("{} has it", spec.name(&without(&set, other))));
            set = without(&set, other);
        }
    }
    set
}

/// Measures all against none, and all against all without one, for each; where one does not help, the others anew without it.
fn confirm(measured: &Measured<'_>, mut set: Vec<usize>, outcome: &mut Outcome) {
    while !set.is_empty() {
        outcome.confirmed.clone_from(&set);
        let decision = |other: &[usize]| measured.series(&confirms(&set), (other, &set)).decision();
        let total = decision(&[]);
        let each: Vec<(usize, Option<Decision>)> = match set.len() {
            1 => vec![(set[0], total)],
            _ => set.iter().map(|one| (*one, decision(&without(&set, *one)))).collect(),
        };
        let open: BTreeSet<Vec<usize>> =
            each.iter().filter(|(_, decided)| decided.is_none()).map(|(one, _)| without(&set, *one)).collect();
        if total.is_none() || !open.is_empty() {
            if has_time(measured, 1.0) {
                let none = total.is_none().then(Vec::new);
                let others = none.into_iter().chain(open.into_iter().filter(|other| !other.is_empty()));
                let configurations = [set].into_iter().chain(others).collect();
                outcome.next = Some(GuestTuneStep { phase: GuestTunePhase::Confirmation, configurations });
            } else {
                outcome.is_out_of_time = true;
            }
            return;
        }
        let failed = each.iter().filter_map(|(one, decided)| Some((*one, (*decided)?)));
        let failed: Vec<(usize, Decision)> = failed.filter(|(_, decided)| *decided != Decision::Helps).collect();
        if failed.is_empty() {
            if total == Some(Decision::Helps) {
                outcome.kept = set;
            }
            return;
        }
        // Of several that seem to add nothing, each may stand for the other: the one that adds least goes.
        let adds = |one: usize| measured.series(&confirms(&set), (&without(&set, one), &set)).median();
        let Some((least, decided)) = failed.into_iter().max_by(|a, b| adds(a.0).total_cmp(&adds(b.0))) else { return };
        let others = without(&set, least);
        let why = match others.is_empty() {
            true => "no faster in the confirmation".to_owned(),
            false => format!("no faster beside {} in the confirmation", measured.spec.name(&others)),
        };
        outcome.left_out.insert(least, why);
        outcome.failed.insert(least, decided);
        set = others;
    }
}

fn sorted(set: &[usize], one: usize) -> Vec<usize> {
    let all: BTreeSet<usize> = set.iter().copied().chain([one]).collect();
    all.into_iter().collect()
}

/// A set without one of it.
pub(super) fn without(set: &[usize], one: usize) -> Vec<usize> {
    set.iter().copied().filter(|other| *other != one).collect()
}
