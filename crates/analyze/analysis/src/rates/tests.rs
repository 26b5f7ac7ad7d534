//! Rates of synthetic samples.

use super::rates;
use proptest::prelude::*;
use vmtax_findings::DiskRates;
use vmtax_model::{
    Ability, AbilityName, BlockDevice, Counter, CounterSource, CounterUnit, DiskCounters,
    LatencyHistogram, Missing, NicCounters, RequestCounters, Role, RunState, ThreadCounters,
    VmCounters, VmFacts,
};

pub(crate) fn facts(vcpus: usize) -> VmFacts {
    VmFacts {
        name: Some("web".to_owned()),
        vcpus,
        memory: 1 << 30,
        ..VmFacts::unknown(5)
    }
}

fn thread(tid: i32, role: Role, cpu_ms: u64, wait_ms: u64) -> ThreadCounters {
    ThreadCounters {
        tid,
        role,
        cpu_ns: cpu_ms * 1_000_000,
        wait_ns: wait_ms * 1_000_000,
        turns: cpu_ms,
        throttled_ns: None,
    }
}

/// A sample at this second.
fn sample(seconds: u64) -> VmCounters {
    VmCounters {
        pid: 5,
        started: 77,
        at_ns: (10 + seconds) * 1_000_000_000,
        ..VmCounters::default()
    }
}

/// The parts of the time that each thread and the VM were throttled, by their groups' growth in 2 s, ms.
fn throttled(of_vm: Option<u64>, of_threads: [Option<u64>; 3]) -> (Option<f64>, [Option<f64>; 3]) {
    const THROTTLED: &Counter = Counter::named("throttled");
    let sampled = |seconds, share: u64| {
        let own = |ms: Option<u64>| Some(7 + ms? * 1_000_000 * share);
        let roles = [Role::Vcpu(0), Role::Vcpu(1), Role::Main];
        let threads = roles.into_iter().zip(of_threads).zip(6..);
        let threads = threads.map(|((role, ms), tid)| ThreadCounters {
            throttled_ns: own(ms),
            ..thread(tid, role, 0, 0)
        });
        VmCounters {
            threads: threads.collect(),
            counters: own(of_vm)
                .map(|ns| (THROTTLED.name, ns))
                .into_iter()
                .collect(),
            ..sample(seconds)
        }
    };
    let rates = rates(&facts(2), &sampled(0, 0), &sampled(2, 1)).unwrap();
    let mut threads = rates.threads;
    threads.sort_by_key(|thread| thread.tid);
    let parts = threads.into_iter().map(|thread| thread.throttled);
    let parts: Vec<Option<f64>> = parts.collect();
    (rates.throttled, parts.try_into().unwrap())
}

#[test]
fn a_threads_throttling_is_that_of_its_own_group_where_no_other_group_has_any() {
    let own = [Some(400), Some(0), None];
    assert_eq!(
        throttled(Some(400), own),
        (Some(0.1), [Some(0.2), Some(0.0), None])
    );
    assert_eq!(
        throttled(Some(1000), own).1,
        [None; 3],
        "a group above throttles all of them"
    );
    assert_eq!(throttled(Some(400), [None; 3]).1, [None; 3], "one group");
    assert_eq!(
        throttled(Some(0), [None; 3]).1,
        [Some(0.0); 3],
        "nothing throttles the VM"
    );
    assert_eq!(throttled(None, [None; 3]), (None, [None; 3]));
}

