//! Sizes of a range that a budget allows.

use std::time::Duration;
use vmtax_model::{FEWEST_ROUNDS, Plan, SizeRange};

/// A growth law needs so many sizes: they are measured whatever they take.
const FEWEST_SIZES: usize = 3;

/// Time of each size of a range with a budget in the first round, which has them in ascending order.
pub(super) struct SizeTimes<'a> {
    range: &'a SizeRange,
    budget_s: u32,
    /// Number of boots of a round that are taken to be as long as the ones that were timed: where all sizes share a
    /// boot, the first decides for the others.
    boots: usize,
    /// Seconds, of the sizes that were begun.
    spent: Vec<f64>,
}

impl<'a> SizeTimes<'a> {
    /// Of a plan's range before its first round; `None` without a budget.
    pub fn of(plan: &'a Plan) -> Option<SizeTimes<'a>> {
        let range = plan.range()?;
        let boots = if range.one_boot {
            plan.boots_per_round()
        } else {
            1
        };
        Some(SizeTimes {
            range,
            budget_s: range.budget_s?,
            boots,
            spent: Vec::new(),
        })
    }

    /// A machine ran at a step, in the first round.
    pub fn add(&mut self, step: usize, took: Duration) {
        self.spent.resize(self.spent.len().max(step + 1), 0.0);
        self.spent[step] += took.as_secs_f64();
    }

    /// Returns true if six rounds of the sizes up to this step, which is the next, would exceed the budget. The step's
    /// time is taken from the line through the two before it: a size whose time grows faster costs more.
    pub fn exceeds_budget(&self, step: usize) -> bool {
        let sizes = &self.range.steps;
        let [.., before, last] = self.spent[..] else {
            return false;
        };
        if step < FEWEST_SIZES || step != self.spent.len() {
            return false;
        }
        let run =
            (sizes[step] - sizes[step - 1]) as f64 / (sizes[step - 1] - sizes[step - 2]) as f64;
        let next = last + (last - before).max(0.0) * run;
        let round = (self.spent.iter().sum::<f64>() + next) * self.boots as f64;
        round * f64::from(FEWEST_ROUNDS) > f64::from(self.budget_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::Study;

    #[test]
    fn sizes_are_left_out_from_where_six_rounds_exceed_the_budget() {
        let steps = || vec![1000, 4000, 16_000, 64_000, 256_000];
        let text = "rounds = 6\nmachines = [\"tcg\"]\n[tree]\nfiles = 10\nbytes = 10000\n[range]\noption = \"open-fids.count\"\n\
                    steps = [1, 2, 3]\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n[[workload]]\nname = \"open-fids\"\n";
        let plan = |budget_s, one_boot| {
            let range = SizeRange {
                budget_s,
                one_boot,
                ..SizeRange::of("open-fids.count", steps())
            };
            Plan {
                study: Study::Scale(range),
                ..Plan::from_toml(text).unwrap()
            }
        };
        let exceeds_budget = |budget_s, spent: &[u64]| {
            let plan = plan(budget_s, false);
            let mut times = SizeTimes::of(&plan)?;
            for (step, seconds) in spent.iter().enumerate() {
                // Two machines.
                times.add(step, Duration::from_secs(*seconds));
                times.add(step, Duration::from_secs(*seconds));
            }
            Some(times.exceeds_budget(spent.len()))
        };
        assert_eq!(exceeds_budget(None, &[1, 2, 4]), None);
        // 2 + 4 + 8 s, and 24 s expected: 228 s in six rounds.
        assert_eq!(exceeds_budget(Some(229), &[1, 2, 4]), Some(false));
        assert_eq!(exceeds_budget(Some(227), &[1, 2, 4]), Some(true));
        assert_eq!(
            exceeds_budget(Some(1), &[1, 2]),
            Some(false),
            "three sizes are measured in any case"
        );
        assert_eq!(exceeds_budget(Some(1), &[]), Some(false));
        // A size that took less than the one before does not promise less of the next.
        assert_eq!(exceeds_budget(Some(119), &[2, 4, 2]), Some(true));
        assert_eq!(exceeds_budget(Some(120), &[2, 4, 2]), Some(false));
        // In one boot for all sizes the first variant's times count for both.
        for (budget_s, exceeds) in [(229, false), (227, true)] {
            let plan = plan(Some(budget_s), true);
            let mut times = SizeTimes::of(&plan).unwrap();
            for (step, seconds) in [1, 2, 4].into_iter().enumerate() {
                times.add(step, Duration::from_secs(seconds));
            }
            assert_eq!(times.exceeds_budget(3), exceeds);
        }
    }
}
