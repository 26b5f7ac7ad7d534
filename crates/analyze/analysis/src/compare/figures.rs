//! From trials to one value for each side, metric and round.

use super::interim::{InterimAnalyses, LEVEL};
use crate::estimate::median_of;
use std::collections::BTreeMap;
use vmtax_model::{Column, Machine, Metric, Plan, Probes, TrialRecord, Warning};

/// Below this much a host counts as steady.
const NOTABLE_DRIFT_PERCENT: f64 = 3.0;

/// The repeats of each turn in each round.
type Repeats = BTreeMap<u32, BTreeMap<u32, Vec<f64>>>;

/// Each turn's repeats, by side and metric. Where sides share a boot, each has two turns in a round, else one.
pub struct Figures<'a> {
    repeats: BTreeMap<(Metric, Column<'a>), Repeats>,
    warming_up: BTreeMap<Metric, usize>,
    trials: &'a [TrialRecord],
}

/// The column that a trial belongs to.
pub fn column(trial: &TrialRecord) -> Column<'_> {
    (
        trial.machine,
        if trial.machine.is_guest() {
            &trial.variant
        } else {
            ""
        },
    )
}

impl<'a> Figures<'a> {
    /// Of what was not observed: probes would be in the figures.
    pub fn new(trials: &'a [TrialRecord], columns: &[Column<'a>]) -> Figures<'a> {
        let mut repeats: BTreeMap<(Metric, Column<'a>), Repeats> = BTreeMap::new();
        let of_sides = trials
            .iter()
            .filter(|t| t.probes == Probes::None && columns.contains(&column(t)));
        for (trial, result) in of_sides.filter_map(|t| Some((t, t.result()?))) {
            for measure in result
                .measures
                .iter()
                .filter(|m| m.value.is_finite() && m.value >= 0.0)
            {
                let rounds = repeats.entry((measure.metric, column(trial))).or_default();
                let turns = rounds.entry(trial.round).or_default();
                turns
                    .entry(trial.turn.unwrap_or(0))
                    .or_default()
                    .push(measure.value);
            }
        }
        let mut turns: BTreeMap<Metric, Vec<&[f64]>> = BTreeMap::new();
        for ((metric, _), rounds) in &repeats {
            turns.entry(*metric).or_default().extend(
                rounds
                    .values()
                    .flat_map(BTreeMap::values)
                    .map(Vec::as_slice),
            );
        }
        let warming_up = turns
            .into_iter()
            .map(|(metric, turns)| (metric, warming_up(&turns)))
            .collect();
        Figures {
            repeats,
            warming_up,
            trials,
        }
    }

    /// Every metric that any side gave.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        self.warming_up.keys().copied()
    }

    /// A metric on a side by round: of several turns in a boot the geometric mean, which a steady drift within the boot does
    /// not change between A and B in A B B A. A round that lacks a turn has no value: what is left would contain the drift.
    pub fn values(&self, column: Column<'a>, metric: Metric) -> BTreeMap<u32, f64> {
        let cut = self.warming_up.get(&metric).copied().unwrap_or(0);
        let Some(rounds) = self.repeats.get(&(metric, column)) else {
            return BTreeMap::new();
        };
        let all = rounds.values().map(BTreeMap::len).max().unwrap_or(0);
        let whole = rounds.iter().filter(|(_, turns)| turns.len() == all);
        let value = |turns: &BTreeMap<u32, Vec<f64>>| {
            geometric_mean(turns.values().map(|turn| settled(turn, cut)))
        };
        whole.map(|(round, turns)| (*round, value(turns))).collect()
    }

    /// Returns the number of repeats that were only warming up, for the metrics that have any.
    pub fn warming_up(&self) -> BTreeMap<Metric, u32> {
        self.warming_up
            .iter()
            .filter(|(_, cut)| **cut > 0)
            .map(|(metric, cut)| (*metric, *cut as u32))
            .collect()
    }

    /// Rounds in which every side made every trial.
    pub fn rounds(&self, plan: &Plan) -> u32 {
        let per_round = plan.trials_per_round();
        let mut done: BTreeMap<u32, u64> = BTreeMap::new();
        for trial in self.trials.iter().filter(|t| t.result().is_some()) {
            *done.entry(trial.round).or_default() += 1;
        }
        done.values().filter(|count| **count >= per_round).count() as u32
    }

    /// Returns the duration of a round, s: the median time from one round's first trial to the next one's.
    pub fn round_s(&self) -> f64 {
        let mut begun: BTreeMap<u32, f64> = BTreeMap::new();
        for trial in self.trials {
            if let Ok(at) = trial.started.parse::<jiff::Timestamp>() {
                let at = at.as_millisecond() as f64 / 1e3;
                begun
                    .entry(trial.round)
                    .and_modify(|first| *first = first.min(at))
                    .or_insert(at);
            }
        }
        let starts: Vec<f64> = begun.into_values().collect();
        median_of(starts.windows(2).map(|w| w[1] - w[0]))
    }
}

/// The one value itself.
fn geometric_mean(mut values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    match values.next() {
        Some(first) if n > 1.0 => (values.map(f64::ln).sum::<f64>() / n + first.ln() / n).exp(),
        first => first.unwrap_or(f64::NAN),
    }
}

