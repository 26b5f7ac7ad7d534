//! Measurements of a guest's tuning, as ratios of costs within the same round, and the result so far: the candidates that are
//! kept, and why others are not. And the screening of what is left beside what helps so far, which is nothing at first: what stands
//! out after a few rounds, what is dropped early, and what the sequential test says of the others.

use crate::compare::cost;
use crate::estimate::median_of;
use crate::pairs::{Decision, MAX_PAIRS, MIN_EFFECT, PairSeries};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::number::factor;
use vmtax_model::{
    GuestTunePart, GuestTunePhase, GuestTuneSpec, GuestTuneStep, Outcome, Plan, TrialRecord,
    Variant,
};

/// A figure of a trial.
pub(super) type Figure<'f> = &'f dyn Fn(&TrialRecord) -> Option<f64>;

/// The trials of a tuning.
pub(super) struct Measured<'a> {
    pub spec: &'a GuestTuneSpec,
    pub baseline: &'a Variant,
    /// By round and name of the configuration.
    trials: BTreeMap<(u32, &'a str), Vec<&'a TrialRecord>>,
    /// From the first trial's start to the last one's end, s.
    pub seconds: f64,
    /// Mean duration of a boot of the first round with its trial, s.
    pub boot_s: f64,
    /// Start and end of each round, s from the first trial's start.
    rounds_s: BTreeMap<u32, (f64, f64)>,
}

