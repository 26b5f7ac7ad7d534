//! From joined trials to findings, over rounds and variants; the cost of recording a request's events must come off
//! where it was added.

use super::alone;
use super::cases::trial;
use crate::JoinedRequest;
use crate::findings::column_sums::ColumnSums;
use crate::findings::plan::together;
use crate::join::View;
use crate::synthetic::{Times, World, facts};
use crate::trial::open::TrialCalls;
use std::collections::BTreeMap;
use vmtax_findings::{LayerFindings, Verdict};
use vmtax_model::{Checkpoint, EventCost, EventKind, Latency, Machine, Plan};

const PLAN: &str = "rounds = 6\nmachines = [\"native\", \"tcg\"]\nprobes = [\"none\", \"layers\"]\n[[variant]]\nname = \"a\"\n\
                    [[variant]]\nname = \"b\"\n[[variant]]\nname = \"c\"\n[[workload]]\nname = \"disk\"\n";

/// Six rounds of three variants: the host gets slower all the while, b takes two thirds, c is as a except noise.
fn findings() -> LayerFindings {
    let plan = Plan::from_toml(PLAN).unwrap();
    let mut all: BTreeMap<(Machine, &str), ColumnSums> = BTreeMap::new();
    let mut host = Latency::new();
    host.record(28_000);
    for round in 0..6 {
        for (name, scale) in [
            ("a", 3),
            ("b", 2),
            ("c", if round % 2 == 0 { 4 } else { 2 }),
        ] {
            let data = all.entry((Machine::TCG, name)).or_default();
            let mut latency = Latency::new();
            (0..100).for_each(|i| latency.record(scale * (10_000 + u64::from(round) * 1000) + i));
            data.control.add(&latency);
            data.control_medians.add(round, &latency);
            // Under probes it takes a tenth longer.
            let mut observed = Latency::new();
            (0..100).for_each(|i| observed.record(scale * (11_000 + u64::from(round) * 1100) + i));
            data.traced_medians.add(round, &observed);
            let requests: Vec<Times> = (0..50)
                .map(|i| {
                    let mut times = Times {
                        interval: [200; vmtax_model::Checkpoint::COUNT],
                        wake_runnable: i % 5,
                        ..Times::default()
                    };
                    times.interval[Checkpoint::HostComplete as usize] = 1000 * scale + i * 10;
                    times.lock = if i == 49 { 30_000 } else { 0 };
                    times
                })
                .collect();
            let world = alone(&requests);
            data.add(round, &trial(&world, &[]));
            let mut calls = TrialCalls::new(&facts(), 0..=u64::MAX);
            world.host.iter().for_each(|event| calls.take(event));
            data.add_calls(&calls);
        }
    }
    together(
        &plan,
        &vmtax_model::testing::host(vmtax_model::KvmClass::Hardware),
        &all,
        &host,
        Vec::new(),
    )
}

#[test]
fn sums_close_and_each_figure_is_over_all_requests() {
    let findings = findings();
    assert_eq!(findings.columns.len(), 3);
    assert!((findings.host.unwrap().mean_ns / 28_000.0 - 1.0).abs() < 1e-3);
    for column in &findings.columns {
        assert_eq!((column.rounds, column.matched.joined), (6, 300));
        let sum: f64 = column.rows.iter().map(|r| r.time.mean_ns).sum();
        assert!((sum + column.unexplained_ns - column.traced.mean_ns).abs() < 1e-6);
        // From the stamp to the call, and from the call to the stamp.
        assert!(
            (column.unexplained_ns - 400.0).abs() < 1e-6,
            "{}",
            column.unexplained_ns
        );
        let percent: f64 = column.rows.iter().map(|r| r.percent).sum();
        assert!(
            (percent + 100.0 * column.unexplained_ns / column.traced.mean_ns - 100.0).abs() < 1e-9
        );
        // Six rounds give the range of their means.
        for row in &column.rows {
            let interval = row.mean.interval.unwrap();
            assert!(interval.low <= row.mean.median && row.mean.median <= interval.high);
            assert!(row.time.p50_ns <= row.time.p90_ns && row.time.p99_ns <= row.time.max_ns);
        }
        assert_eq!(column.heat.counts.iter().flatten().sum::<u32>(), 300);
    }
}

