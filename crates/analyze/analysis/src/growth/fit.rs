//! Costs along a range, by round and step; the curve of a growth law through them, and which fits best: each is fitted to all
//! rounds but one, and judged by the one that it has not seen.

use crate::estimate::{ascending, median};
use vmtax_findings::Law;

/// Re-weighting settles in a few steps.
const STEPS: usize = 8;

/// Rounds of costs, a place for each step; what gave no value is `None`. Costs are above 0.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Points {
    /// The steps' sizes, rising.
    pub sizes: Vec<f64>,
    /// The rounds, as many places each as there are sizes.
    pub rounds: Vec<Vec<Option<f64>>>,
    /// True if a round's costs are of one boot, in ascending order of the sizes.
    pub one_boot: bool,
}

impl Points {
    /// Returns the points without steps that have no value in any round, and without rounds that have none.
    pub fn filled(&self) -> Points {
        let kept: Vec<usize> = (0..self.sizes.len())
            .filter(|&k| self.rounds.iter().any(|r| r[k].is_some()))
            .collect();
        let only = |round: &Vec<Option<f64>>| kept.iter().map(|&k| round[k]).collect::<Vec<_>>();
        Points {
            sizes: kept.iter().map(|&k| self.sizes[k]).collect(),
            one_boot: self.one_boot,
            rounds: self
                .rounds
                .iter()
                .filter(|r| r.iter().any(Option::is_some))
                .map(only)
                .collect(),
        }
    }

    /// These, in the rounds only that others have.
    pub fn in_rounds_of(&self, others: &Points) -> Points {
        let rounds = self
            .rounds
            .iter()
            .zip(&others.rounds)
            .filter(|(_, other)| other.iter().any(Option::is_some));
        Points {
            rounds: rounds.map(|(own, _)| own.clone()).collect(),
            sizes: self.sizes.clone(),
            ..*self
        }
    }

    /// Returns the points without one round.
    pub fn without(&self, left_out: usize) -> Points {
        let others = self
            .rounds
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != left_out);
        Points {
            rounds: others.map(|(_, r)| r.clone()).collect(),
            sizes: self.sizes.clone(),
            ..*self
        }
    }

    /// The median of each round's costs; `None` for a round without any.
    pub fn levels(&self) -> Vec<Option<f64>> {
        self.rounds
            .iter()
            .map(|round| middle(round.iter().copied().flatten()))
            .collect()
    }

    /// Each step's typical cost once the rounds are brought to one level: Tukey's median polish of the logarithms. What
    /// slows a whole round falls on its level, a lone outlier on nothing. `None` for a step without a value.
    pub fn centers(&self) -> Vec<Option<f64>> {
        const POLISH: usize = 8;
        let mut levels = vec![0.0; self.rounds.len()];
        let mut centers = vec![None; self.sizes.len()];
        for _ in 0..POLISH {
            for (k, center) in centers.iter_mut().enumerate() {
                let column = self.rounds.iter().zip(&levels);
                *center = middle(column.filter_map(|(round, level)| Some(round[k]?.ln() - level)));
            }
            for (round, level) in self.rounds.iter().zip(&mut levels) {
                let row = round.iter().zip(&centers);
                *level = middle(row.filter_map(|(v, center)| Some((*v)?.ln() - (*center)?)))
                    .unwrap_or(0.0);
            }
            // The rounds' levels are around 1, so that the steps' are costs.
            let shift = middle(levels.iter().copied()).unwrap_or(0.0);
            levels.iter_mut().for_each(|level| *level -= shift);
        }
        centers.into_iter().map(|c| c.map(f64::exp)).collect()
    }
}

/// The median; `None` of nothing.
pub(super) fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let sorted = ascending(values);
    (!sorted.is_empty()).then(|| median(&sorted))
}

/// A growth law with its two figures: a constant part and the growing part's factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub law: Law,
    pub constant: f64,
    pub factor: f64,
}

impl Line {
    pub fn at(&self, size: f64) -> f64 {
        self.constant + self.factor * self.law.at(size)
    }