impl<'a> Measured<'a> {
    /// Returns the trials of a plan; `None` if it tunes no guest.
    pub fn new(plan: &'a Plan, trials: &'a [TrialRecord]) -> Option<Measured<'a>> {
        let (spec, baseline) = (plan.guest_tune()?, plan.variants.first()?);
        let mut by: BTreeMap<(u32, &str), Vec<&TrialRecord>> = BTreeMap::new();
        for trial in trials {
            by.entry((trial.round, trial.variant.as_str()))
                .or_default()
                .push(trial);
        }
        let mut rounds_s: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for trial in trials {
            let Ok(started) = trial.started.parse::<jiff::Timestamp>() else {
                continue;
            };
            let start = started.as_millisecond() as f64 / 1e3;
            let round = rounds_s.entry(trial.round).or_insert((start, start));
            *round = (round.0.min(start), round.1.max(start + trial.wall_s));
        }
        let first = rounds_s
            .values()
            .map(|round| round.0)
            .fold(f64::INFINITY, f64::min);
        rounds_s
            .values_mut()
            .for_each(|round| *round = (round.0 - first, round.1 - first));
        let seconds = rounds_s.values().map(|round| round.1).fold(0.0, f64::max);
        let boots = by.keys().filter(|(round, _)| *round == 0).count().max(1);
        let boot_s = rounds_s
            .get(&0)
            .map_or(0.0, |round| (round.1 - round.0) / boots as f64);
        Some(Measured {
            spec,
            baseline,
            trials: by,
            seconds,
            boot_s,
            rounds_s,
        })
    }

    /// Returns the settings of the guest with these candidates.
    pub fn settings(&self, candidates: &[usize]) -> BTreeMap<String, String> {
        self.spec.settings(self.baseline, candidates)
    }

    /// A configuration's figure in a round, the median of its trials; `None` where it was not measured, `Some(None)` where it has
    /// no such figure.
    fn value(&self, round: u32, name: &str, figure: Figure<'_>) -> Option<Option<f64>> {
        let trials = self.trials.get(&(round, name))?;
        let values: Vec<f64> = trials.iter().filter_map(|trial| figure(trial)).collect();
        Some((!values.is_empty()).then(|| median_of(values)))
    }

    /// The rounds of a part: of the one that is measured, those up to the next part.
    fn rounds(&self, number: usize) -> std::ops::Range<u32> {
        let first = self.spec.parts[number].first_round;
        let next = self.spec.parts.get(number + 1).map(|next| next.first_round);
        let last = self
            .trials
            .keys()
            .next_back()
            .map_or(0, |(round, _)| round.saturating_add(1));
        first..next.unwrap_or(last).min(first.saturating_add(MAX_PAIRS))
    }

    /// The values of two configurations in each round that measured both, in the parts that `of` accepts.
    pub fn pairs(
        &self,
        of: &dyn Fn(&GuestTunePart) -> bool,
        without: &[usize],
        with: &[usize],
        figure: Figure<'_>,
    ) -> Vec<Option<(f64, f64)>> {
        let names = (self.spec.name(without), self.spec.name(with));
        let has = |part: &GuestTunePart| {
            [without, with]
                .iter()
                .all(|one| part.configurations.iter().any(|c| c == one))
        };
        let parts = self.spec.parts.iter().enumerate();
        let parts = parts.filter(|(_, part)| of(part) && has(part));
        let pair = |round| {
            let value = |name: &str| self.value(round, name, figure);
            Some(value(&names.0)?.zip(value(&names.1)?))
        };
        parts
            .flat_map(|(number, _)| self.rounds(number))
            .filter_map(pair)
            .collect()
    }

    /// Returns the [`Measured::pairs`] of the deciding metric as logs of ratios of costs; `None` for a round that gave
    /// none.
    fn logs(
        &self,
        of: &dyn Fn(&GuestTunePart) -> bool,
        without: &[usize],
        with: &[usize],
    ) -> Vec<Option<f64>> {
        let metric = self.spec.metric;
        let value = |trial: &TrialRecord| trial.result().and_then(|result| result.value(metric));
        let log = |(without, with): (f64, f64)| {
            Some(cost(metric, with) - cost(metric, without)).filter(|l| l.is_finite())
        };
        self.pairs(of, without, with, &value)
            .into_iter()
            .map(|pair| pair.and_then(log))
            .collect()
    }

    /// Returns the logs of ratios as a series: rounds without a ratio are only counted.
    pub fn series(
        &self,
        of: &dyn Fn(&GuestTunePart) -> bool,
        without: &[usize],
        with: &[usize],
    ) -> PairSeries {
        self.logs(of, without, with).into_iter().collect()
    }

    /// A candidate beside `base`, against `base` alone.
    pub fn screening(&self, base: &[usize], candidate: usize) -> PairSeries {
        self.series(&screens, base, &sorted(base, candidate))
    }

    /// Returns the cost of a candidate beside `base`, against `base` alone, in each of the first rounds of a screening
    /// that were measured, as logs of ratios; `None` for a round that gave no figure.
    pub fn first_rounds(
        &self,
        base: &[usize],
        candidate: usize,
        rounds: usize,
    ) -> Vec<Option<f64>> {
        self.logs(&screens, base, &sorted(base, candidate))
            .into_iter()
            .take(rounds)
            .collect()
    }

    /// When the screening beside `base` began, s from the first trial's start: now, where it did not.
    pub fn start_s(&self, base: &[usize]) -> f64 {
        let mut parts = self.spec.parts.iter();
        let part = parts.find(|part| screens(part) && begins_with(part, base));
        part.and_then(|part| self.rounds_s.get(&part.first_round))
            .map_or(self.seconds, |round| round.0)
    }

    /// Returns the number of boots.
    pub fn boots(&self) -> u32 {
        self.trials.len() as u32
    }

    /// Returns the number of rounds with a trial.
    pub fn round_count(&self) -> u32 {
        let rounds: BTreeSet<u32> = self.trials.keys().map(|(round, _)| *round).collect();
        rounds.len() as u32
    }

    /// Why a candidate failed to boot, where it never gave a figure. A run that was interrupted says nothing about it.
    pub fn refused(&self, candidate: usize) -> Option<String> {
        let name = self.spec.name(&[candidate]);
        let of_candidate = self
            .trials
            .iter()
            .filter(|((_, variant), _)| *variant == name)
            .flat_map(|(_, all)| all);
        let is_interrupted = |trial: &TrialRecord| matches!(trial.outcome, Outcome::Interrupted);
        let mut failed = of_candidate
            .clone()
            .filter(|trial| !is_interrupted(trial))
            .filter_map(|trial| trial.failure());
        let gave_figures = of_candidate.clone().any(|trial| trial.result().is_some());
        failed.next().filter(|_| !gave_figures).map(str::to_owned)
    }
}

