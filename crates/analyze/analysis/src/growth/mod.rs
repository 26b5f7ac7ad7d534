//! Growth of costs along a plan's range: a test for growth, the growth law, and the cost of one more item.
//! `docs/statistics.md` has the reasons for these methods, and their error rates.
//!
//! The test for growth is a permutation test. The order of a round's steps was randomized, so random permutations show how
//! often chance alone orders costs by size as well as these are. It assumes nothing else: whatever drifts, warms up, repeats
//! itself or jumps within a round, every order of the steps was as likely as the one that ran.
//!
//! References: E. B. Page, *Ordered hypotheses for multiple treatments*, JASA 58 (1963), for the statistic; R. A. Fisher,
//! *The Design of Experiments*, for the argument; J. Besag and P. Clifford, *Sequential Monte Carlo p-values*, Biometrika
//! 78 (1991), for when to stop.

mod compatible;
mod fit;
#[cfg(test)]
mod simulated;
mod trials;

pub use trials::growth;

use crate::estimate::{estimate, tails};
use compatible::{COVERAGE, Intervals};
use fit::{Line, Points, best, middle};
use vmtax_findings::{CurvePoint, Estimate, Law, NoLaw};
use vmtax_model::{FEWEST_ROUNDS, Interval};

/// Growth that chance alone shows less often than this is taken for growth …
const SIGNIFICANT: f64 = 0.05;
/// … and less often than this where the rounds are too few to ask whether most of them rise …
const SIGNIFICANT_IN_FEW_ROUNDS: f64 = 0.01;
/// … if it is worth speaking of: the cost at the top step over that at the bottom.
const WORTH_IT: f64 = 1.05;
/// Points of a drawn growth law.
const DRAWN: usize = 33;
/// Permutations: enough that p = 5 % is known to half a percent.
const DRAWS: u32 = 1999;
/// After this many at least as good as the measured order, p is known well enough: it is above 5 %.
const ENOUGH: u32 = 120;

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
        chance_of_rising(&points)
    } else {
        chance_of_growth(&points)
    };
    let change = change(&points);
    let highest = change.and_then(|change| Some(change.interval?.high));
    let is_flat = highest.is_some_and(|high| high <= WORTH_IT);
    let grows = !is_flat && is_growth(&points, p);
    let found = laws(&points, flat.as_ref());
    let (allowed, no_law) = match &found {
        Ok(found) => (found.laws.clone(), found.no_law.filter(|_| grows)),
        Err(reason) => (Vec::new(), Some(*reason)),
    };
    let candidates = match grows && !allowed.is_empty() {
        true => &allowed[..],
        false => &Law::GROWING,
    };
    let best = best(&points, candidates);
    let law = if grows { best } else { Some(Law::Constant) }.filter(|_| no_law.is_none());
    let or = match law {
        Some(law) if !is_flat => allowed.into_iter().filter(|other| *other != law).collect(),
        _ => Vec::new(),
    };
    let rounds = best.map_or(Vec::new(), |_| lines(&points, law.unwrap_or(Law::Constant)));
    let top = points.sizes.last().copied().unwrap_or(1.0);
    Grown {
        grows,
        law,
        or,
        no_law,
        exponent: found.ok().and_then(|f| f.exponent).filter(|_| grows),
        p,
        change,
        one_more: over(&rounds, |line| {
            line.factor * law.unwrap_or(Law::Constant).gain(top)
        }),
        misfit: law.or(best).and_then(|law| misfit(&points, law)),
        curve: law.map_or(Vec::new(), |law| curve(&points, law, &rounds)),
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
        p > SIGNIFICANT || chance_of_rising(points) > SIGNIFICANT
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
    let typical = points.centers();
    points
        .rounds
        .iter()
        .filter_map(|round| Line::robust(law, &points.sizes, round, &typical))
        .collect()
}

/// A figure over the rounds' lines; `None` without lines.
fn over(rounds: &[Line], figure: impl Fn(&Line) -> f64) -> Option<Estimate> {
    (!rounds.is_empty()).then(|| estimate(rounds.iter().map(figure).collect()))
}

