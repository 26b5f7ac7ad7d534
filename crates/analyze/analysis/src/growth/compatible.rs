//! Growth laws that the steps' intervals allow, where one item may also cost more from some size on.
//!
//! A cost is a + b · f(n) · m(n): a constant part, a growth law, and the cost of one item. m rises with the size,
//! since a larger list leaves a cache sooner than a small one: from 1 to [`CACHE_FACTOR`] at most. A growth law is
//! allowed if such a curve runs through the 95 % interval of every step. Some intervals that miss hardly ever exclude
//! the true growth law, since m can adapt; only intervals that hold together show that no curve without m is possible.

use super::fit::Points;
use crate::estimate::{ascending, interval_at, median_interval};
use std::ops::RangeInclusive;
use vmtax_findings::Law;
use vmtax_model::Interval;

/// Largest ratio of an item's cost outside the cache to that inside.
const CACHE_FACTOR: f64 = 2.5;
/// Largest ratio within boots: there no constant part absorbs the time that other load adds to some sizes more than to
/// others.
const CACHE_FACTOR_WITHIN_BOOTS: f64 = 3.0;
/// Where the rounds are too few for intervals that hold in all steps together, each is widened on both sides by this
/// share of its width.
const WIDENED: f64 = 0.5;
/// The constant part of another QEMU's cost may differ by this factor.
const ANOTHER_QEMU: f64 = 1.25;
/// Probability that a step's interval holds, or all of them together.
pub(super) const COVERAGE: f64 = 0.95;
/// Exponents that are tried: 0 to 4.
const EXPONENTS: RangeInclusive<u32> = 0..=200;
const EXPONENT_STEP: f64 = 0.02;
/// Tolerance of a bound for rounding, as a share of it.
const ROUNDING: f64 = 1e-9;

/// The intervals of the steps' costs.
pub(super) struct Intervals {
    sizes: Vec<f64>,
    costs: Vec<Interval>,
    /// Between which the constant part lies.
    constant: (f64, f64),
    /// Largest ratio of an item's cost at the last size to that at the first.
    factor: f64,
}

/// A cost within a boot as a share of what grew there.
struct Share {
    cost: f64,
    growth: f64,
}

/// Returns the interval of shares with this coverage. A boot without growth may have grown in any shape: it counts as the
/// lowest and as the highest.
fn share_interval(shares: &[Share], wanted: f64) -> Option<Interval> {
    let interval_with = |without: f64| {
        let shares = shares.iter().map(|share| match share.growth > 0.0 {
            true => share.cost / share.growth,
            false => without,
        });
        interval_at(&ascending(shares), wanted)
    };
    let low = interval_with(f64::NEG_INFINITY)?;
    Some(Interval {
        high: interval_with(f64::INFINITY)?.high,
        ..low
    })
}

impl Intervals {
    /// Of steps with rounds enough; `None` for fewer than three. `flat`, by round and step, is what another QEMU cost in
    /// the same rounds without growth: the constant part.
    pub fn of_each(points: &Points, flat: Option<&Points>) -> Option<Intervals> {
        Intervals::across_boots(points, flat, median_interval)
    }

    /// Returns wider intervals, which hold together; otherwise as [`Intervals::of_each`].
    pub fn together(points: &Points, flat: Option<&Points>) -> Option<Intervals> {
        let wanted = 1.0 - (1.0 - COVERAGE) / points.sizes.len() as f64;
        Intervals::across_boots(points, flat, |costs| {
            interval_at(costs, wanted).or_else(|| {
                let Interval {
                    low,
                    high,
                    coverage,
                } = median_interval(costs)?;
                let wider = (high / low).powf(WIDENED);
                Some(Interval {
                    low: low / wider,
                    high: high * wider,
                    coverage,
                })
            })
        })
    }

    /// Returns the intervals of costs within one boot: in each round the sizes' costs beyond the first one's, as a
    /// share of the last one's. The boot's constant part and its speed cancel. `wanted` is the coverage of each
    /// interval; `None` as in [`Intervals::of_each`], and if no boot has both the first size and the last.
    pub fn within_boots(points: &Points, flat: Option<&Points>, wanted: f64) -> Option<Intervals> {
        let last = points.sizes.len().checked_sub(1)?;
        let levels = flat.map(Points::levels);
        let boots = || {
            let rounds = points.rounds.iter().enumerate();
            rounds.filter_map(|(r, round)| Some((r, round, round[0]?, round[last]?)))
        };
        let column = |k: usize| {
            let shares = boots().filter_map(|(_, round, first, top)| {
                Some(Share {
                    cost: round[k]? - first,
                    growth: top - first,
                })
            });
            share_interval(&shares.collect::<Vec<_>>(), wanted)
        };
        // What has grown at the first size already: all that is not the constant part.
        let grown_at_first = |constant: f64| {
            let level = |r: usize| match &levels {
                Some(levels) => levels[r].map(|level| level * constant),
                None => Some(0.0),
            };
            let shares = boots().filter_map(|(r, _, first, top)| {
                Some(Share {
                    cost: first - level(r)?,
                    growth: top - first,
                })
            });
            share_interval(&shares.collect::<Vec<_>>(), wanted)
        };
        let least = match flat {
            Some(_) => grown_at_first(ANOTHER_QEMU)?.low.max(0.0),
            None => 0.0,
        };
        let most = grown_at_first(1.0 / ANOTHER_QEMU)?.high;
        Intervals::of_steps(
            points,
            column,
            |_| (-most, -least),
            CACHE_FACTOR_WITHIN_BOOTS,
        )
    }