#[test]
fn the_lock_is_a_row_and_what_the_slowest_do_differently() {
    let findings = findings();
    let column = &findings.columns[0];
    let lock = column
        .rows
        .iter()
        .find(|r| r.state == vmtax_findings::State::Lock)
        .unwrap();
    assert_eq!((lock.count, lock.time.p50_ns), (6, 0.0));
    assert_eq!(
        (lock.from, lock.to, lock.time.max_ns),
        (Checkpoint::QemuWake, Checkpoint::QemuPop, 30_000.0)
    );
    let first = &column.tail[0];
    assert!(first.label.contains("lock"), "{first:?}");
    assert_eq!((first.median_ns, first.slowest_ns), (0.0, 30_000.0));
    let p99 = column.waterfalls.iter().find(|w| w.which == "p99").unwrap();
    assert!(
        p99.spans
            .iter()
            .any(|s| s.state == vmtax_findings::State::Lock && s.end_ns - s.begin_ns == 30_000.0)
    );
    assert!(p99.spans.windows(2).all(|s| s[0].end_ns == s[1].begin_ns));
    let main = column
        .calls
        .iter()
        .find(|c| c.role == vmtax_model::Role::Main)
        .unwrap();
    assert_eq!(main.locks.as_ref().map(|l| l.count), Some(6));
}

#[test]
fn a_variant_wins_only_where_the_interval_says_so() {
    let findings = findings();
    let difference_for = |name: &str| {
        findings
            .differences
            .iter()
            .find(|d| d.variant == name)
            .unwrap()
    };
    assert_eq!(
        [difference_for("b"), difference_for("c")].map(|d| d.comparison.verdict),
        [Verdict::Faster, Verdict::Inconclusive]
    );
    assert!((difference_for("b").comparison.ratio.median - 2.0 / 3.0).abs() < 0.01);
    assert!(
        findings.advice[0].finding.contains("with b as with"),
        "{:?}",
        findings.advice
    );
    let observer = findings.columns[0].observer.unwrap();
    assert!((observer.median - 1.1).abs() < 0.01, "{observer:?}");
}

#[test]
fn the_life_of_a_request_and_the_nested_view() {
    let findings = findings();
    let column = &findings.columns[1];
    let step = |label: &str| column.lifecycle.iter().find(|s| s.label == label).unwrap();
    assert_eq!(
        (
            step("guest system call").since_previous_ns,
            step("guest system call").thread.as_str()
        ),
        (200.0, "guest")
    );
    assert_eq!(step("QEMU takes request").thread, "main loop");
    assert_eq!(step("host block complete").thread, "host kernel");
    let labels: Vec<&str> = column.nested.iter().map(|n| n.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "guest benchmark",
            "guest virtio",
            "KVM",
            "QEMU virtio",
            "QEMU AIO"
        ]
    );
    let sum: f64 = column.nested.iter().map(|n| n.delta_ns).sum();
    assert!((sum - column.traced.mean_ns).abs() < 1e-6);
}

const CALL: u64 = 7;
const SCHEDULE: u64 = 5;
const TRACEPOINT: u64 = 3;
const UPROBE: u64 = 11;
const KPROBE: u64 = 13;
/// The first of its kind since a thread slept takes so much longer.
const FIRST: u64 = 17;

fn costs(first: u64) -> Vec<EventCost> {
    let costs = [CALL, SCHEDULE, TRACEPOINT, UPROBE, KPROBE].map(|ticks| ticks as f64);
    let cost = |kind: EventKind| {
        let again_ns = costs[kind as usize];
        EventCost {
            kind,
            first_ns: again_ns + first as f64,
            again_ns,
        }
    };
    EventKind::ALL.map(cost).to_vec()
}

fn untraced() -> Times {
    Times {
        interval: [400; vmtax_model::Checkpoint::COUNT],
        wake_runnable: 50,
        reap_waiting: 80,
        reap_runnable: 90,
        interrupt_runnable: 110,
        return_runnable: 120,
        ..Times::default()
    }
}

/// By the checkpoint to which an interval leads: the events on the path within it, as `World::request` makes them.
const EVENTS: [(Checkpoint, u64); 16] = [
    (Checkpoint::GuestIssue, CALL),
    (Checkpoint::GuestNotify, TRACEPOINT + KPROBE),
    (Checkpoint::KvmNotify, 0),
    (Checkpoint::QemuWake, TRACEPOINT + 2 * SCHEDULE),
    (Checkpoint::QemuPop, CALL + UPROBE),
    (Checkpoint::QemuSubmit, UPROBE),
    (Checkpoint::HostCall, 0),
    (Checkpoint::HostIssue, CALL),
    (Checkpoint::HostComplete, TRACEPOINT),
    (Checkpoint::QemuReap, TRACEPOINT + 2 * SCHEDULE),
    (Checkpoint::QemuPush, CALL + UPROBE),
    (Checkpoint::QemuNotify, UPROBE),
    (Checkpoint::Inject, UPROBE),
    (Checkpoint::GuestInterrupt, 2 * SCHEDULE),
    (Checkpoint::GuestComplete, TRACEPOINT),
    (Checkpoint::GuestReturn, TRACEPOINT + 2 * SCHEDULE),
];

/// Returns the untraced requests with their events recorded: each interval is longer by the cost of its events, and
/// the last one, up to the workload's stamp, by the return of the call.
fn traced(more: &[(Checkpoint, u64)]) -> World {
    let mut times = untraced();
    for (to, ticks) in more {
        times.interval[*to as usize] += ticks;
    }
    times.interval[Checkpoint::End as usize] += CALL;
    World {
        costs: costs(0),
        ..alone(&[times; 9])
    }
}

