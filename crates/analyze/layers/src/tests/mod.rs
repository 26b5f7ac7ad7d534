//! Planted requests must come out as they were planted.

mod by_calls;
mod cases;
mod findings;
mod from_host;
mod operations;

use crate::JoinedRequest;
use crate::events::{Event, GuestEvent, HostEvent};
use crate::findings::column_sums::ColumnSums;
use crate::join::joiner::Join;
use crate::join::{Reason, View};
use crate::synthetic::deep::{Batch, in_ring};
use crate::synthetic::{BLOCK, Times, Truth, World, facts, found};
use crate::trial::joined_trial::JoinedTrial;
use proptest::prelude::*;
use vmtax_findings::RequestKind;
use vmtax_model::{Checkpoint, Stamped};

const GAP: u64 = 50;
const START: u64 = 10_000_000;

fn alone(times: &[Times]) -> World {
    let mut world = World::new(START - 100);
    let mut at = START;
    for (i, times) in times.iter().enumerate() {
        world.request(at, (i as u64 % 512) * 4096, times);
        at = world.end() + GAP;
    }
    world
}

fn times() -> impl Strategy<Value = Times> {
    let some = || prop_oneof![Just(0_u64), 1_u64..5000];
    let intervals = prop::collection::vec(10_u64..20_000, vmtax_model::Checkpoint::COUNT);
    let waits = prop::collection::vec(some(), 9);
    (
        intervals,
        waits,
        prop::option::of(1_u64..3000),
        any::<bool>(),
    )
        .prop_map(|(interval, w, kworker_waits, kick)| Times {
            interval: interval.try_into().unwrap(),
            kworker_waits,
            vcpu_preempted: w[0],
            wake_runnable: w[1],
            lock: w[2],
            lock_runnable: w[3],
            reap_waiting: w[4],
            reap_runnable: w[5],
            push_preempted: w[6],
            interrupt_runnable: w[7],
            return_runnable: w[8],
            kick,
        })
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = (
        prop::collection::vec((0_u64..40, any::<bool>()), 1..33),
        0_u64..300,
        prop::collection::vec(1_usize..5, 0..8),
        prop::collection::vec(0_u64..5000, 0..33),
        any::<bool>(),
    );
    let batch = batch.prop_map(|(issues, wake, merges, device, polled)| Batch {
        issues,
        wake,
        merges,
        device,
        polled,
    });
    prop::collection::vec(batch, 1..8)
}

fn deep(batches: &[Batch]) -> World {
    let mut world = World::new(START - 100);
    let (mut at, mut offset) = (START, 0);
    for batch in batches {
        world.batch(at, offset, batch);
        at = world.end() + GAP;
        // Reads on, and begins again at the end; never across the seam of the file's two extents.
        offset = (offset + 32 * BLOCK) % (1 << 20);
    }
    world
}

#[test]
fn one_request_comes_out_as_it_was_planted() {
    let world = alone(&[Times::default()]);
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(joined.rejected, []);
    assert_eq!(joined.requests.len(), 1);
    assert_eq!(found(&joined.requests[0]), world.truth[0]);
}

#[test]
fn no_more_is_remembered_than_requests_under_way_need() {
    let world = alone(
        &[Times {
            interval: [10_000; vmtax_model::Checkpoint::COUNT],
            ..Times::default()
        }; 2000],
    );
    let mut most = 0;
    let joined = world.join_with(
        View::Kernel,
        0,
        |t| t,
        |join| most = most.max(join.remembers()),
    );
    assert_eq!(joined.requests.len(), 2000);
    // 40 events a request; a request and the slack around it take some 10 of them.
    assert!(most < 1000, "{most}");
}

#[test]
fn a_clock_that_is_off_by_more_than_its_bound_is_found_out() {
    let world = alone(
        &[Times {
            interval: [500; vmtax_model::Checkpoint::COUNT],
            ..Times::default()
        }; 50],
    );
    for off in [-4000, 4000] {
        let joined = world.join(View::Kernel, 1000, |t| t.wrapping_add_signed(off));
        assert_eq!(joined.requests, []);
        assert_eq!(joined.rejected.len(), 50);
        assert!(
            joined
                .rejected
                .iter()
                .all(|r| r.reason == Reason::Violation),
            "{:?}",
            joined.rejected
        );
    }
}

/// The guest's clock is off by more than its way from the notification to the return, within its bound: that moves the host's
/// checkpoints, and the guest's own time from call to return stays what it is.
#[test]
fn a_clock_that_is_off_does_not_stretch_the_guests_own_time() {
    for kick in [false, true] {
        let world = alone(&[Times {
            interval: [10; vmtax_model::Checkpoint::COUNT],
            kick,
            ..Times::default()
        }]);
        for off in -66_i64..=66 {
            let joined = world.join(View::Kernel, 66, |t| t.wrapping_add_signed(off));
            assert_eq!(joined.rejected, []);
            keeps_its_length(&joined.requests[0], &world.truth[0]).unwrap();
        }
    }
}