/// The curve of the growth law that is named.
fn curve(points: &Points, law: Law, rounds: &[Line]) -> Vec<CurvePoint> {
    let point = |size| {
        let ns = match law {
            Law::Constant => level(points),
            _ => over(rounds, |line| line.at(size)),
        };
        Some(CurvePoint { size, ns: ns? })
    };
    drawn(&points.sizes).filter_map(point).collect()
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
    let centers = points.centers();
    let flat = middle(centers.iter().copied().flatten())?;
    let line = Line::through(law, &points.sizes, &centers)?;
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

/// Returns the probability that chance alone shows as much growth as these costs do, 1 / ([`DRAWS`] + 1) to 1.
fn chance_of_growth(points: &Points) -> f64 {
    let mut rounds: Vec<Scores> = points.rounds.iter().map(|round| scores(round)).collect();
    let found: i64 = rounds.iter().map(Scores::agreement).sum();
    let mut random = fastrand::Rng::with_seed(0);
    let mut as_good = 0;
    for draws in 1..=DRAWS {
        let mut drawn = 0;
        for round in &mut rounds {
            random.shuffle(&mut round.costs);
            drawn += round.agreement();
        }
        as_good += u32::from(drawn >= found);
        if as_good == ENOUGH {
            return f64::from(ENOUGH) / f64::from(draws);
        }
    }
    f64::from(as_good + 1) / f64::from(DRAWS + 1)
}

/// Returns the probability that chance alone has costs rise with the size in as many rounds as here: the sign test of
/// the rounds' trends. It does not need all permutations to be equally likely, so that steps may be disturbed more or
/// less than others.
fn chance_of_rising(points: &Points) -> f64 {
    let trends = points.rounds.iter().map(|round| scores(round).agreement());
    let trends: Vec<i64> = trends.filter(|trend| *trend != 0).collect();
    let falling = trends.iter().filter(|trend| **trend < 0).count();
    // Half of the chance that either direction is as rare.
    let half = |two_sided: f64| {
        if falling * 2 < trends.len() {
            two_sided / 2.0
        } else {
            1.0
        }
    };
    tails(trends.len() as u32).nth(falling).map_or(1.0, half)
}

/// The ranks of a round's sizes and costs, doubled and around 0 so that they are whole.
struct Scores {
    sizes: Vec<i64>,
    costs: Vec<i64>,
}

impl Scores {
    /// Returns how well the costs are ordered by size: 0 where they are not.
    fn agreement(&self) -> i64 {
        self.sizes.iter().zip(&self.costs).map(|(s, c)| s * c).sum()
    }
}

/// Returns the ranks of a round's steps; equal costs share their ranks.
fn scores(round: &[Option<f64>]) -> Scores {
    let costs: Vec<f64> = round.iter().copied().flatten().collect();
    let around = |rank_doubled: usize| rank_doubled as i64 - (costs.len() as i64 - 1);
    let rank = |cost: f64| {
        let below = costs.iter().filter(|c| **c < cost).count();
        let equal = costs.iter().filter(|c| **c == cost).count();
        around(2 * below + equal.saturating_sub(1))
    };
    Scores {
        sizes: (0..costs.len()).map(|i| around(2 * i)).collect(),
        costs: costs.iter().map(|c| rank(*c)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rounds: &[&[f64]]) -> Points {
        let sizes = (1..=rounds[0].len()).map(|i| i as f64).collect();
        Points {
            sizes,
            rounds: rounds
                .iter()
                .map(|r| r.iter().map(|v| Some(*v)).collect())
                .collect(),
            one_boot: false,
        }
    }

    #[test]
    fn ranks_are_shared_by_equals_and_missing_steps_have_none() {
        let scores_of = |round: &[Option<f64>]| {
            let Scores { sizes, costs } = scores(round);
            (sizes, costs)
        };
        assert_eq!(
            scores_of(&[Some(5.0), Some(7.0), Some(5.0), None]),
            (vec![-2, 0, 2], vec![-1, 2, -1])
        );
        assert_eq!(scores_of(&[Some(1.0)]), (vec![0], vec![0]));
    }

    #[test]
    fn rounds_that_rise_are_counted() {
        let (up, down, flat): (&[f64], &[f64], &[f64]) =
            (&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0], &[1.0; 3]);
        let rising = |rounds: &[&[f64]]| (chance_of_rising(&points(rounds)) * 256.0).round();
        assert_eq!(rising(&[up; 6]), 4.0);
        assert_eq!(rising(&[up, up, up, up, up, up, up, down]), 9.0);
        assert_eq!(rising(&[down; 6]), 256.0);
        assert_eq!(rising(&[flat; 6]), 256.0);
    }

    #[test]
    fn the_chance_is_that_of_the_orders_there_are() {
        // Three steps have 6 orders: two rounds in order have a chance of 1 in 36.
        let two = chance_of_growth(&points(&[&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]]));
        assert!((two - 1.0 / 36.0).abs() < 0.012, "{two}");
        assert_eq!(chance_of_growth(&points(&[&[1.0, 1.0, 1.0][..]; 5])), 1.0);
        let falling = chance_of_growth(&points(&[&[3.0, 2.0, 1.0][..]; 4]));
        assert!(falling > 0.99, "{falling}");
    }
}