    fn across_boots(
        points: &Points,
        flat: Option<&Points>,
        interval: impl Fn(&[f64]) -> Option<Interval>,
    ) -> Option<Intervals> {
        let levels = flat.map_or_else(|| vec![Some(1.0); points.rounds.len()], Points::levels);
        let column = |k: usize| {
            let costs = points
                .rounds
                .iter()
                .zip(&levels)
                .filter_map(|(round, level)| Some(round[k]? / (*level)?));
            interval(&ascending(costs))
        };
        let constant = |costs: &[Interval]| {
            let least = costs.iter().map(|c| c.high).fold(f64::INFINITY, f64::min);
            match flat {
                Some(_) => (1.0 / ANOTHER_QEMU, least.min(ANOTHER_QEMU)),
                None => (0.0, least),
            }
        };
        Intervals::of_steps(points, column, constant, CACHE_FACTOR)
    }

    /// Returns the intervals of the steps that `column` gives one; `None` for fewer than three steps. `constant` gives the
    /// bounds of the constant part, `factor` is the largest ratio of an item's cost.
    fn of_steps(
        points: &Points,
        column: impl Fn(usize) -> Option<Interval>,
        constant: impl Fn(&[Interval]) -> (f64, f64),
        factor: f64,
    ) -> Option<Intervals> {
        let steps = points.sizes.iter().enumerate();
        let (sizes, costs): (Vec<f64>, Vec<Interval>) = steps
            .filter_map(|(k, size)| Some((*size, column(k)?)))
            .unzip();
        (sizes.len() > 2).then(|| Intervals {
            sizes,
            constant: constant(&costs),
            costs,
            factor,
        })
    }

    /// The growth laws, the slowest first, without a gap in their order.
    pub fn laws(&self) -> Vec<Law> {
        let is_allowed = |law: &Law| self.allow(|n| law.at(n), self.factor);
        let first = Law::GROWING.iter().position(is_allowed);
        let last = Law::GROWING.iter().rposition(is_allowed);
        first.zip(last).map_or(Vec::new(), |(first, last)| {
            Law::GROWING[first..=last].to_vec()
        })
    }

    /// Returns true if a growth law alone explains the costs: one item costs the same at every size.
    pub fn allow_a_law_alone(&self) -> bool {
        Law::GROWING
            .iter()
            .any(|law| self.allow(|n| law.at(n), 1.0))
    }

    /// The exponents of what grows, with those of the growth laws; `None` where none is allowed.
    pub fn exponents(&self) -> Option<Interval> {
        let (bottom, top) = (self.sizes[0], self.sizes[self.sizes.len() - 1]);
        let powers = EXPONENTS
            .map(|i| f64::from(i) * EXPONENT_STEP)
            .filter(|e| self.allow(|n| n.powf(*e), self.factor));
        let all: Vec<f64> = powers
            .chain(self.laws().iter().map(|law| law.exponent(bottom, top)))
            .collect();
        let (low, high) = (
            all.iter().copied().reduce(f64::min)?,
            all.iter().copied().reduce(f64::max)?,
        );
        Some(Interval {
            low,
            high,
            coverage: COVERAGE,
        })
    }

