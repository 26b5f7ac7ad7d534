//! Estimates of the number of rounds needed, from the noise so far.

use super::interim::{InterimAnalyses, LEVEL};
use super::unpaired::normal;
use crate::overhead::estimate;
use vmtax_model::Estimate;

/// Share of comparisons in which the number of rounds that is reported as enough finds the difference.
pub const POWER: f64 = 0.8;
/// The noise of few rounds may look smaller than it is: it is taken to be larger by this over their square root. Found by
/// trying, so that what is predicted after the first interim analysis is enough ([`POWER`]) whatever the noise (`simulated.rs`).
const CAUTION: f64 = 0.7;
/// From fewer rounds nothing is estimated.
pub const MIN_ROUNDS: u32 = 4;
/// More rounds than this are not estimated.
pub const MAX_ROUNDS: u32 = 2000;
/// Most rounds that are estimated for a metric which lacks only the correction for the number of metrics.
const MAX_SIGN_ROUNDS: u32 = 200;

/// Rounds in which a difference of `size` (of logarithms) is found in [`POWER`] of comparisons of at most `most` rounds,
/// or of as many as it then takes; `None` where even [`MAX_ROUNDS`] would not do, or there are fewer than [`MIN_ROUNDS`] `logs`.
pub fn rounds_needed(logs: &[f64], size: f64, most: u32) -> Option<u32> {
    rounds_until(
        ahead(logs, size / (1.0 + CAUTION / (logs.len() as f64).sqrt()))?,
        most,
    )
}

/// Rounds after which a difference is significant with its p times `correction`, if one side stays ahead in as large a part of
/// the rounds as in `ahead` of `rounds` (by Laplace's estimate); `None` where even [`MAX_SIGN_ROUNDS`] would not do.
pub fn rounds_for_correction(ahead: u32, rounds: u32, correction: f64) -> Option<u32> {
    let behind = f64::from(rounds - ahead + 1) / f64::from(rounds + 2);
    let mut next = rounds + 1;
    while next <= MAX_SIGN_ROUNDS {
        let against = (f64::from(next) * behind).round() as u32;
        if InterimAnalyses::new(next, next).chance(next, against) * correction <= LEVEL {
            return Some(next);
        }
        next += 1 + next / 8;
    }
    None
}

/// Predicts from a figure of an earlier run: the noise of a round's ratio as a share, taken from the interval of the
/// median of `n` rounds as that of normal noise, and the number of rounds that show a difference of `size` in it.
pub fn from_the_past(
    figure: &Estimate,
    n: u32,
    size: f64,
    most: u32,
) -> Option<(f64, Option<u32>)> {
    let interval = figure.interval.filter(|_| figure.median > 0.0)?;
    let of_median = (interval.high - interval.low) / figure.median / (2.0 * 1.96);
    // A median scatters by 1.25 times what a mean does; two sides make a ratio.
    let noise = of_median * f64::from(n).sqrt() / 1.2533 * std::f64::consts::SQRT_2;
    let ahead = if noise > 0.0 {
        normal(size / noise)
    } else {
        1.0
    };
    Some((noise, rounds_until(ahead, most)))
}

/// The rounds in which a side that is ahead in a round with this chance is found to be.
fn rounds_until(ahead: f64, most: u32) -> Option<u32> {
    let mut rounds = 8;
    while InterimAnalyses::new(most.max(rounds), rounds).power_by(rounds, ahead) < POWER {
        if rounds >= MAX_ROUNDS {
            return None;
        }
        rounds = (rounds + rounds / 4).min(MAX_ROUNDS);
    }
    Some(rounds)
}

/// The chance that a round shows the sign of a difference of this size, in normal noise as wide as what the rounds
/// scattered round their median; of which the farthest eighth does not count, since it changes no sign.
fn ahead(logs: &[f64], size: f64) -> Option<f64> {
    if logs.len() < MIN_ROUNDS as usize {
        return None;
    }
    let middle = estimate(logs.to_vec()).median;
    let mut away: Vec<f64> = logs.iter().map(|v| (v - middle).abs()).collect();
    away.sort_by(f64::total_cmp);
    away.truncate(logs.len() - logs.len() / 8);
    // Of a normal distribution the mean of these, and of so few round their own median, is 0.61 of its deviation.
    let width = away.iter().sum::<f64>() / away.len() as f64 / 0.61;
    Some(if width > 0.0 {
        normal(size / width)
    } else {
        1.0
    })
}

/// The noise of a round as a share of the figure: a normal distribution with this deviation has the same quartiles.
pub fn deviation(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quartiles =
        crate::overhead::quantile(&sorted, 0.75) - crate::overhead::quantile(&sorted, 0.25);
    quartiles / 1.349
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_correction_leaves_open_takes_few_rounds_more() {
        let rounds = rounds_for_correction(6, 6, 3.0).unwrap();
        assert!((8..=16).contains(&rounds), "{rounds}");
        assert!(rounds_for_correction(6, 6, 12.0).unwrap() > rounds);
        assert!(
            rounds_for_correction(14, 20, 3.0).unwrap() > 30,
            "a smaller part of the rounds"
        );
        assert_eq!(rounds_for_correction(3, 6, 1.0), None, "no side is ahead");
    }

    #[test]
    fn less_noise_and_larger_differences_take_fewer_rounds() {
        let noise: Vec<f64> = (0..12)
            .map(|i| 0.03 * ((i * 5 % 12) as f64 - 5.5) / 5.5)
            .collect();
        let rounds = |scale: f64, size: f64| {
            let logs: Vec<f64> = noise.iter().map(|v| v * scale).collect();
            rounds_needed(&logs, size, 40)
        };
        assert_eq!(rounds(1.0, 0.3), Some(8));
        let (coarse, fine) = (rounds(1.0, 0.03).unwrap(), rounds(1.0, 0.01).unwrap());
        assert!(
            coarse < fine && (8..30).contains(&coarse) && fine > 40,
            "{coarse} {fine}"
        );
        assert_eq!(rounds(3.0, 0.03), rounds(1.0, 0.01));
        assert_eq!(rounds(100.0, 0.01), None);
        assert_eq!(rounds(0.0, 0.01), Some(8));
        assert_eq!(rounds_needed(&[0.1; 3], 0.01, 40), None);
        // Six rounds with a deviation of 3 %: the median's interval is that of a normal distribution.
        let half = 1.96 * 1.2533 * 0.03 / 6_f64.sqrt();
        let interval = vmtax_model::Interval {
            low: 1.0 - half,
            high: 1.0 + half,
            coverage: 0.95,
        };
        let figure = |interval| Estimate {
            median: 1.0,
            interval,
        };
        let (noise, rounds) = from_the_past(&figure(Some(interval)), 6, 0.03, 40).unwrap();
        assert!((noise - 0.03 * 2_f64.sqrt()).abs() < 1e-9, "{noise}");
        assert!((20..60).contains(&rounds.unwrap()), "{rounds:?}");
        assert_eq!(from_the_past(&figure(None), 6, 0.03, 40), None);
    }
}