#[test]
fn parts_of_vcpus_are_means_and_the_busiest_thread_comes_first() {
    let threads = |main, first, second, wait| {
        vec![
            thread(5, Role::Main, main, 0),
            thread(6, Role::Vcpu(0), first, wait),
            thread(7, Role::Vcpu(1), second, 0),
        ]
    };
    let before = VmCounters {
        threads: threads(100, 1000, 1000, 50),
        ..sample(0)
    };
    let mut after = VmCounters {
        threads: threads(300, 3000, 2000, 450),
        ..sample(2)
    };
    after.threads.push(thread(8, Role::Worker, 500, 0));
    let rates = rates(&facts(2), &before, &after).unwrap();
    assert_eq!(
        (rates.run, rates.ready, rates.throttled, rates.seconds),
        (Some(0.75), Some(0.1), None, 2.0)
    );
    let threads: Vec<(i32, f64)> = rates
        .threads
        .iter()
        .map(|thread| (thread.tid, thread.run))
        .collect();
    assert_eq!(
        threads,
        [(6, 1.0), (7, 0.5), (8, 0.25), (5, 0.1)],
        "one that is new counts from its start"
    );
    assert_eq!(
        rates.busiest().map(|thread| &thread.role),
        Some(&Role::Vcpu(0))
    );
    assert_eq!(rates.findings[0].rule, "vm-run-queue-wait");
}

#[test]
fn throttling_and_exits_are_of_each_vcpu() {
    let counters = |throttled: u64, exits, wait| {
        let numbers = [
            ("throttled", 1000 * throttled),
            ("exits", exits),
            ("halt_exits", exits / 10),
            ("halted", wait),
        ];
        numbers.into_iter().collect()
    };
    let before = VmCounters {
        counters: counters(1000, 100, 0),
        ..sample(0)
    };
    let after = VmCounters {
        counters: counters(1_001_000, 2100, 1_000_000_000),
        ..sample(1)
    };
    let rates = rates(&facts(4), &before, &after).unwrap();
    assert_eq!(rates.throttled, Some(0.25));
    let exits = rates.exits.unwrap();
    assert_eq!(
        (exits.per_s, exits.halts_per_s, exits.halted),
        (2000.0, 200.0, 0.25)
    );
    assert_eq!(
        (rates.run, rates.findings[0].rule.as_str()),
        (None, "vm-throttled"),
        "there are no vCPU threads"
    );
}

fn requests(count: u64, total_ms: u64) -> RequestCounters {
    RequestCounters {
        count,
        bytes: count * 4096,
        total_ns: total_ms * 1_000_000,
    }
}

fn device(requests: u64, total_ms: u64) -> Option<BlockDevice> {
    Some(BlockDevice {
        name: "sda".to_owned(),
        requests,
        total_ms,
        tick_ns: 0,
    })
}

/// A disk of which QEMU completed a hundred reads and a hundred writes of 3 ms, on a device of the host that is it, or has
/// its file.
fn served(host: Option<BlockDevice>, own: Option<BlockDevice>) -> DiskRates {
    let disk_with = |reads, writes, device, own_device| DiskCounters {
        name: "vd0".to_owned(),
        qemu: Some([reads, writes, RequestCounters::default()]),
        device,
        own_device,
        in_flight: Some(3),
        histograms: None,
    };
    let none = |after: &Option<BlockDevice>| after.as_ref().and(device(0, 0));
    let old = disk_with(requests(10, 1), requests(0, 0), none(&host), none(&own));
    let before = VmCounters {
        disks: vec![old],
        ..sample(0)
    };
    let after = VmCounters {
        disks: vec![disk_with(requests(110, 201), requests(100, 400), host, own)],
        ..sample(2)
    };
    rates(&facts(1), &before, &after).unwrap().disks.remove(0)
}

#[test]
fn requests_are_counted_and_timed_in_qemu() {
    let io = served(None, None).io.unwrap();
    assert_eq!(
        (io.reads_per_s, io.writes_per_s, io.per_s(), io.in_flight),
        (50.0, 50.0, 100.0, Some(3))
    );
    assert_eq!(
        (io.blkavg_ns, io.read_bytes_per_s),
        (Some(3e6), 50.0 * 4096.0)
    );
}

