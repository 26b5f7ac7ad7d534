//! What to measure next on a guest: all candidates alone; the one that saves most anew, as soon as it stands out; the others beside
//! it; those that help one more at a time; what is left anew, on boots that chose none of it.

use super::first::first;
use super::measured::{Measured, confirms, sorted};
use crate::pairs::{Decision, MIN_EFFECT, Series};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{GuestTunePhase, GuestTuneStep, Plan, TrialRecord, Variant};

/// The parts of the time after which no round of a phase begins: the rest is for what comes after.
const SCREENING: f64 = 0.55;
/// The same beside a change that is confirmed: it stays, whatever there is time for.
const BESIDE: f64 = 0.7;
const COMBINATION: f64 = 0.75;
/// Rounds after which the half that saves least is dropped, where there is no time for more rounds of all (successive halving).
const HALVINGS: [usize; 2] = [2, 4];
/// Rounds that all have once the first is known.
const BEFORE_FIRST: usize = super::first::ROUNDS;
/// Rounds that all candidates get where there is time.
const ROUNDS: f64 = 8.0;

/// What the measurements so far lead to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What to measure next; `None` where nothing is left, or no time.
    pub next: Option<GuestTuneStep>,
    /// The candidates that are confirmed.
    pub kept: Vec<usize>,
    /// What the others are screened beside: the change that was confirmed first, or nothing.
    pub base: Vec<usize>,
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
    let alone: Vec<Series> = (0..measured.spec.candidates.len()).map(|one| measured.screening(&[], one)).collect();
    let boots = (0..alone.len()).filter(|one| measured.refused(*one).is_none()).collect();
    let dropped = dropped(measured, 0.0, boots, &HALVINGS.map(|rounds| (rounds, &alone[..])));
    if let Some(first) = first(measured, &dropped) {
        outcome.base = vec![first];
        match measured.series(&confirms(&[first]), (&[], &[first])).decision() {
            // It stays if there is no time for the others.
            Some(Decision::Helps) => outcome.kept = vec![first],
            None if has_time(measured, SCREENING) => {
                outcome.confirmed = vec![first];
                let configurations = vec![vec![first], Vec::new()];
                outcome.next = Some(GuestTuneStep { phase: GuestTunePhase::Confirmation, configurations });
                return outcome;
            }
            None => {}
            Some(decided) => {
                outcome.base.clear();
                outcome.failed.insert(first, decided);
                outcome.left_out.insert(first, "no faster in the confirmation".to_owned());
            }
        }
    }
    let helped = screened(measured, baseline, (&alone, &dropped), &mut outcome);
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

/// The candidates that help beside the first, those that help most first; `alone` is what was measured before it was found, and
/// what was dropped then.
fn screened(
    measured: &Measured<'_>,
    baseline: &Variant,
    alone: (&[Series], &BTreeMap<usize, usize>),
    outcome: &mut Outcome,
) -> Vec<usize> {
    let base = outcome.base.clone();
    let beside: Vec<Series> = (0..alone.0.len()).map(|one| measured.screening(&base, one)).collect();
    let mut needless_ones = Vec::new();
    let is_open = |one: &usize| {
        let is_decided = base.contains(one) || outcome.failed.contains_key(one);
        let harms = alone.0[*one].decision() == Some(Decision::Harms);
        !is_decided && !harms && measured.refused(*one).is_none()
    };
    let mut screened = Vec::new();
    for one in (0..beside.len()).filter(is_open) {
        match needless(measured, baseline, &base, one) {
            Some(why) => needless_ones.push((one, why)),
            None => screened.push(one),
        }
    }
    outcome.left_out.extend(needless_ones);
    let mut dropped = alone.1.clone();
    if !base.is_empty() {
        let left = screened.iter().copied().filter(|one| !dropped.contains_key(one)).collect();
        // What they saved before the first was known counts as well.
        let joined = |one: usize| {
            let before = alone.0[one].logs.iter().take(BEFORE_FIRST);
            Series { logs: before.chain(&beside[one].logs).copied().collect(), empty: beside[one].empty }
        };
        let joined: Vec<Series> = (0..beside.len()).map(joined).collect();
        let [early, late] = HALVINGS;
        let halvings = [0, early, late].map(|rounds| (BEFORE_FIRST + rounds, &joined[..]));
        let start_s = measured.end_s(&confirms(&base));
        dropped.extend(self::dropped(measured, start_s, left, &halvings));
    }
    let (mut open, mut helped): (Vec<Vec<usize>>, Vec<(usize, f64)>) = Default::default();
    for candidate in screened {
        let series = &beside[candidate];
        match series.decision() {
            Some(Decision::Helps) if series.median() > -MIN_EFFECT.ln_1p() => {
                outcome.left_out.insert(candidate, "faster by less than 2 %".to_owned());
            }
            Some(Decision::Helps) => helped.push((candidate, series.median())),
            None if dropped.contains_key(&candidate) => {
                let rounds = dropped[&candidate];
                outcome.left_out.insert(candidate, format!("dropped after {rounds} rounds: others save more"));
            }
            None if !series.can_help() => {
                let why = "it did not save time in too many rounds to be shown faster".to_owned();
                outcome.left_out.insert(candidate, why);
            }
            None => open.push(sorted(&base, candidate)),
            Some(_) => {}
        }
    }
    if !open.is_empty() {
        if has_time(measured, if outcome.kept.is_empty() { SCREENING } else { BESIDE }) {
            let configurations = [vec![base], open].concat();
            outcome.next = Some(GuestTuneStep { phase: GuestTunePhase::Screening, configurations });
        } else {
            outcome.is_out_of_time = true;
        }
    }
    helped.sort_by(|a, b| a.1.total_cmp(&b.1));
    helped.into_iter().map(|(candidate, _)| candidate).collect()
}