/// Returns the slowdown of the host's control from the fastest third of the run to the slowest, in percent; `None` if
/// it is negligible, or there are too few trials.
pub fn drift(trials: &[TrialRecord]) -> Option<u32> {
    let mut by_time: Vec<(u32, f64)> = trials
        .iter()
        .filter_map(|t| Some((t.number, t.control_s?)))
        .collect();
    by_time.sort_by_key(|(number, _)| *number);
    let third = by_time.len() / 3;
    if third < 4 {
        return None;
    }
    let thirds = by_time.chunks_exact(third).take(3);
    let middles = thirds.map(|part| median_of(part.iter().map(|(_, s)| *s)));
    let (fastest, slowest) = middles.fold((f64::MAX, 0.0_f64), |(low, high), m| {
        (low.min(m), high.max(m))
    });
    let percent = (slowest / fastest - 1.0) * 100.0;
    (percent.is_finite() && percent >= NOTABLE_DRIFT_PERCENT).then_some(percent.round() as u32)
}

/// Trials without a result.
pub fn missing(plan: &Plan, trials: &[TrialRecord], columns: &[Column<'_>]) -> Vec<Warning> {
    let failed = |machine: &Machine| {
        let of_machine = || {
            trials
                .iter()
                .filter(|t| t.machine == *machine && columns.contains(&column(t)))
        };
        let missing = of_machine().filter(|t| t.result().is_none()).count() as u32;
        let reason = of_machine().find_map(TrialRecord::failure)?.to_owned();
        Some(Warning::TrialsMissing {
            machine: *machine,
            missing,
            planned: of_machine().count() as u32,
            reason,
        })
    };
    plan.machines.iter().filter_map(failed).collect()
}

/// Sides that turned out to differ in what nobody set: the guest's kernel, the timer.
pub fn also_differ(plan: &Plan, trials: &[TrialRecord], columns: &[Column<'_>]) -> Vec<Warning> {
    let found = |side: &Column<'_>| {
        let result = trials
            .iter()
            .filter(|t| column(t) == *side)
            .find_map(TrialRecord::result)?;
        Some((
            result.kernel.release.clone(),
            format!("{:?}", result.timer.source),
        ))
    };
    let asked = |side: &Column<'_>, key: &str| {
        plan.variants
            .iter()
            .any(|v| v.name == side.1 && v.get(key).is_some())
    };
    let Some((base, others)) = columns.split_first() else {
        return Vec::new();
    };
    let Some((kernel, timer)) = found(base) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for side in others {
        let Some((own_kernel, own_timer)) = found(side) else {
            continue;
        };
        let mut add = |what: String| {
            all.push(Warning::AlsoDiffer {
                variant: name(*side),
                what,
            })
        };
        let kernel_asked = asked(side, "kernel")
            || asked(base, "kernel")
            || side.0.is_guest() != base.0.is_guest();
        if own_kernel != kernel && !kernel_asked {
            add(format!(
                "its kernel is {own_kernel}, the baseline's {kernel}"
            ));
        }
        if own_timer != timer {
            add(format!(
                "it is timed by {own_timer}, the baseline by {timer}"
            ));
        }
    }
    all
}

/// Returns the name of a side: its variant, else its machine.
pub(super) fn name((machine, variant): Column<'_>) -> String {
    if variant.is_empty() {
        machine.to_string()
    } else {
        variant.to_owned()
    }
}

/// Returns the number of repeats at the beginning of every turn that are only warming up: in most turns they lie on
/// one side of those behind them (the sign test at 5 %, over all turns of all variants alike, so that no variant is
/// favored). At most half.
fn warming_up(turns: &[&[f64]]) -> usize {
    let most = turns.iter().map(|turn| turn.len()).max().unwrap_or(0) / 2;
    let differs = |i: &usize| {
        let long_enough = turns.iter().filter(|turn| turn.len() > i + 1);
        let signs: Vec<f64> = long_enough
            .map(|turn| turn[*i] - median_of(turn[i + 1..].iter().copied()))
            .collect();
        let count = signs.len() as u32;
        InterimAnalyses::new(count, count).p(&signs) <= LEVEL
    };
    (0..most).take_while(differs).count()
}

/// Returns a turn's value: the median of its repeats after those that were warming up.
fn settled(turn: &[f64], warming_up: usize) -> f64 {
    let rest = turn.get(warming_up..).filter(|rest| !rest.is_empty());
    median_of(rest.unwrap_or(turn).iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repeat_is_cut_where_it_is_slower_in_most_turns() {
        let noise = |i: usize| ((i * 7) % 10) as f64 / 100.0;
        let turns: Vec<[f64; 4]> = (0..16)
            .map(|i| {
                [
                    1.5 + noise(i),
                    1.0 + noise(i + 1),
                    1.0 + noise(i + 3),
                    1.0 + noise(i + 7),
                ]
            })
            .collect();
        let slices: Vec<&[f64]> = turns.iter().map(|t| t.as_slice()).collect();
        assert_eq!(warming_up(&slices), 1);
        assert!(settled(slices[0], 1) < 1.1);
        let even: Vec<&[f64]> = slices.iter().map(|t| &t[1..]).collect();
        assert_eq!(warming_up(&even), 0);
        assert_eq!(warming_up(&[]), 0);
        assert_eq!(warming_up(&[&[1.0][..]; 20]), 0);
        assert_eq!(settled(&[3.0], 1), 3.0);
    }
}