/// The host's disk may complete as many requests as the VM by chance.
#[test]
fn the_time_at_the_device_is_the_vms_only_where_the_disk_is_the_device() {
    let device_times = |host, own| {
        let disk = served(host, own);
        (
            disk.device.and_then(|device| device.mean_ns),
            disk.davg_ns,
            disk.kavg_ns,
        )
    };
    assert_eq!(
        device_times(device(200, 400), None),
        (Some(2e6), None, None),
        "a file on it"
    );
    assert_eq!(
        device_times(device(900, 900), device(200, 400)),
        (Some(1e6), Some(2e6), Some(1e6))
    );
    assert_eq!(
        device_times(None, device(300, 300)),
        (None, Some(1e6), Some(1.5e6)),
        "parts of requests that the kernel splits"
    );
    assert_eq!(
        device_times(None, device(100, 200)),
        (None, Some(2e6), Some(1e6)),
        "requests that the kernel merges"
    );
    assert_eq!(
        device_times(None, device(200, 800)),
        (None, Some(4e6), None),
        "KAVG is not below 0"
    );
    assert_eq!(device_times(device(0, 0), device(0, 0)), (None, None, None));
}

/// The kernel counts 0 or 1 tick for requests that take a tenth of one.
#[test]
fn a_time_in_ticks_is_known_after_enough_requests_only() {
    let davg_after = |requests, ms| {
        let volume = device(requests, ms).map(|device| BlockDevice {
            tick_ns: 4_000_000,
            ..device
        });
        let disk = served(None, volume);
        assert_eq!(disk.davg_needs_requests, disk.davg_ns.is_none());
        disk.davg_ns
    };
    assert_eq!(
        (davg_after(200, 1600), davg_after(20, 160)),
        (Some(8e6), None)
    );
    assert_eq!(
        (
            davg_after(200, 80),
            davg_after(20_000, 8_000),
            davg_after(200_000, 80_000)
        ),
        (None, None, Some(4e5))
    );
    assert_eq!(davg_after(200, 0), None);
}

#[test]
fn a_vm_without_requests_has_no_time_at_a_device_that_another_program_uses() {
    let disk_with_device = |own_device| DiskCounters {
        qemu: Some([requests(7, 7), requests(7, 7), requests(7, 7)]),
        own_device,
        ..DiskCounters::default()
    };
    let before = VmCounters {
        disks: vec![disk_with_device(device(0, 0))],
        ..sample(0)
    };
    let after = VmCounters {
        disks: vec![disk_with_device(device(500, 500))],
        ..sample(1)
    };
    let disk = rates(&facts(1), &before, &after).unwrap().disks.remove(0);
    assert_eq!((disk.davg_ns, disk.kavg_ns), (None, None));
}

#[test]
fn a_figure_that_a_missing_monitor_would_give_has_its_reason() {
    let missing = Missing {
        what: "QMP".to_owned(),
        why: "no QMP socket".to_owned(),
        fix: String::new(),
    };
    let monitor = Ability {
        what: AbilityName::Monitor,
        missing: Some(missing),
    };
    let without = VmFacts {
        abilities: vec![monitor],
        ..facts(1)
    };
    let no_monitor_reason =
        |facts: &VmFacts| rates(facts, &sample(0), &sample(1)).unwrap().no_monitor;
    assert_eq!(
        (
            no_monitor_reason(&without).as_deref(),
            no_monitor_reason(&facts(1))
        ),
        (Some("no QMP socket"), None)
    );
}

/// With a write cache a write ends early, and its flush takes the time: both are the write's.
#[test]
fn the_flushes_are_of_the_writes() {
    let disk_with = |writes, flushes| DiskCounters {
        qemu: Some([requests(7, 7), writes, flushes]),
        ..DiskCounters::default()
    };
    let write_and_flush_ns = |writes, flushes| {
        let before = VmCounters {
            disks: vec![disk_with(requests(0, 0), requests(0, 0))],
            ..sample(0)
        };
        let after = VmCounters {
            disks: vec![disk_with(writes, flushes)],
            ..sample(1)
        };
        rates(&facts(1), &before, &after)
            .unwrap()
            .io
            .unwrap()
            .write_and_flush_ns
    };
    assert_eq!(
        (
            write_and_flush_ns(requests(100, 100), requests(0, 0)),
            write_and_flush_ns(requests(100, 5), requests(100, 95))
        ),
        (Some(1e6), Some(1e6))
    );
    assert_eq!(write_and_flush_ns(requests(0, 0), requests(9, 9)), None);
}

