//! What to measure next on a running VM: each candidate on top of what has helped so far; each that helped anew, against all
//! others that did; all of them against none.

use super::series::{Decision, Series};
use std::time::Duration;
use vmtax_model::{PairPlan, TunePhase, TuneRecord, TuneSpec, TuneStep};

/// The part of the time for screening.
const SCREENING: f64 = 0.6;

/// The next step, from what was recorded so far. The order within a pair is drawn by `seed`: of two pairs in a row one is A B, the
/// other B A, so that what drifts meanwhile cancels.
pub fn next_step(spec: &TuneSpec, seed: u64, records: &[TuneRecord]) -> TuneStep {
    let pair = |phase, changed: Vec<usize>, base: Vec<usize>| {
        let number = Series::of(spec, records, phase, &changed).pairs() as u64;
        let is_first = is_drawn(seed, phase, &changed, number / 2) != (number % 2 == 1);
        TuneStep::Pair(PairPlan { phase, changed, base, changed_first: is_first })
    };
    let elapsed = elapsed(records);
    let mut helped = Vec::new();
    for candidate in (0..spec.candidates.len()).filter(|candidate| !is_refused(records, *candidate)) {
        let screening = Series::of(spec, records, TunePhase::Screening, &[candidate]);
        match screening.decision() {
            Some(Decision::Helps) => helped.push(candidate),
            Some(_) => {}
            None if elapsed < spec.time().mul_f64(SCREENING) => {
                return pair(TunePhase::Screening, vec![candidate], helped);
            }
            None => {}
        }
    }
    let mut kept = Vec::new();
    for candidate in helped.iter().copied() {
        match Series::of(spec, records, TunePhase::Confirmation, &[candidate]).decision() {
            Some(Decision::Helps) => kept.push(candidate),
            None if elapsed < spec.time() => {
                let others = helped.iter().copied().filter(|other| *other != candidate).collect();
                return pair(TunePhase::Confirmation, vec![candidate], others);
            }
            _ => {}
        }
    }
    let total = Series::of(spec, records, TunePhase::Total, &kept);
    // Of one that is kept alone the confirmation is the total.
    let is_measured = kept.is_empty() || helped.len() == 1 || total.decision().is_some() || elapsed >= spec.time();
    if is_measured { TuneStep::End(kept) } else { pair(TunePhase::Total, kept, Vec::new()) }
}

/// Whether a candidate could not be set.
pub(super) fn is_refused(records: &[TuneRecord], candidate: usize) -> bool {
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
    let spans = blocks.flatten().map(|block| (block.before.at_ns, block.after.at_ns));
    let whole = spans.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)));
    whole.map_or(Duration::ZERO, |(first, last)| Duration::from_nanos(last.saturating_sub(first)))
}

/// A coin for each two pairs (splitmix64: G. L. Steele, D. Lea, C. H. Flood, *Fast splittable pseudorandom number
/// generators*, OOPSLA 2014).
fn is_drawn(seed: u64, phase: TunePhase, changed: &[usize], number: u64) -> bool {
    let first = changed.first().copied().unwrap_or(0) as u64;
    let key = seed ^ ((phase as u64) << 56) ^ (first << 40) ^ number;
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) & 1 == 1
}
