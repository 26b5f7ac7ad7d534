//! A permutation test of growth. The order of a round's steps was randomized, so random permutations show how often
//! chance alone orders costs by size as well as these are. It assumes nothing else: whatever drifts, warms up, repeats
//! itself or jumps within a round, every order of the steps was as likely as the one that ran.
//!
//! References: E. B. Page, *Ordered hypotheses for multiple treatments*, JASA 58 (1963), for the statistic; R. A. Fisher,
//! *The Design of Experiments*, for the argument; J. Besag and P. Clifford, *Sequential Monte Carlo p-values*, Biometrika
//! 78 (1991), for when to stop.

use super::points::Points;
use crate::interval::tails;

/// Permutations: enough that p = 5 % is known to half a percent.
const DRAWS: u32 = 1999;
/// After this many at least as good as the measured order, p is known well enough: it is above 5 %.
const ENOUGH: u32 = 120;

/// Returns the probability that chance alone shows as much growth as these costs do, 1 / ([`DRAWS`] + 1) to 1.
pub(super) fn chance_of_growth(points: &Points) -> f64 {
    let mut rounds: Vec<(Vec<i64>, Vec<i64>)> =
        points.rounds.iter().map(|round| scores(round)).collect();
    let agreement = |(sizes, costs): &(Vec<i64>, Vec<i64>)| {
        sizes.iter().zip(costs).map(|(s, c)| s * c).sum::<i64>()
    };
    let found: i64 = rounds.iter().map(agreement).sum();
    let mut random = fastrand::Rng::with_seed(0);
    let mut as_good = 0;
    for draws in 1..=DRAWS {
        let mut drawn = 0;
        for round in &mut rounds {
            random.shuffle(&mut round.1);
            drawn += agreement(round);
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
pub(super) fn chance_of_rising(points: &Points) -> f64 {
    let trend = |round: &Vec<Option<f64>>| {
        let (sizes, costs) = scores(round);
        sizes.iter().zip(costs).map(|(s, c)| s * c).sum::<i64>()
    };
    let trends: Vec<i64> = points
        .rounds
        .iter()
        .map(trend)
        .filter(|trend| *trend != 0)
        .collect();
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

/// The ranks of a round's sizes and costs, doubled and around 0 so that they are whole; equal costs share their ranks.
fn scores(round: &[Option<f64>]) -> (Vec<i64>, Vec<i64>) {
    let costs: Vec<f64> = round.iter().copied().flatten().collect();
    let around = |rank_doubled: usize| rank_doubled as i64 - (costs.len() as i64 - 1);
    let rank = |cost: f64| {
        let below = costs.iter().filter(|c| **c < cost).count();
        let equal = costs.iter().filter(|c| **c == cost).count();
        around(2 * below + equal.saturating_sub(1))
    };
    (
        (0..costs.len()).map(|i| around(2 * i)).collect(),
        costs.iter().map(|c| rank(*c)).collect(),
    )
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
        assert_eq!(
            scores(&[Some(5.0), Some(7.0), Some(5.0), None]),
            (vec![-2, 0, 2], vec![-1, 2, -1])
        );
        assert_eq!(scores(&[Some(1.0)]), (vec![0], vec![0]));
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