    /// The growth law through the costs of one round, both figures free: the median of the slopes between any two steps, of
    /// which each weighs by how far its steps are apart against their typical costs (Theil and Sen, weighted as Jaeckel
    /// has it). `None` for fewer than two costs.
    pub fn robust(
        law: Law,
        sizes: &[f64],
        costs: &[Option<f64>],
        typical: &[Option<f64>],
    ) -> Option<Line> {
        let points: Vec<[f64; 3]> = known(law, sizes, costs, typical).collect();
        let pairs = points
            .iter()
            .enumerate()
            .flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (a, b)));
        let slopes =
            pairs.map(|([x, y, t], [x2, y2, t2])| ((y2 - y) / (x2 - x), (x2 - x) / t.max(*t2)));
        let factor = weighted_median(slopes.collect())?;
        let constants = points.iter().map(|[x, y, t]| (y - factor * x, 1.0 / t));
        Some(Line {
            law,
            constant: weighted_median(constants.collect())?,
            factor,
        })
    }

    /// The growth law through costs by least squares, both figures free; an error weighs by its share of the step's typical
    /// cost. `None` for fewer than two costs.
    fn free(
        law: Law,
        sizes: &[f64],
        costs: &[Option<f64>],
        typical: &[Option<f64>],
    ) -> Option<Line> {
        let points: Vec<[f64; 3]> = known(law, sizes, costs, typical)
            .map(|[x, y, t]| [x, y, t.powi(-2)])
            .collect();
        let (constant, factor) = least_squares(&points)?;
        Some(Line {
            law,
            constant,
            factor,
        })
    }

    /// The growth law through the steps' typical costs, neither figure below 0: no cost is.
    pub fn through(law: Law, sizes: &[f64], centers: &[Option<f64>]) -> Option<Line> {
        let mut typical = centers.to_vec();
        let mut line = None;
        for _ in 0..STEPS {
            let mut fitted = Line::free(law, sizes, centers, &typical)?;
            let sum = |of: &dyn Fn(f64, f64) -> f64| {
                let points = known(law, sizes, centers, &typical);
                points.map(|[f, c, t]| of(f, c) / (t * t)).sum::<f64>()
            };
            if fitted.factor < 0.0 {
                fitted = Line {
                    constant: sum(&|_, c| c) / sum(&|_, _| 1.0),
                    factor: 0.0,
                    ..fitted
                };
            } else if fitted.constant < 0.0 {
                fitted = Line {
                    constant: 0.0,
                    factor: sum(&|f, c| f * c) / sum(&|f, _| f * f),
                    ..fitted
                };
            }
            // log 1 is nothing: a growth law through it alone has no cost there to weigh by.
            let weigh = |n: f64, center: f64| fitted.at(n).max(center * 0.05);
            typical = sizes
                .iter()
                .zip(centers)
                .map(|(n, c)| c.map(|c| weigh(*n, c)))
                .collect();
            line = Some(fitted);
        }
        line
    }
}

/// Returns the growth by a growth law, the cost and the typical cost of each step where both costs are known.
fn known<'a>(
    law: Law,
    sizes: &'a [f64],
    costs: &'a [Option<f64>],
    typical: &'a [Option<f64>],
) -> impl Iterator<Item = [f64; 3]> + 'a {
    let steps = sizes.iter().zip(costs).zip(typical);
    steps.filter_map(move |((n, cost), typical)| Some([law.at(*n), (*cost)?, (*typical)?]))
}

/// The value below which half of the weight lies; `None` of nothing.
fn weighted_median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let reached = |(_, weight): &&(f64, f64)| {
        below += weight;
        below >= half
    };
    values.iter().find(reached).map(|(value, _)| *value)
}

fn least_squares(points: &[[f64; 3]]) -> Option<(f64, f64)> {
    let sum = |of: fn(&[f64; 3]) -> f64| points.iter().map(of).sum::<f64>();
    let weight = sum(|[_, _, w]| *w);
    let (x, y) = (
        sum(|[x, _, w]| x * w) / weight,
        sum(|[_, y, w]| y * w) / weight,
    );
    let (mut across, mut both) = (0.0, 0.0);
    for [px, py, w] in points {
        across += w * (px - x).powi(2);
        both += w * (px - x) * (py - y);
    }
    let factor = both / across;
    (points.len() > 1 && factor.is_finite()).then_some((y - factor * x, factor))
}

/// The growth law, of these, that predicts best the rounds that it has not seen. A logarithm on top of n has to be shown:
/// the simpler growth law stands as long as it may. `None` for fewer than two rounds or three steps.
pub(super) fn best(points: &Points, among: &[Law]) -> Option<Law> {
    if points.rounds.len() < 2 || points.sizes.len() < 3 {
        return None;
    }
    let mut losses: Vec<(Law, f64)> = among.iter().map(|law| (*law, 0.0)).collect();
    for (left_out, round) in points.rounds.iter().enumerate() {
        let centers = points.without(left_out).centers();
        for (law, sum) in &mut losses {
            *sum += loss(
                &Line::through(*law, &points.sizes, &centers)?,
                &points.sizes,
                round,
            );
        }
    }
    let (best, _) = losses.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(
        if best == Law::Linearithmic && among.contains(&Law::Linear) {
            Law::Linear
        } else {
            best
        },
    )
}

/// Returns the distance of a round from a growth law's shape: the sum of the steps' relative errors once the round is
/// scaled to the growth law's level.
fn loss(line: &Line, sizes: &[f64], round: &[Option<f64>]) -> f64 {
    let errors = || {
        sizes
            .iter()
            .zip(round)
            .filter_map(|(n, cost)| Some((*cost)?.ln() - line.at(*n).max(1e-9).ln()))
    };
    let level = middle(errors()).unwrap_or(0.0);
    errors().map(|e| (e - level).abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounds_level_and_an_outlier_leave_the_centers_alone() {
        let shape = [10.0, 20.0, 40.0, 80.0];
        let level = [1.0, 3.0, 0.5, 1.0, 2.0];
        let mut rounds: Vec<Vec<Option<f64>>> = level
            .iter()
            .map(|l| shape.iter().map(|s| Some(s * l)).collect())
            .collect();
        rounds[1][2] = Some(1e6);
        rounds[3][0] = None;
        let centers = Points {
            sizes: vec![1.0, 2.0, 3.0, 4.0],
            rounds,
            one_boot: false,
        }
        .centers();
        for (center, cost) in centers.iter().zip(shape) {
            assert!((center.unwrap() / cost - 1.0).abs() < 1e-9, "{centers:?}");
        }
    }
}
