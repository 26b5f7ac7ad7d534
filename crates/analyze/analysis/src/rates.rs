//! Rates of a running VM between two samples of its counters; of its disks' requests also mean times by esxtop's layers, and
//! percentiles from histograms.

#[cfg(test)]
pub(crate) mod tests;

use vmtax_findings::{
    DaemonRates, DeviceRates, DiskRates, ExitRates, GuestDiskRates, GuestRates, IoRates, NicRates,
    ThreadRates, VmRates,
};
use vmtax_model::{
    AbilityName, BlockDevice, BlockedThread, Counter, CounterMap, CounterUnit, DaemonCounters,
    DiskCounters, GuestCounters, GuestDiskCounters, LatencyHistogram, NicCounters, RequestCounters,
    Role, ThreadCounters, VmCounters, VmFacts,
};
use vmtax_rules::Evidence;

/// With fewer requests in a window the difference of two mean times is chance.
const MIN_REQUESTS: f64 = 10.0;

/// The largest part of a mean time at a device that its error (95 %) may be.
const MAX_ERROR: f64 = 0.05;

// Figures that have a field of their own.
const THROTTLED: &Counter = Counter::named("throttled");
const EXITS: &Counter = Counter::named("exits");
const HALTS: &Counter = Counter::named("halt_exits");
const HALTED: &Counter = Counter::named("halted");
const PROCESS_READ: &Counter = Counter::named("process_read");
const PROCESS_WRITTEN: &Counter = Counter::named("process_written");
const PROCESS_RCHAR: &Counter = Counter::named("process_rchar");

/// The time between two samples.
struct Window {
    /// Length of the interval, s.
    seconds: f64,
    /// Number of the guest's vCPUs, 1 where it is not known.
    vcpus: f64,
}

impl Window {
    /// A counter's growth per second; 0 for one that began again.
    fn rate(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.seconds
    }

    /// The figure of a counter; `None` where it grows and is not known before, or began again since.
    fn figure(&self, unit: CounterUnit, before: Option<u64>, now: u64) -> Option<f64> {
        let grown = || Some(unit.in_base_unit(now.checked_sub(before?)?));
        Some(match unit {
            CounterUnit::Count | CounterUnit::Bytes => unit.in_base_unit(now),
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => grown()? / self.seconds,
            CounterUnit::Ratio => self.part(grown()?),
            CounterUnit::VcpuRatio => self.part(grown()? / self.vcpus),
            CounterUnit::Time => return None,
        })
    }

    /// Seconds as a part of the window. The kernel adds to its times in steps, so that they may be ahead of the clock.
    fn part(&self, seconds: f64) -> f64 {
        (seconds / self.seconds).clamp(0.0, 1.0)
    }
}

/// The rates between two samples of one VM, with what the rules find in them; `None` where they are of two processes, or
/// in no order of time.
pub fn rates(facts: &VmFacts, before: &VmCounters, after: &VmCounters) -> Option<VmRates> {
    let same = before.pid == after.pid && before.started == after.started;
    let ns = after
        .at_ns
        .checked_sub(before.at_ns)
        .filter(|ns| *ns > 0 && same)?;
    let window = Window {
        seconds: ns as f64 / 1e9,
        vcpus: facts.vcpus.max(1) as f64,
    };
    let mut rates = rates_in(&window, facts, before, after);
    let evidence = Evidence {
        facts: Some(facts),
        vm: Some(&rates),
        ..Evidence::default()
    };
    rates.findings = vmtax_rules::evaluate(&evidence);
    Some(rates)
}

