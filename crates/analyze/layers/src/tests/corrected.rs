//! The cost of recording a request's events must come off where it was added.

use super::alone;
use super::cases::trial;
use crate::findings::column_sums::ColumnSums;
use crate::join::View;
use crate::request::JoinedRequest;
use crate::synthetic::{Times, World};
use std::collections::BTreeMap;
use vmtax_model::{Checkpoint, EventCost, EventKind};

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
        .whole(800.0 + CALL as f64, &BTreeMap::new())
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
    assert!(sums.corrected.whole(0.0, &BTreeMap::new()).is_none());
    assert!(
        sums.rows
            .keys()
            .all(|key| sums.corrected.row(*key).is_none())
    );
}
