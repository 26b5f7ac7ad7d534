//! Whether costs grow along a plan's range, by which growth law, and what one more item costs. `docs/statistics.md` says why
//! it is done this way, and how often it errs.

mod law;
mod permutation;
mod points;
#[cfg(test)]
mod simulated;
mod trials;

pub use trials::growth;

use crate::interval::FEWEST_ROUNDS;
use crate::overhead::estimate;
use law::Line;
use points::{Points, middle};
use vmtax_model::{CurvePoint, Estimate, Law};

/// Growth that chance alone shows less often than this is taken for growth …
const SIGNIFICANT: f64 = 0.05;
/// … if it is worth speaking of: the growth law's cost at the top step over that at the bottom.
const WORTH_IT: f64 = 1.05;
/// Points of a drawn growth law.
const DRAWN: usize = 33;

/// What the points say.
#[derive(Debug, Clone, PartialEq)]
struct Grown {
    law: Option<Law>,
    or: Vec<Law>,
    p: f64,
    change: Option<Estimate>,
    one_more: Option<Estimate>,
    misfit: Option<f64>,
    curve: Vec<CurvePoint>,
}

/// The growth law of costs along a range.
fn grown(points: &Points) -> Grown {
    let points = points.filled();
    let p = permutation::chance_of_growth(&points);
    let (law, or) = law_of(&points, p);
    let rounds = law.map_or(Vec::new(), |law| lines(&points, law));
    let over = |of: &dyn Fn(&Line) -> f64| (!rounds.is_empty()).then(|| estimate(rounds.iter().map(of).collect()));
    let top = points.sizes.last().copied().unwrap_or(1.0);
    let curve: Vec<CurvePoint> = drawn(&points.sizes)
        .filter_map(|size| {
            let flat = law == Some(Law::Constant);
            let ns = if flat { level(&points) } else { over(&|line| line.at(size)) }?;
            Some(CurvePoint { size, ns })
        })
        .collect();
    Grown {
        law,
        or,
        p,
        change: change(&points),
        one_more: over(&|line| line.factor * line.law.gain(top)),
        misfit: law.and_then(|law| misfit(&points, law)),
        curve: if law.is_some() { curve } else { Vec::new() },
    }
}

fn law_of(points: &Points, p: f64) -> (Option<Law>, Vec<Law>) {
    let Some((law, or)) = law::choose(points) else { return (None, Vec::new()) };
    let (bottom, top) = (points.sizes[0], points.sizes[points.sizes.len() - 1]);
    let line = Line::through(law, &points.sizes, &points.centres());
    let grows = line.is_some_and(|line| line.at(top) > line.at(bottom) * WORTH_IT);
    if p <= SIGNIFICANT && grows { (Some(law), or) } else { (Some(Law::Constant), Vec::new()) }
}

/// The growth law through each round by itself.
fn lines(points: &Points, law: Law) -> Vec<Line> {
    let typical = points.centres();
    points.rounds.iter().filter_map(|round| Line::robust(law, &points.sizes, round, &typical)).collect()
}

/// The rounds' own medians: the level of what does not grow.
fn level(points: &Points) -> Option<Estimate> {
    let medians: Vec<f64> = points.rounds.iter().filter_map(|r| middle(r.iter().copied().flatten())).collect();
    (!medians.is_empty()).then(|| estimate(medians))
}

/// The top step's cost over the bottom step's, of the same round.
fn change(points: &Points) -> Option<Estimate> {
    let ratios: Vec<f64> = points.rounds.iter().filter_map(|r| Some((*r.last()?)? / (*r.first()?)?)).collect();
    (!ratios.is_empty()).then(|| estimate(ratios))
}

/// By how much the growth law leaves the interval of a step's median at most, as a share of the growth law's cost there.
fn misfit(points: &Points, law: Law) -> Option<f64> {
    if points.rounds.len() < FEWEST_ROUNDS as usize {
        return None;
    }
    let centres = points.centres();
    let flat = middle(centres.iter().copied().flatten())?;
    let line = Line::through(law, &points.sizes, &centres)?;
    let miss = |k: usize| {
        let interval = estimate(points.rounds.iter().filter_map(|r| r[k]).collect()).interval?;
        let fitted = if law == Law::Constant { flat } else { line.at(points.sizes[k]) };
        Some(((interval.low - fitted).max(fitted - interval.high) / fitted).max(0.0))
    };
    (0..points.sizes.len()).filter_map(miss).max_by(f64::total_cmp)
}

/// Sizes along the range, each the same factor above the one before.
fn drawn(sizes: &[f64]) -> impl Iterator<Item = f64> {
    let (low, high) = (sizes.first().copied().unwrap_or(1.0), sizes.last().copied().unwrap_or(1.0));
    let last = DRAWN - 1;
    (0..DRAWN).map(move |i| if i == last { high } else { low * (high / low).powf(i as f64 / last as f64) })
}