fn rates_in(window: &Window, facts: &VmFacts, before: &VmCounters, after: &VmCounters) -> VmRates {
    let mut threads = threads(window, &before.threads, &after.threads);
    let guests = before.guest.as_ref().zip(after.guest.as_ref());
    let counters = counters(window, before, after);
    of_each_thread(&mut threads, counters.get(THROTTLED), window.vcpus);
    let io = [PROCESS_READ, PROCESS_WRITTEN].map(|counter| counters.get(counter));
    let exits = |per_s| ExitRates {
        per_s,
        halts_per_s: counters.get(HALTS).unwrap_or(0.0),
        halted: counters.get(HALTED).unwrap_or(0.0),
    };
    VmRates {
        pid: facts.pid,
        name: facts.name.clone(),
        shares_name: facts.shares_name,
        vmm: facts.vmm,
        manager: facts.managed.as_ref().map(|managed| managed.manager),
        accelerator: facts.accelerator,
        vcpus: facts.vcpus,
        memory: facts.memory,
        cgroup: facts.cgroup.clone(),
        seconds: window.seconds,
        state: after.state.clone(),
        process_stop: after.process_stop.clone(),
        monitor_timeout_s: after.monitor_timeout_s,
        no_monitor: no_monitor(facts),
        blocked: blocked(before, after),
        kernel_failure: after.kernel_failure.clone(),
        run: vcpu_mean(&threads, |thread| thread.run),
        ready: vcpu_mean(&threads, |thread| thread.ready),
        throttled: counters.get(THROTTLED),
        exits: counters.get(EXITS).map(exits),
        traced_exits: None,
        io: all_disks(window, &before.disks, &after.disks),
        stalled_queues: after.stalled_queues.clone(),
        disks: disks(window, &before.disks, &after.disks),
        guest: guests.map(|(before, after)| guest(window, before, after)),
        nics: nics(window, facts, &before.nics, &after.nics),
        daemons: daemons(window, &before.daemons, &after.daemons),
        settings: after.settings.clone(),
        threads,
        process_io: io[0].zip(io[1]).map(|(read, written)| [read, written]),
        rchar_per_s: counters.get(PROCESS_RCHAR),
        counters,
        findings: Vec::new(),
    }
}

/// Returns the mean of a part of the time over the vCPUs' threads; `None` without such threads.
fn vcpu_mean(threads: &[ThreadRates], part: fn(&ThreadRates) -> f64) -> Option<f64> {
    let vcpus = threads
        .iter()
        .filter(|thread| matches!(thread.role, Role::Vcpu(_)));
    let parts: Vec<f64> = vcpus.map(part).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
}

/// The reason why no monitor is asked.
fn no_monitor(facts: &VmFacts) -> Option<String> {
    let monitor = facts
        .abilities
        .iter()
        .find(|ability| ability.what == AbilityName::Monitor)?;
    Some(monitor.missing.as_ref()?.why.clone())
}

/// The figures of the counters that are one number each.
fn counters(window: &Window, before: &VmCounters, after: &VmCounters) -> CounterMap<f64> {
    let figure = |counter: &'static Counter| {
        let (old, now) = (before.counters.get(counter), after.counters.get(counter)?);
        Some((counter.name, window.figure(counter.unit, old, now)?))
    };
    Counter::all().filter_map(figure).collect()
}

fn threads(
    window: &Window,
    before: &[ThreadCounters],
    after: &[ThreadCounters],
) -> Vec<ThreadRates> {
    let rates = |thread: &ThreadCounters| {
        // One that was not there before began within the window.
        let old = before.iter().find(|old| old.tid == thread.tid);
        let (cpu_ns, wait_ns, turns) =
            old.map_or((0, 0, 0), |old| (old.cpu_ns, old.wait_ns, old.turns));
        let throttled = |old: Option<u64>, now: Option<u64>| {
            Some(window.part(now?.checked_sub(old?)? as f64 / 1e9))
        };
        let time_share = |now: u64, old: u64| window.part(now.saturating_sub(old) as f64 / 1e9);
        ThreadRates {
            tid: thread.tid,
            role: thread.role.clone(),
            run: time_share(thread.cpu_ns, cpu_ns),
            ready: time_share(thread.wait_ns, wait_ns),
            turns_per_s: window.rate(turns, thread.turns),
            throttled: throttled(old.and_then(|old| old.throttled_ns), thread.throttled_ns),
        }
    };
    let mut all: Vec<ThreadRates> = after.iter().map(rates).collect();
    all.sort_by(|a, b| b.run.total_cmp(&a.run));
    all
}

/// Part of a thread's time by which the sum over the threads' own groups may be less than that of all groups.
const THROTTLED_ERROR: f64 = 0.005;

/// Completes the throttling of each thread by the VM's, a part of each vCPU's time. A quota of a group above throttles several threads,
/// and the kernel counts these together: then no thread's is known. Where the VM was not throttled, no thread without a group of its own
/// was.
fn of_each_thread(threads: &mut [ThreadRates], of_vm: Option<f64>, vcpus: f64) {
    let vcpus_threads = threads.iter();
    let of_vcpus = vcpus_threads.filter(|thread| matches!(thread.role, Role::Vcpu(_)));
    let own: f64 = of_vcpus.filter_map(|thread| thread.throttled).sum();
    let is_own = of_vm.is_some_and(|mean| mean * vcpus <= own + THROTTLED_ERROR);
    for thread in threads {
        thread.throttled = match of_vm {
            Some(0.0) => thread.throttled.or(Some(0.0)),
            _ => thread.throttled.filter(|_| is_own),
        };
    }
}