/// Returns a set without one of it.
pub(super) fn without(set: &[usize], one: usize) -> Vec<usize> {
    set.iter().copied().filter(|other| *other != one).collect()
}

/// A set with one more.
pub(super) fn sorted(set: &[usize], one: usize) -> Vec<usize> {
    let all: BTreeSet<usize> = set.iter().copied().chain([one]).collect();
    all.into_iter().collect()
}

/// Returns true if a part screens candidates.
fn screens(part: &GuestTunePart) -> bool {
    matches!(
        part.phase,
        GuestTunePhase::Screening | GuestTunePhase::SecondScreening
    )
}

/// Returns a function that is true for the parts that confirm this set of candidates.
pub(super) fn confirms(set: &[usize]) -> impl Fn(&GuestTunePart) -> bool + '_ {
    move |part| part.phase == GuestTunePhase::Confirmation && begins_with(part, set)
}

/// Returns true if this set of candidates is the first configuration of a part.
fn begins_with(part: &GuestTunePart, set: &[usize]) -> bool {
    let first = part.configurations.first();
    first.is_some_and(|first| first == set)
}

/// Result of the measurements so far.
#[derive(Debug, Default)]
pub(super) struct InterimResult {
    /// Next step to measure; `None` if nothing is left, or no time.
    pub next: Option<GuestTuneStep>,
    /// The candidates that are confirmed.
    pub kept: Vec<usize>,
    /// Sets of candidates beside which others were screened, in this order; the first is empty.
    pub bases: Vec<Vec<usize>>,
    /// Candidates of the last confirmation.
    pub confirmed: Vec<usize>,
    /// Those that are left out without being slower, with the reason.
    pub left_out: BTreeMap<usize, String>,
    /// Those that are not faster beside others, by the decision that says so.
    pub failed: BTreeMap<usize, Decision>,
    /// True if the time was over before everything was decided.
    pub is_out_of_time: bool,
}

impl InterimResult {
    /// Has these configurations measured next.
    pub fn measure(&mut self, phase: GuestTunePhase, configurations: Vec<Vec<usize>>) {
        self.next = Some(GuestTuneStep {
            phase,
            configurations,
        });
    }

    /// Leaves out a candidate that is not faster beside others, by this decision.
    pub fn fail(&mut self, candidate: usize, decision: Decision, why: String) {
        self.failed.insert(candidate, decision);
        self.left_out.insert(candidate, why);
    }
}

/// Rounds after which a change may stand out.
const STANDING_ROUNDS: usize = 3;
/// Largest log of a ratio of costs in each of these rounds with which a change stands out: it is confirmed at once.
const STANDS_OUT: f64 = -0.05;
/// Largest log of a ratio beside other changes, where it is not confirmed before others are screened beside it.
const STANDS_OUT_BESIDE: f64 = -0.1;
/// Rounds after which a change whose median saves nothing is dropped.
const HOPELESS_ROUNDS: usize = 4;
/// Rounds after which the half that saves least is dropped, where there is no time for more rounds of all, and in the
/// second screening (successive halving).
const HALVINGS: [usize; 2] = [2, 4];
/// Rounds that all candidates get where there is time.
const ROUNDS: f64 = 8.0;

/// A screening of candidates beside others.
pub(super) struct Screening<'a> {
    measured: &'a Measured<'a>,
    phase: GuestTunePhase,
    base: &'a [usize],
    /// Candidates that are screened.
    candidates: Vec<usize>,
    /// Measured log ratios, by candidate.
    series: BTreeMap<usize, PairSeries>,
    /// Log ratios of the rounds that had each candidate beside fewer others.
    earlier: BTreeMap<usize, Vec<f64>>,
}

