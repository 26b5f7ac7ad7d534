//! What moved in a VM with the changes that are kept.

use super::series::figure;
use crate::pairs::Series;
use crate::{estimate, rates};
use vmtax_model::{BeforeAfter, LiveChange, LiveMetric, TuneBlock, TunePhase, TuneRecord, VmFacts, VmRates};

/// A figure: its name, which is that of its [`vmtax_model::LiveMetric`] where there is one; its unit; how it is read.
type Figure = (&'static str, &'static str, fn(&VmRates) -> Option<f64>);

/// Figures in the order of a request's path, then of the CPUs. Of all, more costs more, except rates per second and %RUN.
const FIGURES: [Figure; 13] = [
    ("disk requests", "per second", |vm| vm.io.map(|io| io.per_s())),
    ("disk throughput", "bytes per second", |vm| vm.io.map(|io| io.read_bytes_per_s + io.written_bytes_per_s)),
    ("latency of disk requests (QAVG)", "ns", |vm| vm.io?.qavg_ns),
    ("reads", "ns", |vm| vm.io?.read_ns),
    ("writes", "ns", |vm| vm.io?.write_ns),
    ("time per write, with its flushes", "ns", |vm| vm.io?.write_and_flush_ns),
    ("p99 of disk requests", "ns", |vm| vm.io?.p99_ns),
    ("DAVG of the busiest device", "ns", |vm| {
        let devices = vm.disks.iter().filter_map(|disk| disk.device.as_ref());
        devices.max_by(|a, b| a.per_s.total_cmp(&b.per_s))?.davg_ns
    }),
    ("CPU time of the vCPUs (%RUN)", "fraction", |vm| vm.run),
    ("run-queue wait of the vCPUs (%RDY)", "fraction", |vm| vm.ready),
    ("throttling of the vCPUs (%THR)", "fraction", |vm| vm.throttled),
    ("CPU time of QEMU's other threads", "fraction", |vm| {
        let others = vm.threads.iter().filter(|thread| !matches!(thread.role, vmtax_model::Role::Vcpu(_)));
        Some(others.map(|thread| thread.run).sum())
    }),
    ("VM exits", "per second", |vm| vm.exits.map(|exits| exits.per_s)),
];

/// The figures of all pairs of a phase in which these candidates change; first that of the one disk that shows whether `change` helps.
pub(super) fn moved(
    vm: &VmFacts,
    records: &[TuneRecord],
    phase: TunePhase,
    changed: &[usize],
    change: Option<&LiveChange>,
) -> Vec<BeforeAfter> {
    let of = |block: &TuneBlock| rates(vm, &block.before, &block.after);
    let pairs = records.iter().filter_map(|record| match record {
        TuneRecord::Pair { plan, without, with } if plan.phase == phase && plan.changed == changed => {
            Some((of(without)?, of(with)?))
        }
        _ => None,
    });
    let pairs: Vec<(VmRates, VmRates)> = pairs.collect();
    let of_disk = change.filter(|change| of_one_disk(vm, change).is_some()).and_then(|change| {
        let metric = change.metric?;
        let (_, unit, _) = FIGURES.iter().find(|(name, ..)| *name == metric.label())?;
        row(&pairs, label(vm, change), unit, |rates| figure(metric, change.disk.as_deref(), rates))
    });
    let of_vm = FIGURES.iter().filter_map(|(name, unit, read)| row(&pairs, (*name).to_owned(), unit, read));
    of_disk.into_iter().chain(of_vm).collect()
}

/// What the figure is called by which a change is measured.
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
    let values: Vec<(f64, f64)> =
        pairs.iter().filter_map(|(without, with)| Some((read(without)?, read(with)?))).collect();
    if values.is_empty() || values.iter().all(|(before, after)| *before == 0.0 && *after == 0.0) {
        return None;
    }
    let logs = values.iter().map(|(before, after)| (after / before).ln());
    let series = Series { logs: logs.filter(|log| log.is_finite()).collect(), empty: 0 };
    let is_whole = series.logs.len() == values.len();
    Some(BeforeAfter {
        name,
        unit: unit.to_owned(),
        before: estimate(values.iter().map(|(before, _)| *before).collect()).median,
        after: estimate(values.iter().map(|(_, after)| *after).collect()).median,
        comparison: series.comparison().filter(|_| is_whole),
    })
}