/// The threads that are blocked at the end and did not run in between.
fn blocked(before: &VmCounters, after: &VmCounters) -> Vec<BlockedThread> {
    let turns = |counters: &VmCounters, tid| {
        let thread = counters.threads.iter().find(|thread| thread.tid == tid)?;
        Some((thread.cpu_ns, thread.turns))
    };
    let did_not_run = |thread: &&BlockedThread| {
        turns(before, thread.tid)
            .is_some_and(|turns_before| turns(after, thread.tid) == Some(turns_before))
    };
    // A main loop that only does not answer may run meanwhile.
    after
        .blocked
        .iter()
        .filter(|thread| !thread.is_uninterruptible || did_not_run(thread))
        .cloned()
        .collect()
}

/// Those that were there before.
fn daemons(
    window: &Window,
    before: &[DaemonCounters],
    after: &[DaemonCounters],
) -> Vec<DaemonRates> {
    let rates = |daemon: &DaemonCounters| {
        let old = before
            .iter()
            .find(|old| old.pid == daemon.pid && old.tag == daemon.tag)?;
        let threads = threads(window, &old.threads, &daemon.threads);
        let throttled = old.throttled_us.zip(daemon.throttled_us);
        let throttled = throttled.and_then(|(old, now)| now.checked_sub(old));
        Some(DaemonRates {
            pid: daemon.pid,
            tag: daemon.tag.clone(),
            is_stopped: daemon.is_stopped,
            run: threads.iter().map(|thread| thread.run).sum(),
            ready: threads
                .iter()
                .map(|thread| thread.ready)
                .sum::<f64>()
                .min(1.0),
            throttled: throttled.map(|us| window.part(us as f64 / 1e6)),
            cgroup: daemon.cgroup.clone(),
        })
    };
    after.iter().filter_map(rates).collect()
}

/// Returns the rates of the guest's own counters. A guest that lies gives only finite figures.
fn guest(window: &Window, before: &GuestCounters, after: &GuestCounters) -> GuestRates {
    let cpu_ms = after.cpu_ms.saturating_sub(before.cpu_ms);
    let steal_ms = after.steal_ms.saturating_sub(before.steal_ms);
    let disk = |disk: &GuestDiskCounters| {
        let old = before.disks.iter().find(|old| old.name == disk.name)?;
        let requests = disk
            .requests
            .checked_sub(old.requests)
            .filter(|requests| *requests > 0)?;
        let ms = disk.total_ms.saturating_sub(old.total_ms);
        Some(GuestDiskRates {
            name: disk.name.clone(),
            per_s: requests as f64 / window.seconds,
            gavg_ns: ms as f64 * 1e6 / requests as f64,
        })
    };
    GuestRates {
        steal: (cpu_ms > 0).then(|| (steal_ms as f64 / cpu_ms as f64).min(1.0)),
        disks: after.disks.iter().filter_map(disk).collect(),
    }
}

fn nics(
    window: &Window,
    facts: &VmFacts,
    before: &[NicCounters],
    after: &[NicCounters],
) -> Vec<NicRates> {
    let rates = |nic: &NicCounters| {
        let old = before.iter().find(|old| old.tap == nic.tap)?;
        Some(NicRates {
            tap: nic.tap.clone(),
            vhost: facts
                .nics
                .iter()
                .any(|known| known.tap == nic.tap && known.vhost),
            rx_packets_per_s: window.rate(old.rx_packets, nic.rx_packets),
            tx_packets_per_s: window.rate(old.tx_packets, nic.tx_packets),
            rx_bytes_per_s: window.rate(old.rx_bytes, nic.rx_bytes),
            tx_bytes_per_s: window.rate(old.tx_bytes, nic.tx_bytes),
            rx_dropped_per_s: window.rate(old.rx_dropped, nic.rx_dropped),
            tx_dropped_per_s: window.rate(old.tx_dropped, nic.tx_dropped),
        })
    };
    after.iter().filter_map(rates).collect()
}

/// Each disk's rates.
fn disks(window: &Window, before: &[DiskCounters], after: &[DiskCounters]) -> Vec<DiskRates> {
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
fn all_disks(window: &Window, before: &[DiskCounters], after: &[DiskCounters]) -> Option<IoRates> {
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