/// Why a candidate is nothing beside others; `None` where it may be something.
fn needless(measured: &Measured<'_>, baseline: &Variant, set: &[usize], candidate: usize) -> Option<String> {
    let spec = measured.spec;
    let own = &spec.candidates[candidate].set;
    let contradicts = |other: &&usize| {
        let theirs = &spec.candidates[**other].set;
        own.iter().any(|(key, value)| theirs.get(key).is_some_and(|other| other != value))
    };
    if let Some(other) = set.iter().find(contradicts) {
        return Some(format!("{} excludes it, and helps more", spec.candidates[*other].name));
    }
    let is_in_it = spec.settings(baseline, &sorted(set, candidate)) == spec.settings(baseline, set);
    (is_in_it && !set.is_empty()).then(|| format!("{} has it", spec.name(set)))
}

/// The candidates that are dropped early, with the rounds after which they are: half each time, by their costs after so many rounds.
/// `start_s` is when their screening began.
fn dropped(
    measured: &Measured<'_>,
    start_s: f64,
    mut left: Vec<usize>,
    halvings: &[(usize, &[Series])],
) -> BTreeMap<usize, usize> {
    let mut dropped = BTreeMap::new();
    let round_s = measured.boot_s * (left.len() + 1) as f64;
    if start_s + round_s * ROUNDS <= f64::from(measured.spec.budget_s) * SCREENING {
        return dropped;
    }
    for (rounds, all) in halvings {
        if left.iter().any(|candidate| all[*candidate].pairs() < *rounds && all[*candidate].decision().is_none()) {
            break;
        }
        let rank = |candidate: usize| match all[candidate].logs.get(..*rounds) {
            Some(first) => crate::estimate(first.to_vec()).median,
            None => f64::INFINITY,
        };
        left.sort_by(|a, b| rank(*a).total_cmp(&rank(*b)));
        let last = left.split_off(left.len().div_ceil(2));
        dropped.extend(last.into_iter().map(|candidate| (candidate, *rounds)));
    }
    dropped
}

/// Those of the candidates that help beside each other, added one at a time.
fn combined(measured: &Measured<'_>, baseline: &Variant, helped: Vec<usize>, outcome: &mut Outcome) -> Vec<usize> {
    let spec = measured.spec;
    let settings = |numbers: &[usize]| spec.settings(baseline, numbers);
    let mut set = outcome.base.clone();
    for candidate in helped {
        if let Some(why) = needless(measured, baseline, &set, candidate) {
            outcome.left_out.insert(candidate, why);
            continue;
        }
        let with = sorted(&set, candidate);
        // Beside the first alone the screening has measured it.
        if set != outcome.base {
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
    let first = std::mem::take(&mut outcome.kept);
    while !set.is_empty() {
        outcome.confirmed.clone_from(&set);
        // What was confirmed first stays where there is no time for more.
        outcome.kept = if first.iter().all(|one| set.contains(one)) { first.clone() } else { Vec::new() };
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
            outcome.kept = if total == Some(Decision::Helps) { set } else { Vec::new() };
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
    outcome.kept.clear();
}

/// A set without one of it.
pub(super) fn without(set: &[usize], one: usize) -> Vec<usize> {
    set.iter().copied().filter(|other| *other != one).collect()
}
