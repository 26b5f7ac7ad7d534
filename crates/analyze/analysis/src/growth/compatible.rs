//! Which growth laws the steps' intervals allow, where one item may also cost more from some size on.
//!
//! A cost is a + b · f(n) · m(n): a constant part, a growth law, and what one item costs. m rises with the size, since a
//! larger list leaves a cache sooner than a small one: from 1 to [`CACHE_FACTOR`] at most. A growth law is allowed if such a
//! curve runs through the 95 % interval of every step. That some of these miss hardly ever rules out the growth law that is
//! true, since m gives way; that no curve without m is possible takes intervals that hold together.

use super::points::{Points, middle};
use crate::interval::{interval_at, median_interval};
use std::ops::RangeInclusive;
use vmtax_model::{Interval, Law};

/// How many times what it costs in the cache an item may cost outside.
const CACHE_FACTOR: f64 = 2.5;
/// Where the rounds are too few for intervals that hold in all steps together, each is widened on both sides by this
/// share of its width.
const WIDENED: f64 = 0.5;
/// The constant part of another QEMU's cost may differ by this factor.
const ANOTHER_QEMU: f64 = 1.25;
/// How often a step's interval holds, or all of them together.
const COVERAGE: f64 = 0.95;
/// Exponents that are tried: 0 to 4.
const EXPONENTS: RangeInclusive<u32> = 0..=200;
const EXPONENT_STEP: f64 = 0.02;
/// Constant parts that are tried: equally far apart, and closer and closer below the largest.
const CONSTANTS: u32 = 40;
const CLOSE_CONSTANTS: i32 = 24;
/// What rounding adds.
const ROUNDING: f64 = 1.0 + 1e-9;

/// The intervals of the steps' costs.
pub(super) struct Intervals {
    sizes: Vec<f64>,
    costs: Vec<Interval>,
    /// Between which the constant part lies.
    constant: (f64, f64),
}

impl Intervals {
    /// Of steps with rounds enough; `None` for fewer than three. `flat`, by round and step, is what another QEMU cost in
    /// the same rounds without growth: the constant part.
    pub fn of_each(points: &Points, flat: Option<&Points>) -> Option<Intervals> {
        Intervals::of(points, flat, median_interval)
    }

    /// The same of wider intervals, which hold together.
    pub fn together(points: &Points, flat: Option<&Points>) -> Option<Intervals> {
        let wanted = 1.0 - (1.0 - COVERAGE) / points.sizes.len() as f64;
        Intervals::of(points, flat, |costs| {
            interval_at(costs, wanted).or_else(|| {
                let Interval { low, high, coverage } = median_interval(costs)?;
                let wider = (high / low).powf(WIDENED);
                Some(Interval { low: low / wider, high: high * wider, coverage })
            })
        })
    }

    fn of(points: &Points, flat: Option<&Points>, interval: impl Fn(&[f64]) -> Option<Interval>) -> Option<Intervals> {
        let levels = flat.map(|flat| flat.rounds.iter().map(|round| middle(round.iter().copied().flatten())).collect());
        let levels: Vec<Option<f64>> = levels.unwrap_or_else(|| vec![Some(1.0); points.rounds.len()]);
        let column = |k: usize| {
            let costs = points.rounds.iter().zip(&levels).filter_map(|(round, level)| Some(round[k]? / (*level)?));
            let mut sorted: Vec<f64> = costs.collect();
            sorted.sort_unstable_by(f64::total_cmp);
            sorted
        };
        let (sizes, costs): (Vec<f64>, Vec<Interval>) =
            points.sizes.iter().enumerate().filter_map(|(k, size)| Some((*size, interval(&column(k))?))).unzip();
        let least = costs.iter().map(|c| c.high).fold(f64::INFINITY, f64::min);
        let constant = match flat {
            Some(_) => (1.0 / ANOTHER_QEMU, least.min(ANOTHER_QEMU)),
            None => (0.0, least),
        };
        (sizes.len() > 2).then_some(Intervals { sizes, costs, constant })
    }

