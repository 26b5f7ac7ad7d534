//! The change that is confirmed before the others are screened to the end: what most people look for is known after a few rounds.

use super::measured::Measured;
use std::collections::BTreeMap;

/// Rounds of the screening after which one may stand out.
pub(super) const ROUNDS: usize = 3;
/// What it saves at least in each of them, as a log of a ratio of costs.
const STANDS_OUT: f64 = -0.05;

/// The candidate that stands out after the first rounds; `None` before, and where none does. What is measured later does not change
/// it. `dropped` has the rounds after which candidates were dropped.
pub(super) fn first(measured: &Measured<'_>, dropped: &BTreeMap<usize, usize>) -> Option<usize> {
    let all = 0..measured.spec.candidates.len();
    let is_dropped = |candidate: &usize| dropped.get(candidate).is_some_and(|rounds| *rounds < ROUNDS);
    let left = all.filter(|candidate| measured.refused(*candidate).is_none() && !is_dropped(candidate));
    let mut standing: Vec<(usize, Vec<f64>)> = Vec::new();
    for candidate in left {
        if measured.screening(&[], candidate).pairs() < ROUNDS {
            return None;
        }
        let rounds = measured.first_rounds(candidate, ROUNDS);
        standing.extend(rounds.filter(|logs| logs.iter().all(|log| *log < STANDS_OUT)).map(|logs| (candidate, logs)));
    }
    let median = |logs: &[f64]| crate::estimate(logs.to_vec()).median;
    let (best, of_best) = standing.iter().min_by(|a, b| median(&a.1).total_cmp(&median(&b.1)))?;
    // A part of it that saves as much is the simpler change: whether the rest helps is asked beside it.
    let set = |candidate: &usize| &measured.spec.candidates[*candidate].set;
    let is_part = |(one, logs): &&(usize, Vec<f64>)| {
        set(one).len() < set(best).len()
            && set(one).iter().all(|(key, value)| set(best).get(key) == Some(value))
            && !logs.iter().zip(of_best).all(|(part, whole)| whole - part < STANDS_OUT)
    };
    let part = standing.iter().filter(is_part).min_by_key(|(one, _)| set(one).len());
    Some(part.map_or(*best, |(one, _)| *one))
}