/// Checks that a request takes as long as its truth, as a whole and in the guest's kernel.
fn keeps_its_length(request: &JoinedRequest, truth: &Truth) -> Result<(), TestCaseError> {
    let between = |from, to| truth.checkpoints[&to] - truth.checkpoints[&from];
    prop_assert_eq!(request.total(), between(Checkpoint::Begin, Checkpoint::End));
    let segments: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
    prop_assert_eq!(
        segments,
        between(Checkpoint::GuestCall, Checkpoint::GuestReturn)
    );
    Ok(())
}

/// Run by hand: `cargo test --release -p vmtax-layers million -- --ignored --nocapture`.
#[test]
#[ignore = "takes 1 GB and half a minute"]
fn by_hand_a_million_requests_and_what_they_take() {
    const COUNT: u64 = 1_000_000;
    const CHUNK: u64 = 1000;
    let times = Times {
        interval: [2000; vmtax_model::Checkpoint::COUNT],
        kworker_waits: Some(10),
        ..Times::default()
    };
    let begin = std::time::Instant::now();
    let one = alone(&[times]);
    let each = one.end() - START + GAP;
    let operations: Vec<Stamped> = (0..COUNT)
        .map(|i| Stamped {
            begin: START + i * each,
            end: START + (i + 1) * each - GAP,
            key: i % 512 * BLOCK,
        })
        .collect();
    let mut join = Join::new(&facts(), operations, BLOCK, View::Kernel, 0);
    let (mut most, mut events, mut planting) = (0, 0, std::time::Duration::ZERO);
    for chunk in 0..COUNT / CHUNK {
        let planted = std::time::Instant::now();
        let mut world = World::new(START + chunk * CHUNK * each - 10);
        (0..CHUNK).for_each(|i| {
            let number = chunk * CHUNK + i;
            world.request(START + number * each, number % 512 * BLOCK, &times);
        });
        planting += planted.elapsed();
        events += world.guest.len() + world.host.len();
        world.feed(&mut join, |t| t, |join| most = most.max(join.remembers()));
    }
    let joined = join.finish();
    assert_eq!(joined.requests.len() as u64, COUNT);
    let took = begin.elapsed() - planting;
    let trial = JoinedTrial::new(cases::data(joined));
    let mut sums = ColumnSums::default();
    let tallied = std::time::Instant::now();
    sums.add(0, &trial);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find(|l| l.starts_with("VmHWM"))
        .unwrap_or_default()
        .to_owned();
    println!(
        "{events} events joined in {took:?}, at most {most} remembered; tallied in {:?}; {peak}",
        tallied.elapsed()
    );
}

