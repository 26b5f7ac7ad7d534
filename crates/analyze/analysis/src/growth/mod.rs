//! Growth of costs along a plan's range: a test for growth, the growth law, and the cost of one more item.
//! `docs/statistics.md` has the reasons for these methods, and their error rates.

mod compatible;
mod law;
mod permutation;
mod points;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_boots;
mod trials;

pub use trials::growth;

use crate::overhead::estimate;
use compatible::{COVERAGE, Intervals};
use law::Line;
use points::{Points, middle};
use vmtax_model::FEWEST_ROUNDS;
use vmtax_model::{CurvePoint, Estimate, Interval, Law, NoLaw};

/// Growth that chance alone shows less often than this is taken for growth …
const SIGNIFICANT: f64 = 0.05;
/// … and less often than this where the rounds are too few to ask whether most of them rise …
const SIGNIFICANT_IN_FEW_ROUNDS: f64 = 0.01;
/// … if it is worth speaking of: the cost at the top step over that at the bottom.
const WORTH_IT: f64 = 1.05;
/// Points of a drawn growth law.
const DRAWN: usize = 33;

/// Growth that the points show.
#[derive(Debug, Clone, PartialEq)]
struct Grown {
    grows: bool,
    law: Option<Law>,
    or: Vec<Law>,
    no_law: Option<NoLaw>,
    exponent: Option<Interval>,
    p: f64,
    change: Option<Estimate>,
    one_more: Option<Estimate>,
    misfit: Option<f64>,
    curve: Vec<CurvePoint>,
}

/// Analyzes the growth of costs along a range. `flat` are the costs with another QEMU in the same rounds, which do not
/// grow.
fn grown(points: &Points, flat: Option<&Points>) -> Grown {
    // A round that is left out here is left out there.
    let flat = flat.map(|flat| flat.in_rounds_of(points));
    let points = points.filled();
    // Within a boot the sizes rise, in no order drawn at random: the boots alone are independent.
    let p = if points.one_boot {
        permutation::chance_of_rising(&points)
    } else {
        permutation::chance_of_growth(&points)
    };
    let change = change(&points);
    let highest = change
        .and_then(|change| change.interval)
        .map(|interval| interval.high);
    let is_flat = highest.is_some_and(|high| high <= WORTH_IT);
    let grows = !is_flat && is_growth(&points, p);
    let found = laws(&points, flat.as_ref());
    let allowed = found
        .as_ref()
        .map_or(Vec::new(), |found| found.laws.clone());
    let no_law = found.as_ref().map_or_else(
        |reason| Some(*reason),
        |found| found.no_law.filter(|_| grows),
    );
    let best = law::best(
        &points,
        if grows && !allowed.is_empty() {
            &allowed
        } else {
            &Law::GROWING
        },
    );
    let law = if grows { best } else { Some(Law::Constant) }.filter(|_| no_law.is_none());
    let or = if is_flat {
        Vec::new()
    } else {
        allowed.into_iter().filter(|l| Some(*l) != law).collect()
    };
    let rounds = best.map_or(Vec::new(), |_| lines(&points, law.unwrap_or(Law::Constant)));
    let over = |of: &dyn Fn(&Line) -> f64| {
        (!rounds.is_empty()).then(|| estimate(rounds.iter().map(of).collect()))
    };
    let top = points.sizes.last().copied().unwrap_or(1.0);
    let curve: Vec<CurvePoint> = drawn(&points.sizes)
        .filter_map(|size| {
            let flat = law == Some(Law::Constant);
            let ns = if flat {
                level(&points)
            } else {
                over(&|line| line.at(size))
            }?;
            Some(CurvePoint { size, ns })
        })
        .collect();
    Grown {
        grows,
        law,
        or: if law.is_some() { or } else { Vec::new() },
        no_law,
        exponent: found
            .ok()
            .and_then(|found| found.exponent)
            .filter(|_| grows),
        p,
        change,
        one_more: over(&|line| line.factor * law.unwrap_or(Law::Constant).gain(top)),
        misfit: law.or(best).and_then(|law| misfit(&points, law)),
        curve: if law.is_some() { curve } else { Vec::new() },
    }
}

