//! Requests of disks between two samples: rates, mean times by esxtop's layers, percentiles from histograms.

use super::window::Window;
use vmtax_model::{
    BlockDevice, DeviceRates, DiskCounters, DiskRates, IoRates, LatencyHistogram, RequestCounters,
};

/// With fewer requests in a window the difference of two mean times is chance.
const MIN_REQUESTS: f64 = 10.0;

/// The largest part of a mean time at a device that its error (95 %) may be.
const MAX_ERROR: f64 = 0.05;

/// Each disk's rates.
pub(super) fn disks(
    window: &Window,
    before: &[DiskCounters],
    after: &[DiskCounters],
) -> Vec<DiskRates> {
    let rates = |disk: &DiskCounters| {
        let old = before.iter().find(|old| old.name == disk.name)?;
        let io = io(window, &[(old, disk)]);
        let between = |before: &Option<BlockDevice>, after: &Option<BlockDevice>| {
            let (before, after) = before
                .as_ref()
                .zip(after.as_ref())
                .filter(|(old, new)| old.name == new.name)?;
            Some(device(window, before, after))
        };
        let own = between(&old.own_device, &disk.own_device);
        let served = io
            .as_ref()
            .zip(own.as_ref())
            .filter(|(io, _)| io.per_s() > 0.0);
        Some(DiskRates {
            name: disk.name.clone(),
            io,
            device: between(&old.device, &disk.device),
            davg_ns: served.and_then(|(_, own)| own.mean_ns),
            davg_needs_requests: served
                .is_some_and(|(_, own)| own.mean_ns.is_none() && own.per_s > 0.0),
            kavg_ns: served.and_then(|(io, own)| kavg(window, io, own)),
        })
    };
    after.iter().filter_map(rates).collect()
}

/// All disks together; `None` where QEMU's counters of none are known.
pub(super) fn all(
    window: &Window,
    before: &[DiskCounters],
    after: &[DiskCounters],
) -> Option<IoRates> {
    let pairs = after
        .iter()
        .filter_map(|disk| Some((before.iter().find(|old| old.name == disk.name)?, disk)));
    io(window, &pairs.collect::<Vec<_>>())
}

/// The requests of these disks.
fn io(window: &Window, disks: &[(&DiskCounters, &DiskCounters)]) -> Option<IoRates> {
    let known: Vec<_> = disks
        .iter()
        .filter_map(|(old, new)| Some((old.qemu?, new.qemu?)))
        .collect();
    if known.is_empty() {
        return None;
    }
    let sum = |kind: usize, value: fn(&RequestCounters) -> u64| -> u64 {
        let grown = known
            .iter()
            .map(|(old, new)| value(&new[kind]).saturating_sub(value(&old[kind])));
        grown.fold(0, u64::saturating_add)
    };
    let per_s = |sum: u64| sum as f64 / window.seconds;
    let counts = [0, 1, 2].map(|kind| sum(kind, |requests| requests.count));
    let ns = [0, 1, 2].map(|kind| sum(kind, |requests| requests.total_ns));
    let total_ns = ns.into_iter().fold(0, u64::saturating_add);
    let mean = |ns: u64, count: u64| (count > 0).then(|| ns as f64 / count as f64);
    let count = counts.into_iter().fold(0, u64::saturating_add);
    let in_flight = disks.iter().filter_map(|(_, new)| new.in_flight);
    Some(IoRates {
        reads_per_s: per_s(counts[0]),
        writes_per_s: per_s(counts[1]),
        flushes_per_s: per_s(counts[2]),
        read_bytes_per_s: per_s(sum(0, |requests| requests.bytes)),
        written_bytes_per_s: per_s(sum(1, |requests| requests.bytes)),
        blkavg_ns: mean(total_ns, count),
        read_ns: mean(ns[0], counts[0]),
        write_ns: mean(ns[1], counts[1]),
        write_and_flush_ns: mean(ns[1].saturating_add(ns[2]), counts[1]),
        p99_ns: percentile(disks, 0.99),
        in_flight: in_flight.reduce(u64::saturating_add),
    })
}

fn device(window: &Window, before: &BlockDevice, after: &BlockDevice) -> DeviceRates {
    let requests = after.requests.saturating_sub(before.requests);
    let ns = after.total_ms.saturating_sub(before.total_ms) as f64 * 1e6;
    let mean = ns / requests as f64;
    // The standard deviation of a time in ticks is half a tick at most: this is twice that of the mean.
    let error = after.tick_ns as f64 / (requests as f64).sqrt();
    let is_known = requests > 0 && error <= MAX_ERROR * mean;
    DeviceRates {
        name: after.name.clone(),
        per_s: requests as f64 / window.seconds,
        mean_ns: is_known.then_some(mean),
    }
}

/// BLKAVG without DAVG. Where the kernel splits requests their parts are at the device at the same time: all their times are
/// taken off, which leaves a lower bound.
fn kavg(window: &Window, io: &IoRates, own: &DeviceRates) -> Option<f64> {
    let parts = (own.per_s / io.per_s()).max(1.0);
    let kavg = io.blkavg_ns? - own.mean_ns? * parts;
    (io.per_s() * window.seconds >= MIN_REQUESTS && kavg >= 0.0).then_some(kavg)
}

/// A percentile of the requests that were counted in histograms between the samples: the end of its bin.
fn percentile(disks: &[(&DiskCounters, &DiskCounters)], part: f64) -> Option<f64> {
    let mut bins: Vec<u64> = Vec::new();
    let mut boundaries: &[u64] = &[];
    for (old, new) in disks {
        let (Some(old), Some(new)) = (&old.histograms, &new.histograms) else {
            continue;
        };
        for (old, new) in old.iter().zip(new) {
            if boundaries.is_empty() {
                boundaries = &new.boundaries;
                bins = vec![0; new.bins.len()];
            }
            // Somebody else's histograms may have other bins: they cannot be added up.
            if new.boundaries != boundaries || !same_bins(old, new) {
                return None;
            }
            bins.iter_mut()
                .zip(new.bins.iter().zip(&old.bins))
                .for_each(|(sum, (new, old))| {
                    *sum = sum.saturating_add(new.saturating_sub(*old));
                });
        }
    }
    let total: u64 = bins.iter().fold(0, |sum, bin| sum.saturating_add(*bin));
    let wanted = (total as f64 * part).ceil();
    let mut below = 0u64;
    let bin = bins.iter().position(|bin| {
        below = below.saturating_add(*bin);
        total > 0 && below as f64 >= wanted
    })?;
    // The last bin has no end: its begin is the least that is true.
    boundaries
        .get(bin)
        .or(boundaries.last())
        .map(|end| *end as f64)
}

fn same_bins(old: &LatencyHistogram, new: &LatencyHistogram) -> bool {
    old.boundaries == new.boundaries && old.bins.len() == new.bins.len()
}
