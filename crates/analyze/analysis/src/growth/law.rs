//! The curve of a growth law through costs, and which fits best: each is fitted to all rounds but one, and judged by the
//! one that it has not seen.

use super::points::{Points, middle};
use vmtax_model::Law;

/// Re-weighting settles in a few steps.
const STEPS: usize = 8;

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
        let points: Vec<[f64; 3]> = sizes
            .iter()
            .zip(costs)
            .zip(typical)
            .filter_map(|((n, cost), typical)| Some([law.at(*n), (*cost)?, (*typical)?]))
            .collect();
        let pairs = points
            .iter()
            .enumerate()
            .flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (a, b)));
        let slopes =
            pairs.map(|([x, y, t], [x2, y2, t2])| ((y2 - y) / (x2 - x), (x2 - x) / t.max(*t2)));
        let factor = weighted_median(slopes.collect())?;
        let constant = weighted_median(
            points
                .iter()
                .map(|[x, y, t]| (y - factor * x, 1.0 / t))
                .collect(),
        )?;
        Some(Line {
            law,
            constant,
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
        let points: Vec<[f64; 3]> = sizes
            .iter()
            .zip(costs)
            .zip(typical)
            .filter_map(|((n, cost), typical)| Some([law.at(*n), (*cost)?, (*typical)?.powi(-2)]))
            .collect();
        let (constant, factor) = least_squares(&points)?;
        Some(Line {
            law,
            constant,
            factor,
        })
    }

    /// The growth law through the steps' typical costs, neither figure below 0: no cost is.
    pub fn through(law: Law, sizes: &[f64], centres: &[Option<f64>]) -> Option<Line> {
        let mut typical = centres.to_vec();
        let mut line = None;
        for _ in 0..STEPS {
            let mut fitted = Line::free(law, sizes, centres, &typical)?;
            let points = || {
                sizes
                    .iter()
                    .zip(centres)
                    .zip(&typical)
                    .filter_map(|((n, c), t)| Some((*n, (*c)?, (*t)?)))
            };
            let sum = |of: &dyn Fn(f64, f64) -> f64| {
                points()
                    .map(|(n, c, t)| of(law.at(n), c) / (t * t))
                    .sum::<f64>()
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
            let weigh = |n: f64, centre: f64| fitted.at(n).max(centre * 0.05);
            typical = sizes
                .iter()
                .zip(centres)
                .map(|(n, c)| c.map(|c| weigh(*n, c)))
                .collect();
            line = Some(fitted);
        }
        line
    }
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
        let centres = points.without(left_out).centres();
        for (law, sum) in &mut losses {
            *sum += loss(
                &Line::through(*law, &points.sizes, &centres)?,
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
