//! The pairs of measurements of a running VM, as ratios of costs.

use crate::pairs::{MAX_PAIRS, PairSeries};
use crate::rates;
use vmtax_model::{
    Candidate, LiveChange, LiveMetric, TuneBlock, TuneMetric, TunePhase, TuneRecord, TuneSpec,
    VmFacts, VmRates,
};

/// The pairs of a phase in which these candidates change, by the figure that counts.
pub(super) fn series(
    spec: &TuneSpec,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
) -> PairSeries {
    let mut series = PairSeries::default();
    let Some(vm) = facts(records) else {
        return series;
    };
    let Some(candidate) = changed
        .first()
        .and_then(|first| spec.candidates.get(*first))
    else {
        return series;
    };
    for record in records {
        let TuneRecord::Pair {
            plan,
            without,
            with,
        } = record
        else {
            continue;
        };
        if plan.phase != phase || plan.changed != changed {
            continue;
        }
        let cost = |block| cost(spec, candidate, vm, block);
        // A recording of somebody else may have any number.
        if series.pairs() >= 3 * MAX_PAIRS as usize {
            break;
        }
        match cost(without).zip(cost(with)) {
            Some((without, with)) => series.logs.push((with / without).ln()),
            None => series.empty += 1,
        }
    }
    series
}

/// Returns the facts of the VM; `None` if they are not recorded.
pub(super) fn facts(records: &[TuneRecord]) -> Option<&VmFacts> {
    records.iter().find_map(|record| {
        if let TuneRecord::Vm(vm) = record {
            Some(&**vm)
        } else {
            None
        }
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
            (
                figure(metric, disk.as_deref(), &rates()?)?,
                metric.is_rate(),
            )
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
    use vmtax_model::{DiskRates, IoRates};

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