#[test]
fn a_percentile_is_that_of_the_window() {
    let disk_with_bins = |bins: [u64; 4], boundaries: [u64; 3]| DiskCounters {
        qemu: Some(Default::default()),
        histograms: Some(vec![
            LatencyHistogram {
                boundaries: boundaries.to_vec(),
                bins: bins.to_vec()
            };
            3
        ]),
        ..DiskCounters::default()
    };
    let p99 = |before: [u64; 4], after: [u64; 4], boundaries| {
        let before = VmCounters {
            disks: vec![disk_with_bins(before, [10, 20, 30])],
            ..sample(0)
        };
        let after = VmCounters {
            disks: vec![disk_with_bins(after, boundaries)],
            ..sample(1)
        };
        rates(&facts(1), &before, &after)
            .unwrap()
            .io
            .unwrap()
            .p99_ns
    };
    assert_eq!(
        p99([1000, 5, 0, 0], [1099, 6, 0, 0], [10, 20, 30]),
        Some(10.0)
    );
    assert_eq!(
        p99([1000, 5, 0, 0], [1098, 7, 0, 0], [10, 20, 30]),
        Some(20.0)
    );
    assert_eq!(
        p99([0, 0, 0, 0], [0, 0, 0, 7], [10, 20, 30]),
        Some(30.0),
        "at least that"
    );
    assert_eq!(p99([5, 5, 5, 5], [5, 5, 5, 5], [10, 20, 30]), None);
    assert_eq!(
        p99([0, 0, 0, 0], [9, 9, 9, 9], [10, 20, 40]),
        None,
        "set again meanwhile"
    );
}

#[test]
fn memory_network_and_state_are_of_the_window() {
    let counters = |faults, swapped, some_us: u64, bytes| {
        let numbers = [
            ("major_faults", faults),
            ("swapped", swapped),
            ("huge_page", 6),
            ("memory_pressure_some", 1000 * some_us),
            ("process_read", bytes),
            ("process_written", 0),
        ];
        numbers.into_iter().collect()
    };
    let nic = |packets, drops| NicCounters {
        tap: "tap0".to_owned(),
        rx_packets: packets,
        rx_dropped: drops,
        ..NicCounters::default()
    };
    let before = VmCounters {
        counters: counters(5, 0, 0, 0),
        nics: vec![nic(100, 0)],
        ..sample(0)
    };
    let after = VmCounters {
        counters: counters(25, 9, 500_000, 4096),
        nics: vec![nic(300, 20), nic(1, 1)],
        state: Some(RunState::Stopped("paused".to_owned())),
        ..sample(2)
    };
    let rates = rates(&facts(1), &before, &after).unwrap();
    let figures = [
        "major_faults",
        "swapped",
        "huge_page",
        "memory_pressure_some",
    ]
    .map(|name| rates.counters.get(Counter::named(name)));
    assert_eq!(figures, [10.0, 9.0, 6.0, 0.25].map(Some));
    assert_eq!(
        (rates.packets_per_s() > 99.0, rates.drops_per_s() >= 10.0),
        (true, true)
    );
    assert_eq!(
        (rates.process_io, rates.stopped()),
        (Some([2048.0, 0.0]), Some("paused"))
    );
    let rules: Vec<&str> = rates
        .findings
        .iter()
        .map(|finding| finding.rule.as_str())
        .collect();
    assert_eq!(
        rules,
        ["vm-stopped", "vm-swapped", "vm-memory-pressure", "vm-drops"],
        "what costs most comes first"
    );
}