    /// The growth laws, the slowest first, without a gap in their order.
    pub fn laws(&self) -> Vec<Law> {
        let is_allowed = |law: &Law| self.allow(|n| law.at(n), CACHE_FACTOR);
        let first = Law::GROWING.iter().position(is_allowed);
        let last = Law::GROWING.iter().rposition(is_allowed);
        first.zip(last).map_or(Vec::new(), |(first, last)| Law::GROWING[first..=last].to_vec())
    }

    /// Whether a growth law alone explains the costs: one item costs the same at every size.
    pub fn allow_a_law_alone(&self) -> bool {
        Law::GROWING.iter().any(|law| self.allow(|n| law.at(n), 1.0))
    }

    /// The exponents of what grows, with those of the growth laws; `None` where none is allowed.
    pub fn exponents(&self) -> Option<Interval> {
        let (bottom, top) = (self.sizes[0], self.sizes[self.sizes.len() - 1]);
        let powers =
            EXPONENTS.map(|i| f64::from(i) * EXPONENT_STEP).filter(|e| self.allow(|n| n.powf(*e), CACHE_FACTOR));
        let all: Vec<f64> = powers.chain(self.laws().iter().map(|law| law.exponent(bottom, top))).collect();
        let (low, high) = (all.iter().copied().reduce(f64::min)?, all.iter().copied().reduce(f64::max)?);
        Some(Interval { low, high, coverage: COVERAGE })
    }

    /// Whether a curve of this growth runs through every interval, one item costing up to `factor` times as much at the top.
    fn allow(&self, growth: impl Fn(f64) -> f64, factor: f64) -> bool {
        let (low, high) = self.constant;
        if low > high {
            return false;
        }
        let top = growth(self.sizes[self.sizes.len() - 1]);
        let growing: Vec<f64> = self.sizes.iter().map(|n| growth(*n) / top).collect();
        let apart = (0..=CONSTANTS).map(|i| low + (high - low) * f64::from(i) / f64::from(CONSTANTS));
        let close = (1..=CLOSE_CONSTANTS).map(|i| high - (high - low) * 0.5_f64.powi(i));
        apart.chain(close).any(|constant| self.allow_beyond(constant, &growing, factor))
    }

    /// The same for a known constant part: the lowest prices of an item that the intervals leave must fit below the highest.
    fn allow_beyond(&self, constant: f64, growing: &[f64], factor: f64) -> bool {
        // log 1 is 0: nothing has grown yet, and an item has no price.
        let grown = || self.costs.iter().zip(growing);
        if grown().any(|(cost, f)| *f <= 0.0 && (constant < cost.low || constant > cost.high)) {
            return false;
        }
        let prices = || {
            let of = |(cost, f): (&Interval, &f64)| (((cost.low - constant) / f).max(0.0), (cost.high - constant) / f);
            grown().filter(|(_, f)| **f > 0.0).map(of)
        };
        let dearest = prices().map(|(low, _)| low).fold(0.0, f64::max);
        let mut price = dearest / factor;
        prices().all(|(low, high)| {
            price = low.max(price);
            price <= high * ROUNDING
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals of 2 % around costs.
    fn around(sizes: &[f64], cost: impl Fn(f64) -> f64) -> Intervals {
        let interval = |n: &f64| Interval { low: cost(*n) / 1.01, high: cost(*n) * 1.01, coverage: 1.0 };
        let costs: Vec<Interval> = sizes.iter().map(interval).collect();
        let least = costs.iter().map(|c| c.high).fold(f64::INFINITY, f64::min);
        Intervals { sizes: sizes.to_vec(), costs, constant: (0.0, least) }
    }

    const SIZES: [f64; 5] = [1000.0, 4000.0, 16_000.0, 64_000.0, 256_000.0];

    #[test]
    fn a_law_allows_itself_and_not_those_far_away() {
        for law in Law::GROWING {
            let found = around(&SIZES, |n| 10.0 + 990.0 * law.at(n) / law.at(256_000.0));
            assert!(found.laws().contains(&law) && found.allow_a_law_alone(), "{law:?}: {:?}", found.laws());
            let exponents = found.exponents().unwrap();
            let own = law.exponent(1000.0, 256_000.0);
            assert!(exponents.low <= own && own <= exponents.high, "{law:?}: {exponents:?}");
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
        assert!(around(&sizes, |n| 50.0 + 100.0 * n.ln()).laws().contains(&Law::Logarithmic));
    }
}
