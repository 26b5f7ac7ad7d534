//! Measurements of a guest's tuning, as ratios of costs within the same round, and the result so far: the candidates that are
//! kept, and why others are not.

use crate::compare::cost;
use crate::estimate::median_of;
use crate::pairs::{Decision, MAX_PAIRS, PairSeries};
use std::collections::{BTreeMap, BTreeSet};
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
