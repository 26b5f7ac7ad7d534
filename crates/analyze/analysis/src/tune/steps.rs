//! Steps of a running VM's tuning: each candidate on top of those that have helped so far; each that helped again,
//! against all others that did; all of them against none.

use super::series::series;
use crate::pairs::Decision;
use std::time::Duration;
use vmtax_model::{PairPlan, TunePhase, TuneRecord, TuneSpec, TuneStep};

/// The parts of the time after which no screening, and no confirmation, is begun: the rest is for what comes after.
const SCREENING: f64 = 0.6;
const CONFIRMATION: f64 = 0.85;

/// Result of the measurements so far.
pub(super) struct InterimResult {
    /// Next pair to measure; `None` if nothing is left, or no time.
    pub next: Option<PairPlan>,
    /// The candidates that helped twice, and of which all together are shown to help.
    pub kept: Vec<usize>,
    /// The phase whose pairs show that: of a single one its confirmation.
    pub phase: TunePhase,
}

/// The next step, from what was recorded so far. The order within a pair is drawn by `seed`: of two pairs in a row one is A B, the
/// other B A, so that what drifts meanwhile cancels.
pub fn next_step(spec: &TuneSpec, seed: u64, records: &[TuneRecord]) -> TuneStep {
    let InterimResult { next, kept, .. } = outcome(spec, records);
    let Some(pair) = next else {
        return TuneStep::End(kept);
    };
    let number = series(spec, records, pair.phase, &pair.changed).pairs() as u64;
    let changed_first = is_drawn(seed, pair.phase, &pair.changed, number / 2) != (number % 2 == 1);
    TuneStep::Pair(PairPlan {
        changed_first,
        ..pair
    })
}

/// Returns the candidates to keep by the records so far, and the next pair to measure.
pub(super) fn outcome(spec: &TuneSpec, records: &[TuneRecord]) -> InterimResult {
    let pair = |phase, changed: Vec<usize>, base: Vec<usize>| {
        let next = Some(PairPlan {
            phase,
            changed,
            base,
            changed_first: false,
        });
        InterimResult {
            next,
            kept: Vec::new(),
            phase,
        }
    };
    let has_time = |part: f64| elapsed(records) < spec.time().mul_f64(part);
    let mut helped = Vec::new();
    for candidate in (0..spec.candidates.len()).filter(|candidate| !is_refused(records, *candidate))
    {
        let screening = series(spec, records, TunePhase::Screening, &[candidate]);
        match screening.decision() {
            Some(Decision::Helps) => helped.push(candidate),
            None if has_time(SCREENING) => {
                return pair(TunePhase::Screening, vec![candidate], helped);
            }
            _ => {}
        }
    }
    let mut kept = Vec::new();
    for candidate in helped.iter().copied() {
        match series(spec, records, TunePhase::Confirmation, &[candidate]).decision() {
            Some(Decision::Helps) => kept.push(candidate),
            None if has_time(CONFIRMATION) => {
                let others = helped
                    .iter()
                    .copied()
                    .filter(|other| *other != candidate)
                    .collect();
                return pair(TunePhase::Confirmation, vec![candidate], others);
            }
            _ => {}
        }
    }
    // A confirmation beside nothing else is the total.
    let phase = if helped.len() == 1 {
        TunePhase::Confirmation
    } else {
        TunePhase::Total
    };
    let total = series(spec, records, phase, &kept);
    match total.decision() {
        _ if kept.is_empty() => InterimResult {
            next: None,
            kept,
            phase,
        },
        Some(Decision::Helps) => InterimResult {
            next: None,
            kept,
            phase,
        },
        None if has_time(1.0) => pair(phase, kept, Vec::new()),
        _ => InterimResult {
            next: None,
            kept: Vec::new(),
            phase,
        },
    }
}

/// Returns true if a candidate could not be set.
fn is_refused(records: &[TuneRecord], candidate: usize) -> bool {
    records
        .iter()
        .any(|record| matches!(record, TuneRecord::Refused { candidate: refused, .. } if *refused == candidate))
}

/// From the first measurement's start to the last one's end.
pub(super) fn elapsed(records: &[TuneRecord]) -> Duration {
    let blocks = records.iter().filter_map(|record| match record {
        TuneRecord::Pair { without, with, .. } => Some([without, with]),
        _ => None,
    });
    let spans = blocks
        .flatten()
        .map(|block| (block.before.at_ns, block.after.at_ns));
    let whole = spans.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)));
    whole.map_or(Duration::ZERO, |(first, last)| {
        Duration::from_nanos(last.saturating_sub(first))
    })
}

/// A coin for each two pairs.
fn is_drawn(seed: u64, phase: TunePhase, changed: &[usize], number: u64) -> bool {
    let first = changed.first().copied().unwrap_or(0) as u64;
    fastrand::Rng::with_seed(seed ^ ((phase as u64) << 56) ^ (first << 40) ^ number).bool()
}