proptest! {
    #[test]
    fn requests_come_out_as_they_were_planted(times in prop::collection::vec(times(), 1..20)) {
        let world = alone(&times);
        let joined = world.join(View::Kernel, 0, |t| t);
        prop_assert_eq!(&joined.rejected, &[]);
        prop_assert_eq!(joined.requests.len(), times.len());
        for (request, truth) in joined.requests.iter().zip(&world.truth) {
            prop_assert_eq!(&found(request), truth);
        }
    }

    #[test]
    fn many_at_once_come_out_as_they_were_planted(batches in batches()) {
        let world = deep(&batches);
        let joined = world.join(View::Kernel, 0, |t| t);
        prop_assert_eq!(&joined.rejected, &[]);
        prop_assert_eq!(joined.requests.len(), world.operations.len());
        for request in &joined.requests {
            let truth = world.truth.iter().find(|t| t.offset == request.key && t.checkpoints[&Checkpoint::Begin] == request.begin());
            let (found, truth) = (found(request), truth.unwrap());
            prop_assert_eq!(&found.checkpoints, &truth.checkpoints);
            prop_assert_eq!(in_ring(&found), in_ring(truth));
            prop_assert_eq!(request.last(), truth.checkpoints[&Checkpoint::GuestReturn]);
        }
    }

    /// Requests that nobody stamped are the same from their issue to their completion.
    #[test]
    fn without_stamps_each_request_is_an_operation(batches in batches()) {
        let world = deep(&batches);
        let (stamped, unstamped) = (world.join(View::Kernel, 0, |t| t), world.join_unstamped());
        prop_assert_eq!(&unstamped.rejected, &[]);
        prop_assert_eq!((unstamped.requests.len(), unstamped.parts.len()), (stamped.requests.len(), stamped.requests.len()));
        let identity = |request: &JoinedRequest| (request.at(Checkpoint::GuestIssue), request.key);
        for request in &unstamped.requests {
            let same = stamped.requests.iter().find(|r| identity(r) == identity(request)).unwrap();
            prop_assert_eq!(request.kind, RequestKind::Read);
            let within = |s: &Checkpoint| (Checkpoint::GuestIssue..=Checkpoint::GuestComplete).contains(s);
            let checkpoints = |r: &JoinedRequest| r.checkpoints().filter(|(s, _)| within(s)).collect::<Vec<_>>();
            prop_assert_eq!(checkpoints(request), checkpoints(same));
            prop_assert_eq!(Some(request.begin()), request.at(Checkpoint::GuestIssue));
            prop_assert_eq!(Some(request.end()), request.at(Checkpoint::GuestComplete));
            let segments: u64 = request.segments.iter().map(|p| p.ticks).sum();
            prop_assert_eq!(segments, request.total());
        }
    }

    /// The wait in the guest's block layer before the issue is a part of the request.
    #[test]
    fn a_request_begins_when_the_block_layer_has_it(times in prop::collection::vec(times(), 1..10), early in 1_u64..40) {
        let mut world = alone(&times);
        let issues: Vec<Event<GuestEvent>> =
            world.guest.iter().filter(|e| matches!(e.what, GuestEvent::Issue { .. })).copied().collect();
        for issue in &issues {
            if let GuestEvent::Issue { offset, .. } = issue.what {
                world.guest.push(Event { at: issue.at - early, what: GuestEvent::Insert { offset }, ..*issue });
            }
        }
        let joined = world.join_unstamped();
        prop_assert_eq!(&joined.rejected, &[]);
        prop_assert_eq!(joined.requests.len(), times.len());
        for request in &joined.requests {
            prop_assert_eq!(Some(request.begin() + early), request.at(Checkpoint::GuestIssue));
            prop_assert_eq!(request.first(), request.begin());
            prop_assert_eq!(request.last(), request.end());
            prop_assert_eq!(request.segments.iter().map(|p| p.ticks).sum::<u64>(), request.total());
        }
        // One that was merged with another and never issued is forgotten, and holds nothing.
        let last = issues.last().unwrap();
        world.guest.push(Event { at: START - 50, what: GuestEvent::Insert { offset: 1 << 40 }, ..*last });
        prop_assert_eq!(world.join_unstamped().requests.len(), times.len());
    }

    /// Whatever happened, and in whichever order.
    #[test]
    fn any_events_are_survived_and_sums_close(
        events in prop::collection::vec((0_u64..3000, 0_u8..25, 0_i32..4, 0_u64..6, any::<bool>()), 0..400),
        operations in prop::collection::vec((0_u64..3000, 0_u64..800, 0_u64..6), 0..20),
        view in prop_oneof![Just(View::Kernel), Just(View::Driver), Just(View::Blind)],
        bound in 0_u64..50,
        sorted in any::<bool>(),
    ) {
        let mut world = World::default();
        for (at, kind, tid, place, interrupt) in events {
            world.any(at + START, kind, tid, place, interrupt);
        }
        for (begin, took, place) in operations {
            world.operations.push(Stamped { begin: begin + START, end: begin + took + START, key: place * BLOCK });
        }
        if sorted {
            world.operations.sort_by_key(|o| o.begin);
        }
        let joined = world.join(view, bound, |t| t);
        prop_assert_eq!(joined.requests.len() + joined.rejected.len(), world.operations.len());
        let unstamped = world.join_unstamped();
        prop_assert_eq!(unstamped.requests.len() + unstamped.rejected.len(), unstamped.parts.len());
        let alone = from_host::join(&world);
        let pops = |e: &&Event<HostEvent>| matches!(e.what, HostEvent::Passes(Checkpoint::QemuPop, _));
        prop_assert!(alone.requests.len() + alone.rejected.len() <= world.host.iter().filter(pops).count());
        for request in &alone.requests {
            prop_assert_eq!(request.segments.iter().map(|segment| segment.ticks).sum::<u64>(), request.total());
        }
        for request in joined.requests.iter().chain(&unstamped.requests).chain(&alone.requests) {
            prop_assert!(request.begin() <= request.first() && request.last() <= request.end());
            prop_assert!(request.segments.iter().all(|p| p.ticks > 0));
            let times: Vec<u64> = request.checkpoints().map(|(_, at)| at).collect();
            prop_assert!(times.windows(2).all(|w| w[0] <= w[1]));
            let last = request.checkpoints().filter(|(s, _)| *s != Checkpoint::End).last().unwrap();
            let busy = request.segments.last().is_some_and(|p| p.to == Checkpoint::End);
            let end = if last.0 == Checkpoint::Begin { request.first() } else { last.1 };
            prop_assert_eq!(request.last() > end, busy);
            prop_assert!(request.last() >= end);
        }
    }

    /// Guest stamps that are off by no more than the bound: nothing is rejected, and the whole keeps its length.
    #[test]
    fn within_its_bound_a_clock_rejects_nothing(
        times in prop::collection::vec(times(), 1..10),
        bound in 0_i64..3000,
        share in -1.0..=1.0,
    ) {
        let world = alone(&times);
        let off = (bound as f64 * share) as i64;
        let joined = world.join(View::Kernel, bound as u64, |t| t.wrapping_add_signed(off));
        prop_assert_eq!(&joined.rejected, &[]);
        for (request, truth) in joined.requests.iter().zip(&world.truth) {
            keeps_its_length(request, truth)?;
        }
    }
}
