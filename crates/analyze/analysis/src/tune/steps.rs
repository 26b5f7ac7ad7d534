//! Steps of a running VM's tuning: each candidate on top of those that have helped so far; each that helped again,
//! against all others that did; all of them against none. Each is decided by its pairs of measurements, as ratios of costs.

use crate::pairs::{Decision, MAX_PAIRS, PairSeries};
use crate::rates;
use std::time::Duration;
use vmtax_findings::VmRates;
use vmtax_model::{
    Candidate, LiveChange, LiveMetric, PairPlan, TuneBlock, TuneMetric, TunePhase, TuneRecord,
    TuneSpec, TuneStep, VmFacts,
};

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

impl InterimResult {
    /// Nothing is left to measure.
    fn end(kept: Vec<usize>, phase: TunePhase) -> InterimResult {
        InterimResult {
            next: None,
            kept,
            phase,
        }
    }

    /// A pair with and without the `changed` candidates, beside those of `base`, is measured next.
    fn pair(phase: TunePhase, changed: Vec<usize>, base: Vec<usize>) -> InterimResult {
        let next = Some(PairPlan {
            phase,
            changed,
            base,
            changed_first: false,
        });
        InterimResult {
            next,
            ..InterimResult::end(Vec::new(), phase)
        }
    }
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
    let has_time = |part: f64| elapsed(records) < spec.time().mul_f64(part);
    let mut helped = Vec::new();
    for candidate in (0..spec.candidates.len()).filter(|candidate| !is_refused(records, *candidate))
    {
        let screening = series(spec, records, TunePhase::Screening, &[candidate]);
        match screening.decision() {
            Some(Decision::Helps) => helped.push(candidate),
            None if has_time(SCREENING) => {
                return InterimResult::pair(TunePhase::Screening, vec![candidate], helped);
            }
            _ => {}
        }
    }
    let mut kept = Vec::new();
    for candidate in helped.clone() {
        match series(spec, records, TunePhase::Confirmation, &[candidate]).decision() {
            Some(Decision::Helps) => kept.push(candidate),
            None if has_time(CONFIRMATION) => {
                let mut others = helped;
                others.retain(|other| *other != candidate);
                return InterimResult::pair(TunePhase::Confirmation, vec![candidate], others);
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
    match series(spec, records, phase, &kept).decision() {
        decision if kept.is_empty() || decision == Some(Decision::Helps) => {
            InterimResult::end(kept, phase)
        }
        None if has_time(1.0) => InterimResult::pair(phase, kept, Vec::new()),
        _ => InterimResult::end(Vec::new(), phase),
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

/// The pairs of a phase in which these candidates change, by the figure that counts.
pub(super) fn series(
    spec: &TuneSpec,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
) -> PairSeries {
    let candidate = changed
        .first()
        .and_then(|first| spec.candidates.get(*first));
    let Some((vm, candidate)) = facts(records).zip(candidate) else {
        return PairSeries::default();
    };
    let cost = |block| cost(spec, candidate, vm, block);
    // A recording of somebody else may have any number.
    pairs(records, phase, changed)
        .take(3 * MAX_PAIRS as usize)
        .map(|[without, with]| Some((cost(with)? / cost(without)?).ln()))
        .collect()
}

/// Returns the measurements of a phase in which these candidates change: each without them and with them.
pub(super) fn pairs<'a>(
    records: &'a [TuneRecord],
    phase: TunePhase,
    changed: &[usize],
) -> impl Iterator<Item = [&'a TuneBlock; 2]> {
    records.iter().filter_map(move |record| match record {
        TuneRecord::Pair {
            plan,
            without,
            with,
        } if plan.is_of(phase, changed) => Some([&**without, &**with]),
        _ => None,
    })
}

/// Returns the facts of the VM; `None` if they are not recorded.
pub(super) fn facts(records: &[TuneRecord]) -> Option<&VmFacts> {
    records.iter().find_map(|record| match record {
        TuneRecord::Vm(vm) => Some(&**vm),
        _ => None,
    })
}

/// Returns the deciding figure of a measurement as a cost: above 0, and more is worse. `None` without such a figure,
/// or where it is 0.
fn cost(spec: &TuneSpec, candidate: &Candidate, vm: &VmFacts, block: &TuneBlock) -> Option<f64> {
    let rates = || rates(vm, &block.before, &block.after);
    let (value, is_rate) = match &spec.metric {
        Some(TuneMetric::Command {
            higher_is_better, ..
        }) => (block.printed?, *higher_is_better),
        Some(TuneMetric::Vm(metric)) => (figure(*metric, None, &rates()?)?, metric.is_rate()),
        None => {
            let LiveChange { metric, disk, .. } = &candidate.change;
            let metric = (*metric)?;
            let value = figure(metric, disk.as_deref(), &rates()?)?;
            (value, metric.is_rate())
        }
    };
    Some(if is_rate { 1.0 / value } else { value }).filter(|cost| cost.is_finite() && *cost > 0.0)
}

/// A figure of the VM in a measurement; of requests those of this disk, else of all.
pub(super) fn figure(metric: LiveMetric, disk: Option<&str>, rates: &VmRates) -> Option<f64> {
    let io = || match disk {
        Some(name) => rates.disk(name)?.io,
        None => rates.io,
    };
    match metric {
        LiveMetric::Latency => io()?.blkavg_ns,
        LiveMetric::WriteLatency => io()?.write_and_flush_ns,
        LiveMetric::Throughput => io().map(|io| io.read_bytes_per_s + io.written_bytes_per_s),
        LiveMetric::Requests => io().map(|io| io.per_s()),
        LiveMetric::Run => rates.run,
        LiveMetric::Exits => rates.exits.map(|exits| exits.per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{DiskRates, IoRates};

    #[test]
    fn a_disks_figure_is_its_own_whatever_the_others_do() {
        let io = |requests: f64, ns| IoRates {
            reads_per_s: requests,
            read_bytes_per_s: requests * 4096.0,
            blkavg_ns: Some(ns),
            ..IoRates::default()
        };
        let disk = |name: &str, io| DiskRates {
            name: name.to_owned(),
            io: Some(io),
            ..DiskRates::default()
        };
        let all = io(1010.0, 5e5);
        let rates = VmRates {
            disks: vec![disk("slow", io(10.0, 4e7)), disk("fast", io(1000.0, 1e5))],
            io: Some(all),
            ..VmRates::default()
        };
        assert_eq!(figure(LiveMetric::Latency, Some("slow"), &rates), Some(4e7));
        assert_eq!(
            figure(LiveMetric::Throughput, Some("fast"), &rates),
            Some(4_096_000.0)
        );
        assert_eq!(figure(LiveMetric::Latency, None, &rates), Some(5e5));
        assert_eq!(figure(LiveMetric::Requests, Some("gone"), &rates), None);
    }
}
