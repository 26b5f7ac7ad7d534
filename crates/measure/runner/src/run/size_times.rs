//! Which sizes of a range a budget allows.

use std::time::Duration;
use vmtax_model::{FEWEST_ROUNDS, SizeRange};

/// A growth law needs so many sizes: they are measured whatever they take.
const FEWEST_SIZES: usize = 3;

/// What each size of a range with a budget took in the first round, which has them in ascending order.
pub(super) struct SizeTimes<'a> {
    range: &'a SizeRange,
    budget_s: u32,
    /// Seconds, of the sizes that were begun.
    spent: Vec<f64>,
}

impl<'a> SizeTimes<'a> {
    /// Of a range before its first round; `None` without a budget.
    pub fn of(range: &'a SizeRange) -> Option<SizeTimes<'a>> {
        Some(SizeTimes { range, budget_s: range.budget_s?, spent: Vec::new() })
    }

    /// A machine ran at a step.
    pub fn add(&mut self, step: usize, took: Duration) {
        self.spent.resize(self.spent.len().max(step + 1), 0.0);
        self.spent[step] += took.as_secs_f64();
    }

    /// Whether six rounds of the sizes up to this step, which is the next, would exceed the budget. It is taken to cost what
    /// the line through the two before it says: what grows faster costs more.
    pub fn exceeds_budget(&self, step: usize) -> bool {
        let sizes = &self.range.steps;
        let [.., before, last] = self.spent[..] else { return false };
        if step < FEWEST_SIZES || step != self.spent.len() {
            return false;
        }
        let run = (sizes[step] - sizes[step - 1]) as f64 / (sizes[step - 1] - sizes[step - 2]) as f64;
        let next = last + (last - before).max(0.0) * run;
        (self.spent.iter().sum::<f64>() + next) * f64::from(FEWEST_ROUNDS) > f64::from(self.budget_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_left_out_from_where_six_rounds_exceed_the_budget() {
        let of = |budget_s, spent: &[u64]| {
            let range =
                SizeRange { budget_s, ..SizeRange::of("open-fids.count", vec![1000, 4000, 16_000, 64_000, 256_000]) };
            let mut times = SizeTimes::of(&range)?;
            for (step, seconds) in spent.iter().enumerate() {
                // Two machines.
                times.add(step, Duration::from_secs(*seconds));
                times.add(step, Duration::from_secs(*seconds));
            }
            Some(times.exceeds_budget(spent.len()))
        };
        assert_eq!(of(None, &[1, 2, 4]), None);
        // 2 + 4 + 8 s, and 24 s expected: 228 s in six rounds.
        assert_eq!(of(Some(229), &[1, 2, 4]), Some(false));
        assert_eq!(of(Some(227), &[1, 2, 4]), Some(true));
        assert_eq!(of(Some(1), &[1, 2]), Some(false), "three sizes are measured in any case");
        assert_eq!(of(Some(1), &[]), Some(false));
        // A size that took less than the one before does not promise less of the next.
        assert_eq!(of(Some(119), &[2, 4, 2]), Some(true));
        assert_eq!(of(Some(120), &[2, 4, 2]), Some(false));
    }
}