    /// Returns true if a curve of this growth runs through every interval, where an item costs up to `factor` times as
    /// much at the top.
    ///
    /// The prices of an item that a step's interval allows, for a constant part c, are (low − c) / f to (high − c) /
    /// f. Prices that rise with the size, to `factor` times the first at most, exist where no step's lowest price is
    /// above the highest of a larger size, nor more than `factor` times that of any. Each of these bounds c.
    fn allow(&self, growth: impl Fn(f64) -> f64, factor: f64) -> bool {
        let top = growth(self.sizes[self.sizes.len() - 1]);
        let grown = || {
            self.costs
                .iter()
                .zip(self.sizes.iter().map(|n| growth(*n) / top))
                .enumerate()
        };
        let (mut low, mut high) = self.constant;
        // log 1 is 0: nothing has grown yet, and an item has no price.
        for (_, (cost, _)) in grown().filter(|(_, (_, f))| *f <= 0.0) {
            low = low.max(cost.low);
        }
        for (k, (highest, f)) in grown() {
            high = high.min(highest.high);
            if f <= 0.0 {
                continue;
            }
            for (j, (lowest, g)) in grown().filter(|(_, (_, g))| *g > 0.0) {
                let share = if j <= k { 1.0 } else { 1.0 / factor };
                let (slope, most) = (
                    1.0 / f - share / g,
                    highest.high / f - share * lowest.low / g,
                );
                let scale = highest.high.abs() / f + share * lowest.low.abs() / g;
                if slope.abs() <= ROUNDING * (1.0 / f + share / g) {
                    if most < -ROUNDING * scale {
                        return false;
                    }
                } else if slope > 0.0 {
                    high = high.min(most / slope);
                } else {
                    low = low.max(most / slope);
                }
            }
        }
        low <= high + ROUNDING * low.abs().max(high.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals of 2 % around costs.
    fn around(sizes: &[f64], cost: impl Fn(f64) -> f64) -> Intervals {
        let interval = |n: &f64| Interval {
            low: cost(*n) / 1.01,
            high: cost(*n) * 1.01,
            coverage: 1.0,
        };
        let costs: Vec<Interval> = sizes.iter().map(interval).collect();
        let least = costs.iter().map(|c| c.high).fold(f64::INFINITY, f64::min);
        Intervals {
            sizes: sizes.to_vec(),
            costs,
            constant: (0.0, least),
            factor: CACHE_FACTOR,
        }
    }

    const SIZES: [f64; 5] = [1000.0, 4000.0, 16_000.0, 64_000.0, 256_000.0];

    #[test]
    fn a_law_allows_itself_and_not_those_far_away() {
        for law in Law::GROWING {
            let found = around(&SIZES, |n| 10.0 + 990.0 * law.at(n) / law.at(256_000.0));
            assert!(
                found.laws().contains(&law) && found.allow_a_law_alone(),
                "{law:?}: {:?}",
                found.laws()
            );
            let exponents = found.exponents().unwrap();
            let own = law.exponent(1000.0, 256_000.0);
            assert!(
                exponents.low <= own && own <= exponents.high,
                "{law:?}: {exponents:?}"
            );
        }
        assert_eq!(around(&SIZES, |n| 10.0 + n).laws(), [Law::Linear]);
        assert_eq!(around(&SIZES, |n| 10.0 + n * n).laws(), [Law::Quadratic]);
    }

    #[test]
    fn a_cache_that_is_exceeded_is_no_law_alone() {
        let price = |n: f64| if n > 20_000.0 { 2.4 } else { 1.0 };
        let found = around(&SIZES, |n| 10.0 + n * price(n));
        assert!(found.laws().contains(&Law::Linear), "{:?}", found.laws());
        assert!(!found.allow_a_law_alone());
        let Interval { low, high, .. } = found.exponents().unwrap();
        assert!(low <= 1.0 && (1.0..1.5).contains(&high), "{low} to {high}");
    }

    #[test]
    fn a_range_from_one_has_a_logarithm_too() {
        let sizes = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert!(
            around(&sizes, |n| 50.0 + 100.0 * n.ln())
                .laws()
                .contains(&Law::Logarithmic)
        );
    }

    /// Boots whose constant parts differ by half, and whose speeds do too: neither is in the differences within a boot.
    #[test]
    fn the_constant_part_of_a_boot_cancels() {
        let boots = [1.0, 0.5, 1.5, 0.8, 1.3, 0.6, 1.4];
        let sizes = vec![1000.0, 10_000.0, 20_000.0, 40_000.0];
        let points = |cost: fn(f64) -> f64| {
            let boot = |(r, constant): (usize, &f64)| {
                let speed = boots[(r + 3) % boots.len()];
                sizes
                    .iter()
                    .map(|n| Some((110.0 * constant + cost(*n)) * speed))
                    .collect()
            };
            Points {
                sizes: sizes.clone(),
                rounds: boots.iter().enumerate().map(boot).collect(),
                one_boot: true,
            }
        };
        let list = points(|n| n * 0.007);
        let Interval { low, high, .. } = Intervals::within_boots(&list, None, COVERAGE)
            .unwrap()
            .exponents()
            .unwrap();
        assert!(low <= 1.0 && (1.0..1.1).contains(&high), "{low} to {high}");
        let apart = Intervals::of_each(&list, None)
            .unwrap()
            .exponents()
            .unwrap();
        assert!(apart.high > high, "across boots: {apart:?}");
        let square = Intervals::within_boots(&points(|n| n * n * 2e-7), None, COVERAGE).unwrap();
        assert!(
            !square.laws().contains(&Law::Linear) && square.laws().contains(&Law::Quadratic),
            "{:?}",
            square.laws()
        );
    }

    /// Boots that show no growth count on both sides: nothing is excluded by leaving them out.
    #[test]
    fn a_boot_without_growth_widens_both_ends() {
        let sizes = vec![1000.0, 10_000.0, 40_000.0];
        let growing = vec![Some(100.0), Some(109.0), Some(139.0)];
        let falling = vec![Some(100.0), Some(109.0), Some(90.0)];
        let intervals_of = |rounds| {
            Intervals::within_boots(
                &Points {
                    sizes: sizes.clone(),
                    rounds,
                    one_boot: true,
                },
                None,
                COVERAGE,
            )
        };
        let all = intervals_of(vec![growing.clone(); 6]).unwrap();
        let one_falls = intervals_of([vec![growing; 5], vec![falling]].concat()).unwrap();
        assert!(all.costs[1].low > 0.2 && all.costs[1].high < 0.3);
        assert_eq!(
            (one_falls.costs[1].low, one_falls.costs[1].high),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
    }
}