/// Result of the first rounds: a candidate that stands out, or none.
pub(super) enum Standing {
    /// This candidate stands out.
    Out(usize),
    /// One of these may.
    Open(Vec<usize>),
    /// No candidate stands out.
    Nothing,
}

impl<'a> Screening<'a> {
    pub fn new(
        measured: &'a Measured<'a>,
        phase: GuestTunePhase,
        base: &'a [usize],
        before: &[Vec<usize>],
        candidates: Vec<usize>,
    ) -> Screening<'a> {
        let series = candidates
            .iter()
            .map(|one| (*one, measured.screening(base, *one)))
            .collect();
        let logs = |one: usize| {
            before
                .iter()
                .flat_map(move |base| measured.screening(base, one).logs)
        };
        let earlier = candidates
            .iter()
            .map(|one| (*one, logs(*one).collect()))
            .collect();
        Screening {
            measured,
            phase,
            base,
            candidates,
            series,
            earlier,
        }
    }

    /// Returns the candidate that stands out after the first rounds: of several the one that saves most. Later
    /// measurements do not change it.
    pub fn standing(&self) -> Standing {
        let threshold = if self.base.is_empty() {
            STANDS_OUT
        } else {
            STANDS_OUT_BESIDE
        };
        let mut standing: Vec<(usize, Vec<f64>)> = Vec::new();
        let mut open = Vec::new();
        for &candidate in &self.candidates {
            let rounds = self
                .measured
                .first_rounds(self.base, candidate, STANDING_ROUNDS);
            let is_short = rounds.len() < STANDING_ROUNDS;
            let saving = rounds
                .into_iter()
                .map(|log| log.filter(|log| *log < threshold));
            match saving.collect::<Option<Vec<f64>>>() {
                Some(_) if is_short => open.push(candidate),
                Some(logs) => standing.push((candidate, logs)),
                None => {}
            }
        }
        if !open.is_empty() {
            return Standing::Open(open);
        }
        let median = |logs: &[f64]| median_of(logs.iter().copied());
        let best = standing
            .iter()
            .min_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
        best.map_or(Standing::Nothing, |(best, of_best)| {
            Standing::Out(self.simplest_part(*best, of_best, &standing))
        })
    }

    /// Returns the smallest part of the best change that saves as much, which is the simpler change: whether the rest helps is
    /// asked beside it. The change itself if there is none.
    fn simplest_part(&self, best: usize, of_best: &[f64], all: &[(usize, Vec<f64>)]) -> usize {
        let set = |candidate: usize| &self.measured.spec.candidates[candidate].set;
        let is_part = |(one, logs): &&(usize, Vec<f64>)| {
            set(*one).len() < set(best).len()
                && set(*one)
                    .iter()
                    .all(|(key, value)| set(best).get(key) == Some(value))
                && !logs
                    .iter()
                    .zip(of_best)
                    .all(|(part, whole)| whole - part < STANDS_OUT)
        };
        let parts = all.iter().filter(is_part).map(|(one, _)| *one);
        parts.min_by_key(|one| set(*one).len()).unwrap_or(best)
    }

    /// Returns those that help, those that help most first; `None` where something is left to measure first, which is the
    /// outcome's next step.
    pub fn helped(&self, until_s: f64, outcome: &mut InterimResult) -> Option<Vec<usize>> {
        if outcome.next.is_some() {
            return None;
        }
        let dropped = self.dropped(until_s);
        let (mut open, mut helped): (Vec<usize>, Vec<(usize, f64)>) = Default::default();
        for (&candidate, series) in &self.series {
            let why = match series.decision() {
                Some(Decision::Helps) if series.median() > -MIN_EFFECT.ln_1p() => {
                    "faster by less than 2 %".to_owned()
                }
                Some(Decision::Helps) => {
                    helped.push((candidate, series.median()));
                    continue;
                }
                Some(_) => continue,
                None if dropped.contains_key(&candidate) => dropped[&candidate].clone(),
                None if is_hopeless(series) => {
                    format!("dropped after {HOPELESS_ROUNDS} rounds: not faster")
                }
                None if !series.can_help() => {
                    "faster in too few rounds to be significant".to_owned()
                }
                None => {
                    open.push(candidate);
                    continue;
                }
            };
            outcome.left_out.insert(candidate, why);
        }
        self.go_on(open, until_s, outcome);
        helped.sort_by(|a, b| a.1.total_cmp(&b.1));
        let helped = helped.into_iter().map(|(candidate, _)| candidate);
        outcome.next.is_none().then(|| helped.collect())
    }

    /// Measures these once more, if it is not too late.
    pub fn go_on(&self, open: Vec<usize>, until_s: f64, outcome: &mut InterimResult) {
        if open.is_empty() {
            return;
        }
        if self.measured.seconds >= until_s {
            outcome.is_out_of_time = true;
            return;
        }
        let with = open
            .into_iter()
            .map(|candidate| sorted(self.base, candidate));
        let configurations = [self.base.to_vec()].into_iter().chain(with).collect();
        outcome.measure(self.phase, configurations);
    }

    /// The candidates that are dropped early, with the reason: half each time, by their costs after so many rounds.
    fn dropped(&self, until_s: f64) -> BTreeMap<usize, String> {
        let mut dropped = BTreeMap::new();
        let is_second = self.phase == GuestTunePhase::SecondScreening;
        let round_s = self.measured.boot_s * (self.candidates.len() + 1) as f64;
        if !is_second && self.measured.start_s(self.base) + round_s * ROUNDS <= until_s {
            return dropped;
        }
        // What they saved beside less counts as well, unless that may have masked it.
        let logs = |one: &usize| match is_second {
            true => self.series[one].logs.clone(),
            false => [&self.earlier[one][..], &self.series[one].logs].concat(),
        };
        let mut left: Vec<(usize, Vec<f64>)> = self
            .candidates
            .iter()
            .map(|one| (*one, logs(one)))
            .collect();
        for rounds in HALVINGS {
            if left
                .iter()
                .any(|(one, logs)| logs.len() < rounds && self.series[one].decision().is_none())
            {
                break;
            }
            let rank = |logs: &[f64]| match logs.get(..rounds) {
                Some(first) => median_of(first.iter().copied()),
                None => f64::INFINITY,
            };
            left.sort_by(|a, b| rank(&a.1).total_cmp(&rank(&b.1)));
            let all = left.len();
            let last = left.split_off(all.div_ceil(2));
            dropped.extend(last.into_iter().map(|(candidate, logs)| {
                let ratio = factor(rank(&logs).exp());
                let why = format!(
                    "dropped after {rounds} rounds to save time: ×{ratio} by then, among the slower half of {all} changes"
                );
                (candidate, why)
            }));
        }
        dropped
    }

    /// Returns true if there is time for a second screening: as many rounds as it takes to drop all except few.
    pub fn has_time(&self, until_s: f64) -> bool {
        let arms = |halvings: u32| self.candidates.len().div_ceil(1 << halvings) + 1;
        let [first, second] = HALVINGS;
        let boots =
            arms(0) * first + arms(1) * (second - first) + arms(2) * (ROUNDS as usize - second);
        self.measured.start_s(self.base) + self.measured.boot_s * boots as f64 <= until_s
    }
}

/// Decides whether one of the candidates that helped seems to help beside others as well, which the confirmation will
/// test; `None` if another round has to be measured.
pub(super) fn seems_to_help(series: &PairSeries) -> Option<Decision> {
    let stands = series
        .logs
        .get(..STANDING_ROUNDS)
        .is_some_and(|first| first.iter().all(|log| *log < STANDS_OUT));
    match () {
        () if stands => Some(Decision::Helps),
        () if is_hopeless(series) => Some(Decision::Undecided),
        () => series.decision(),
    }
}

/// Returns true if the first rounds show that more of them are not worth their time.
fn is_hopeless(series: &PairSeries) -> bool {
    series
        .logs
        .get(..HOPELESS_ROUNDS)
        .is_some_and(|first| median_of(first.iter().copied()) >= 0.0)
}