/// The intervals of a request without its events' costs.
fn corrected(request: &JoinedRequest) -> BTreeMap<Checkpoint, u64> {
    let mut intervals = BTreeMap::new();
    for segment in &request.segments {
        *intervals.entry(segment.to).or_default() +=
            segment.ticks - u64::from(segment.recorded.ticks);
    }
    intervals
}

#[test]
fn what_recording_adds_comes_off_the_segment_that_it_made_longer() {
    let (traced, untraced) = (traced(&EVENTS), alone(&[untraced(); 9]));
    let (with, without) = (
        traced.join(View::Kernel, 0, |t| t),
        untraced.join(View::Kernel, 0, |t| t),
    );
    assert_eq!((with.requests.len(), without.requests.len()), (9, 9));
    for (with, without) in with.requests.iter().zip(&without.requests) {
        assert_eq!(corrected(with), corrected(without));
        assert_eq!(u64::from(with.recorded_outside.ticks), CALL);
        let on_path: u64 = EVENTS.iter().map(|(_, ticks)| ticks).sum();
        assert_eq!(with.total() - on_path - CALL, without.total());
        assert_eq!(
            without
                .segments
                .iter()
                .map(|s| s.recorded.ticks)
                .sum::<u32>(),
            0,
            "their cost is not known"
        );
    }
}

#[test]
fn the_first_event_since_a_thread_slept_costs_more() {
    let usual = World {
        costs: costs(0),
        ..alone(&[untraced(); 2])
    };
    let more = World {
        costs: costs(FIRST),
        ..alone(&[untraced(); 2])
    };
    let (usual, more) = (
        usual.join(View::Kernel, 0, |t| t),
        more.join(View::Kernel, 0, |t| t),
    );
    let (usual, more) = (corrected(&usual.requests[1]), corrected(&more.requests[1]));
    let firsts: BTreeMap<Checkpoint, u64> = usual
        .iter()
        .map(|(to, ticks)| (*to, (ticks - more[to]) / FIRST))
        .collect();
    // A wait's return and the probe behind it; the probes and the call that follow are not the first.
    assert_eq!(
        (firsts[&Checkpoint::QemuPop], firsts[&Checkpoint::QemuPush]),
        (2, 2)
    );
    for again in [
        Checkpoint::QemuSubmit,
        Checkpoint::HostIssue,
        Checkpoint::QemuNotify,
        Checkpoint::Inject,
    ] {
        assert_eq!(firsts[&again], 0, "{again:?}");
    }
    // To be woken and to be switched to.
    assert!(firsts[&Checkpoint::QemuWake] >= 2 && firsts[&Checkpoint::QemuReap] >= 2);
}

#[test]
fn a_segment_is_never_below_0() {
    let mut world = alone(&[untraced(); 3]);
    world.costs = costs(1_000_000);
    for request in &world.join(View::Kernel, 0, |t| t).requests {
        assert!(
            request
                .segments
                .iter()
                .all(|s| u64::from(s.recorded.ticks) <= s.ticks)
        );
        assert!(u64::from(request.recorded_outside.ticks) <= request.total());
    }
}

#[test]
fn the_sum_of_the_corrected_rows_is_the_corrected_total() {
    let mut sums = ColumnSums::default();
    sums.add(0, &trial(&traced(&EVENTS), &[]));
    let whole = sums
        .corrected
        .whole(800.0 + CALL as f64, 0.0, &BTreeMap::new())
        .unwrap();
    let requests = sums.total.count();
    let rows = sums.rows.iter().map(|(key, times)| {
        times.summary_of(requests).mean_ns - sums.corrected.row(*key).map_or(0.0, |(_, ns)| ns)
    });
    assert!((rows.sum::<f64>() + whole.unexplained_ns - whole.total.mean_ns).abs() < 1e-6);
    let truth = alone(&[untraced(); 9]);
    let untraced = truth.operations[0].end - truth.operations[0].begin;
    assert_eq!(
        (whole.total.p50_ns, whole.total.mean_ns),
        (untraced as f64, untraced as f64)
    );
    assert_eq!(whole.unexplained_ns, 800.0);
    // 16 intervals have 24 events, and the call's return is behind the last.
    assert_eq!(whole.events, 25.0);
    assert_eq!(whole.costs.len(), EventKind::ALL.len());
    // A trial that was not calibrated, beside one that was.
    sums.add(1, &trial(&alone(&[self::untraced(); 2]), &[]));
    assert!(sums.corrected.whole(0.0, 0.0, &BTreeMap::new()).is_none());
    assert!(
        sums.rows
            .keys()
            .all(|key| sums.corrected.row(*key).is_none())
    );
}