/// Returns true if costs grow by more than chance, in enough rounds that steps may be disturbed unequally; their
/// minimum has to grow, too, since a disturbance only adds.
fn is_growth(points: &Points, p: f64) -> bool {
    let least = |k: usize| {
        points
            .rounds
            .iter()
            .filter_map(|round| round[k])
            .reduce(f64::min)
    };
    let Some(last) = points.sizes.len().checked_sub(1) else {
        return false;
    };
    let grown = least(0)
        .zip(least(last))
        .is_some_and(|(bottom, top)| top > bottom * WORTH_IT);
    let few = points.rounds.len() < FEWEST_ROUNDS as usize;
    let by_chance = if few {
        p > SIGNIFICANT_IN_FEW_ROUNDS
    } else {
        p > SIGNIFICANT || permutation::chance_of_rising(points) > SIGNIFICANT
    };
    grown && !by_chance
}

/// The growth laws that costs allow.
struct Laws {
    laws: Vec<Law>,
    exponent: Option<Interval>,
    /// Why none of them is named where costs grow.
    no_law: Option<NoLaw>,
}

fn laws(points: &Points, flat: Option<&Points>) -> Result<Laws, NoLaw> {
    if points.sizes.len() < 3 {
        return Err(NoLaw::TooFewSteps);
    }
    if points.rounds.len() < FEWEST_ROUNDS as usize {
        return Err(NoLaw::TooFewRounds);
    }
    let (Some(each), Some(together)) = (
        Intervals::of_each(points, flat),
        Intervals::together(points, flat),
    ) else {
        return Err(NoLaw::TooFewRounds);
    };
    let close = points.sizes[points.sizes.len() - 1] < points.sizes[0] * Law::MIN_SPAN;
    let no_law = match together.allow_a_law_alone() {
        _ if close => Some(NoLaw::SizesTooClose),
        true => None,
        false => Some(NoLaw::CostSteps),
    };
    let within =
        |wanted: f64| Intervals::within_boots(points, flat, wanted).filter(|_| points.one_boot);
    let all = [
        within(COVERAGE),
        within(1.0 - (1.0 - COVERAGE) / points.sizes.len() as f64),
        Some(each),
        Some(together),
    ];
    let allowed: Vec<_> = all
        .into_iter()
        .flatten()
        .map(|of| (of.laws(), of.exponents()))
        .collect();
    // The narrowest that any growth law fits, else that any power does.
    let fits = allowed.iter().find(|(laws, _)| !laws.is_empty());
    let fits = fits.or_else(|| allowed.iter().find(|(_, exponent)| exponent.is_some()));
    let (laws, exponent) = fits.cloned().unwrap_or_default();
    Ok(Laws {
        laws,
        exponent,
        no_law,
    })
}

/// The growth law through each round by itself.
fn lines(points: &Points, law: Law) -> Vec<Line> {
    let typical = points.centres();
    points
        .rounds
        .iter()
        .filter_map(|round| Line::robust(law, &points.sizes, round, &typical))
        .collect()
}

/// The rounds' own medians: the level of what does not grow.
fn level(points: &Points) -> Option<Estimate> {
    let medians: Vec<f64> = points
        .rounds
        .iter()
        .filter_map(|r| middle(r.iter().copied().flatten()))
        .collect();
    (!medians.is_empty()).then(|| estimate(medians))
}

/// The top step's cost over the bottom step's, of the same round.
fn change(points: &Points) -> Option<Estimate> {
    let ratios: Vec<f64> = points
        .rounds
        .iter()
        .filter_map(|r| Some((*r.last()?)? / (*r.first()?)?))
        .collect();
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
        let fitted = if law == Law::Constant {
            flat
        } else {
            line.at(points.sizes[k])
        };
        Some(((interval.low - fitted).max(fitted - interval.high) / fitted).max(0.0))
    };
    (0..points.sizes.len())
        .filter_map(miss)
        .max_by(f64::total_cmp)
}

/// Sizes along the range, each the same factor above the one before.
fn drawn(sizes: &[f64]) -> impl Iterator<Item = f64> {
    let (low, high) = (
        sizes.first().copied().unwrap_or(1.0),
        sizes.last().copied().unwrap_or(1.0),
    );
    let last = DRAWN - 1;
    (0..DRAWN).map(move |i| {
        if i == last {
            high
        } else {
            low * (high / low).powf(i as f64 / last as f64)
        }
    })
}
