//! Rates of a running VM between two samples of its counters.

mod disks;
#[cfg(test)]
pub(crate) mod tests;
mod window;

use vmtax_model::{
    AbilityName, BlockedThread, CgroupCounters, DaemonCounters, DaemonRates, ExitRates,
    GuestCounters, GuestDiskCounters, GuestDiskRates, GuestRates, KvmCounters, MemoryRates,
    NicCounters, NicRates, Role, ThreadCounters, ThreadRates, VmCounters, VmFacts, VmRates,
};
use vmtax_rules::Evidence;
use window::Window;

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
    };
    let threads = threads(&window, &before.threads, &after.threads);
    let mean = |part: fn(&ThreadRates) -> f64| {
        let vcpus: Vec<f64> = threads
            .iter()
            .filter(|thread| matches!(thread.role, Role::Vcpu(_)))
            .map(part)
            .collect();
        (!vcpus.is_empty()).then(|| vcpus.iter().sum::<f64>() / vcpus.len() as f64)
    };
    let vcpus = facts.vcpus.max(1) as f64;
    let throttled = grown(before.cgroup.throttled_us, after.cgroup.throttled_us);
    let disks = disks::disks(&window, &before.disks, &after.disks);
    let mut rates = VmRates {
        pid: facts.pid,
        name: facts.name.clone(),
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
        run: mean(|thread| thread.run),
        ready: mean(|thread| thread.ready),
        throttled: throttled.map(|us| window.part(us as f64 / 1e6 / vcpus)),
        exits: before
            .kvm
            .zip(after.kvm)
            .map(|(before, after)| exits(&window, vcpus, &before, &after)),
        traced_exits: None,
        io: disks::all(&window, &before.disks, &after.disks),
        disks,
        guest: before
            .guest
            .as_ref()
            .zip(after.guest.as_ref())
            .map(|(before, after)| guest(&window, before, after)),
        nics: nics(&window, facts, &before.nics, &after.nics),
        memory_use: memory(&window, before, after),
        process_io: before
            .process_io
            .zip(after.process_io)
            .map(|(before, after)| {
                [
                    window.rate(before.read_bytes, after.read_bytes),
                    window.rate(before.written_bytes, after.written_bytes),
                ]
            }),
        rchar_per_s: before
            .process_io
            .zip(after.process_io)
            .map(|(before, after)| window.rate(before.rchar, after.rchar)),
        daemons: daemons(&window, &before.daemons, &after.daemons),
        settings: after.settings.clone(),
        threads,
        findings: Vec::new(),
    };
    let evidence = Evidence {
        facts: Some(facts),
        vm: Some(&rates),
        ..Evidence::default()
    };
    rates.findings = vmtax_rules::evaluate(&evidence);
    Some(rates)
}

/// The reason why no monitor is asked.
fn no_monitor(facts: &VmFacts) -> Option<String> {
    let monitor = facts
        .abilities
        .iter()
        .find(|ability| ability.what == AbilityName::Monitor)?;
    Some(monitor.missing.as_ref()?.why.clone())
}

/// By how much a counter grew that both samples have.
fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
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
        let time_share = |now: u64, old: u64| window.part(now.saturating_sub(old) as f64 / 1e9);
        ThreadRates {
            tid: thread.tid,
            role: thread.role.clone(),
            run: time_share(thread.cpu_ns, cpu_ns),
            ready: time_share(thread.wait_ns, wait_ns),
            turns_per_s: window.rate(turns, thread.turns),
        }
    };
    let mut all: Vec<ThreadRates> = after.iter().map(rates).collect();
    all.sort_by(|a, b| b.run.total_cmp(&a.run));
    all
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
        let throttled = grown(old.throttled_us, daemon.throttled_us);
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

fn exits(window: &Window, vcpus: f64, before: &KvmCounters, after: &KvmCounters) -> ExitRates {
    let idle = |counters: &KvmCounters| counters.halt_wait_ns.saturating_add(counters.halt_poll_ns);
    ExitRates {
        per_s: window.rate(before.exits, after.exits),
        halts_per_s: window.rate(before.halt_exits, after.halt_exits),
        halted: window.part(idle(after).saturating_sub(idle(before)) as f64 / 1e9 / vcpus),
    }
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

fn memory(window: &Window, before: &VmCounters, after: &VmCounters) -> MemoryRates {
    let growth_of = |value: fn(&CgroupCounters) -> Option<u64>| {
        grown(value(&before.cgroup), value(&after.cgroup))
    };
    let pressure = |us: Option<u64>| us.map(|us| window.part(us as f64 / 1e6));
    let now = &after.memory;
    MemoryRates {
        resident: now.resident,
        swapped: now.swapped,
        huge: now
            .hugetlb
            .saturating_add(now.transparent_huge.unwrap_or(0)),
        balloon: after.balloon,
        major_faults_per_s: window.rate(before.memory.major_faults, now.major_faults),
        pressure_full: pressure(growth_of(|cgroup| cgroup.memory_full_us)),
        pressure_some: pressure(growth_of(|cgroup| cgroup.memory_some_us)),
        memory_high_per_s: growth_of(|cgroup| cgroup.memory_high)
            .map(|count| count as f64 / window.seconds),
    }
}
