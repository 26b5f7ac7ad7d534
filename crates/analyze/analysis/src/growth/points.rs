//! Costs along a range, by round and step.

use crate::overhead::median;

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
    pub fn centres(&self) -> Vec<Option<f64>> {
        const POLISH: usize = 8;
        let mut levels = vec![0.0; self.rounds.len()];
        let mut centres = vec![None; self.sizes.len()];
        for _ in 0..POLISH {
            for (k, centre) in centres.iter_mut().enumerate() {
                let column = self.rounds.iter().zip(&levels);
                *centre = middle(column.filter_map(|(round, level)| Some(round[k]?.ln() - level)));
            }
            for (round, level) in self.rounds.iter().zip(&mut levels) {
                let row = round.iter().zip(&centres);
                *level = middle(row.filter_map(|(v, centre)| Some((*v)?.ln() - (*centre)?)))
                    .unwrap_or(0.0);
            }
            // The rounds' levels are around 1, so that the steps' are costs.
            let shift = middle(levels.iter().copied()).unwrap_or(0.0);
            levels.iter_mut().for_each(|level| *level -= shift);
        }
        centres.into_iter().map(|c| c.map(f64::exp)).collect()
    }
}

/// The median; `None` of nothing.
pub(super) fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median(&sorted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounds_level_and_an_outlier_leave_the_centres_alone() {
        let shape = [10.0, 20.0, 40.0, 80.0];
        let level = [1.0, 3.0, 0.5, 1.0, 2.0];
        let mut rounds: Vec<Vec<Option<f64>>> = level
            .iter()
            .map(|l| shape.iter().map(|s| Some(s * l)).collect())
            .collect();
        rounds[1][2] = Some(1e6);
        rounds[3][0] = None;
        let centres = Points {
            sizes: vec![1.0, 2.0, 3.0, 4.0],
            rounds,
            one_boot: false,
        }
        .centres();
        for (centre, cost) in centres.iter().zip(shape) {
            assert!((centre.unwrap() / cost - 1.0).abs() < 1e-9, "{centres:?}");
        }
    }
}