/// Every entry: a figure of two numbers, none where one of them is missing or the second is smaller.
#[test]
fn a_counter_that_is_absent_or_began_again_has_no_figure() {
    let sample_with = |name: &'static str, number: Option<u64>, seconds| VmCounters {
        counters: number.map(|number| (name, number)).into_iter().collect(),
        ..sample(seconds)
    };
    let is_read = |counter: &&Counter| counter.source != CounterSource::Figure;
    for counter in Counter::all().filter(is_read) {
        let figure = |before, after| {
            let [before, after] = [(before, 0), (after, 2)]
                .map(|(number, seconds)| sample_with(counter.name, number, seconds));
            let rates = rates(&facts(2), &before, &after).unwrap();
            rates.counters.get(counter)
        };
        let expected = match counter.unit {
            CounterUnit::Count | CounterUnit::Bytes => 2e6,
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => 5e5,
            CounterUnit::Ratio => 5e-4,
            CounterUnit::VcpuRatio => 2.5e-4,
            CounterUnit::Time => continue,
        };
        let found = figure(Some(1_000_000), Some(2_000_000));
        assert_eq!(found, Some(expected), "{}", counter.name);
        assert_eq!(figure(Some(5), None), None);
        for (before, after) in [(None, 5), (Some(5), 4)] {
            let found = figure(before, Some(after));
            assert_eq!(found.is_some(), counter.unit.is_gauge(), "{}", counter.name);
        }
    }
}

#[test]
fn two_processes_or_no_time_have_no_rates() {
    let rates_after = |change: fn(&mut VmCounters)| {
        let mut after = sample(1);
        change(&mut after);
        rates(&facts(1), &sample(0), &after)
    };
    assert!(rates_after(|_| ()).is_some());
    assert_eq!(
        rates_after(|after| after.started += 1),
        None,
        "the PID is another process's now"
    );
    assert_eq!(rates_after(|after| after.pid += 1), None);
    assert_eq!(
        (
            rates_after(|after| after.at_ns = 0),
            rates_after(|after| after.at_ns -= 1_000_000_000)
        ),
        (None, None)
    );
}

prop_compose! {
    fn any_sample()(
        at_ns in any::<u64>(),
        times in proptest::collection::vec((0..4i32, any::<u64>(), any::<u64>(), 0..3u32), 0..6),
        counts in proptest::collection::vec(any::<u64>(), 16),
        bins in proptest::collection::vec(any::<u64>(), 0..4),
    ) -> VmCounters {
        let role = |n| if n == 0 { Role::Main } else { Role::Vcpu(n) };
        let histogram = LatencyHistogram { boundaries: vec![1; bins.len().saturating_sub(1)], bins };
        let requests = |at: usize| RequestCounters { count: counts[at], bytes: counts[at + 1], total_ns: counts[at + 2] };
        VmCounters {
            at_ns,
            threads: times.into_iter().map(|(tid, cpu_ns, wait_ns, n)| ThreadCounters { tid, role: role(n), cpu_ns, wait_ns, turns: cpu_ns, throttled_ns: None }).collect(),
            counters: Counter::all().map(|counter| counter.name).zip(counts.iter().copied().cycle()).collect(),
            disks: vec![DiskCounters {
                name: "d".to_owned(),
                qemu: Some([requests(6), requests(7), requests(8)]),
                device: None,
                own_device: Some(BlockDevice { name: "s".to_owned(), requests: counts[11], total_ms: counts[12], tick_ns: counts[10] }),
                in_flight: Some(counts[13]),
                histograms: Some(vec![histogram; 3]),
            }],
            nics: vec![NicCounters { rx_packets: counts[14], rx_dropped: counts[15], ..NicCounters::default() }],
            ..sample(0)
        }
    }
}

proptest! {
    #[test]
    fn any_two_samples_give_parts_and_finite_rates(before in any_sample(), after in any_sample()) {
        if let Some(rates) = rates(&facts(2), &before, &after) {
            let parts = [rates.run, rates.ready, rates.throttled, rates.counters.get(Counter::named("memory_pressure_some"))];
            prop_assert!(parts.into_iter().flatten().all(|part| (0.0..=1.0).contains(&part)));
            prop_assert!(rates.threads.iter().all(|thread| (0.0..=1.0).contains(&thread.run)));
            let io = rates.io.unwrap();
            prop_assert!([io.per_s(), rates.packets_per_s(), rates.drops_per_s()].iter().all(|rate| rate.is_finite() && *rate >= 0.0));
            prop_assert!(rates.disks.iter().filter_map(|disk| disk.kavg_ns).all(|ns| ns.is_finite() && ns >= 0.0));
        }
    }
}
