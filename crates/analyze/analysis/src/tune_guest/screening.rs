//! Screening of what is left beside what helps so far, which is nothing at first: what stands out after a few rounds, what
//! is dropped early, and what the sequential test says of the others.

use super::measured::{InterimResult, Measured, sorted};
use crate::estimate::median_of;
use crate::pairs::{Decision, MIN_EFFECT, PairSeries};
use std::collections::BTreeMap;
use vmtax_model::GuestTunePhase;
use vmtax_model::number::factor;

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
