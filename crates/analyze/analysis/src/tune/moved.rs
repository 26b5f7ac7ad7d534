//! Figures of a VM with and without the changes that are kept.

use super::series::figure;
use crate::pairs::PairSeries;
use crate::{estimate, rates};
use vmtax_model::{
    BeforeAfter, LiveChange, LiveMetric, TuneBlock, TunePhase, TuneRecord, VmFacts, VmRates,
};

/// A figure that is shown.
enum Figure {
    /// One that a change may be decided by.
    Metric(LiveMetric),
    /// Another one: its name, its unit, how it is read.
    Other(&'static str, &'static str, fn(&VmRates) -> Option<f64>),
}

/// Figures in the order of a request's path, then of the CPUs. Of all, more costs more, except rates per second and %RUN.
const FIGURES: [Figure; 13] = [
    Figure::Metric(LiveMetric::Requests),
    Figure::Metric(LiveMetric::Throughput),
    Figure::Metric(LiveMetric::Latency),
    Figure::Other("reads", "ns", |vm| vm.io?.read_ns),
    Figure::Other("writes", "ns", |vm| vm.io?.write_ns),
    Figure::Metric(LiveMetric::WriteLatency),
    Figure::Other("p99 of disk requests", "ns", |vm| vm.io?.p99_ns),
    Figure::Other("latency of the busiest host disk, all users", "ns", |vm| {
        let devices = vm.disks.iter().filter_map(|disk| disk.device.as_ref());
        devices.max_by(|a, b| a.per_s.total_cmp(&b.per_s))?.mean_ns
    }),
    Figure::Metric(LiveMetric::Run),
    Figure::Other("run-queue wait of the vCPUs (%RDY)", "fraction", |vm| {
        vm.ready
    }),
    Figure::Other("throttling of the vCPUs (%THR)", "fraction", |vm| {
        vm.throttled
    }),
    Figure::Other("CPU time of QEMU's other threads", "fraction", |vm| {
        let others = vm
            .threads
            .iter()
            .filter(|thread| !matches!(thread.role, vmtax_model::Role::Vcpu(_)));
        Some(others.map(|thread| thread.run).sum())
    }),
    Figure::Metric(LiveMetric::Exits),
];

/// The figures of all pairs of a phase in which these candidates change; first that of the one disk that shows whether `change` helps.
pub(super) fn moved(
    vm: &VmFacts,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
    change: Option<&LiveChange>,
) -> Vec<BeforeAfter> {
    let block_rates = |block: &TuneBlock| rates(vm, &block.before, &block.after);
    let pairs = records.iter().filter_map(|record| match record {
        TuneRecord::Pair {
            plan,
            without,
            with,
        } if plan.phase == phase && plan.changed == changed => {
            Some((block_rates(without)?, block_rates(with)?))
        }
        _ => None,
    });
    let pairs: Vec<(VmRates, VmRates)> = pairs.collect();
    let of_disk = change.and_then(|change| {
        let (metric, disk) = (change.metric?, of_one_disk(vm, change)?);
        row(&pairs, label(vm, change), metric.unit(), |rates| {
            figure(metric, Some(disk), rates)
        })
    });
    let of_vm = FIGURES.iter().filter_map(|shown| match shown {
        Figure::Metric(metric) => row(&pairs, metric.label().to_owned(), metric.unit(), |rates| {
            figure(*metric, None, rates)
        }),
        Figure::Other(name, unit, read) => row(&pairs, (*name).to_owned(), unit, read),
    });
    of_disk.into_iter().chain(of_vm).collect()
}

/// Returns the name of the figure by which a change is measured, with its disk if the VM has several.
pub(super) fn label(vm: &VmFacts, change: &LiveChange) -> String {
    let of_disk = of_one_disk(vm, change).map_or_else(String::new, |disk| format!(", {disk}"));
    format!("{}{of_disk}", change.metric.map_or("", LiveMetric::label))
}

/// The disk that alone shows whether a change helps, where the VM has others, too.
fn of_one_disk<'a>(vm: &VmFacts, change: &'a LiveChange) -> Option<&'a str> {
    change.disk.as_deref().filter(|_| vm.disks.len() > 1)
}

fn row(
    pairs: &[(VmRates, VmRates)],
    name: String,
    unit: &str,
    read: impl Fn(&VmRates) -> Option<f64>,
) -> Option<BeforeAfter> {
    let values: Vec<(f64, f64)> = pairs
        .iter()
        .filter_map(|(without, with)| Some((read(without)?, read(with)?)))
        .collect();
    if values.is_empty()
        || values
            .iter()
            .all(|(before, after)| *before == 0.0 && *after == 0.0)
    {
        return None;
    }
    let logs = values.iter().map(|(before, after)| (after / before).ln());
    let series = PairSeries {
        logs: logs.filter(|log| log.is_finite()).collect(),
        empty: 0,
    };
    let is_whole = series.logs.len() == values.len();
    Some(BeforeAfter {
        name,
        unit: unit.to_owned(),
        before: estimate(values.iter().map(|(before, _)| *before).collect()).median,
        after: estimate(values.iter().map(|(_, after)| *after).collect()).median,
        comparison: series.comparison().filter(|_| is_whole),
    })
}
