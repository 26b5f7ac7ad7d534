//! Requests of a VM whose VMM no probe shows: its system calls, the block layer and the scheduler tell of them.

use super::{START, alone, batches, deep, times};
use crate::events::{HostEvent, Mark};
use crate::join::Joined;
use crate::join::joiner::Join;
use crate::synthetic::{MAIN, OTHER, Times, Truth, VCPU, World, facts, found, on_device};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vmtax_findings::{RequestKind, State};
use vmtax_model::{Checkpoint, QemuThread, Role};
use vmtax_trace::{Leaves, Sched};

const WORKER: i32 = 102;
const PREAD64: u32 = 17;
const FDATASYNC: u32 = 75;

fn join(world: &World) -> Joined {
    let mut facts = facts();
    facts.threads.push(QemuThread {
        tid: WORKER,
        role: Role::Worker,
    });
    let mut join = Join::by_calls(&facts);
    let world = World {
        guest: Vec::new(),
        ..world.clone()
    };
    world.feed(&mut join, |t| t, |_| {});
    join.finish()
}

/// The part of a request's truth that shows without a probe in the VMM.
fn without_probes(truth: &Truth, from: Checkpoint) -> BTreeMap<Checkpoint, u64> {
    let of_probes = [
        Checkpoint::QemuPop,
        Checkpoint::QemuSubmit,
        Checkpoint::QemuPush,
        Checkpoint::QemuNotify,
    ];
    let seen = truth.checkpoints.range(from..=Checkpoint::Inject);
    seen.filter(|(checkpoint, _)| !of_probes.contains(checkpoint))
        .map(|(checkpoint, at)| (*checkpoint, *at))
        .collect()
}

proptest! {
    #[test]
    fn each_request_alone_comes_out_from_its_kick_to_its_interrupt(all in prop::collection::vec(times(), 1..8)) {
        let world = alone(&all);
        let joined = join(&world);
        prop_assert_eq!(&joined.rejected, &[]);
        prop_assert_eq!(joined.requests.len(), all.len());
        for ((request, truth), times) in joined.requests.iter().zip(&world.truth).zip(&all) {
            let found = found(request);
            prop_assert_eq!(found.offset, truth.offset);
            let from = if times.kick { Checkpoint::KvmNotify } else { Checkpoint::QemuWake };
            prop_assert_eq!(without_probes(&found, from), without_probes(truth, from));
            let segments: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            prop_assert_eq!(segments, request.total());
        }
    }

    #[test]
    fn of_many_at_once_each_is_followed_in_the_hosts_kernel(batches in batches()) {
        let world = deep(&batches);
        let joined = join(&world);
        prop_assert_eq!(&joined.rejected, &[]);
        // Neighbours that QEMU merged are one.
        let of_device: BTreeMap<(u64, u64), &Truth> = world
            .truth
            .iter()
            .rev()
            .map(|truth| ((truth.checkpoints[&Checkpoint::HostIssue], truth.checkpoints[&Checkpoint::HostComplete]), truth))
            .collect();
        prop_assert_eq!(joined.requests.len(), of_device.len());
        for request in &joined.requests {
            let found = found(request);
            let truth = of_device[&(found.checkpoints[&Checkpoint::HostIssue], found.checkpoints[&Checkpoint::HostComplete])];
            prop_assert_eq!(found.offset, truth.offset);
            let below = |checkpoints: &BTreeMap<Checkpoint, u64>| -> Vec<(Checkpoint, u64)> {
                let below = checkpoints.range(Checkpoint::HostCall..=Checkpoint::HostComplete);
                below.map(|(checkpoint, at)| (*checkpoint, *at)).collect()
            };
            prop_assert_eq!(below(&found.checkpoints), below(&truth.checkpoints));
            // The next return from the wait is taken for its own, also where the loop left it to the one after.
            let reaped = found.checkpoints[&Checkpoint::QemuReap];
            prop_assert!(reaped >= truth.checkpoints[&Checkpoint::HostComplete]);
            prop_assert!(reaped <= truth.checkpoints[&Checkpoint::QemuReap]);
        }
    }

    #[test]
    fn any_sequence_is_survived(events in prop::collection::vec((0u64..50, 0u8..27, 0i32..4, 0u64..8, any::<bool>()), 0..200)) {
        let (mut world, mut at) = (World::new(START - 100), START);
        for (after, kind, tid, place, interrupt) in events {
            at += after;
            world.any(at, kind, tid, place, interrupt);
        }
        for request in join(&world).requests {
            let segments: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            prop_assert!(segments <= request.total());
        }
    }
}

/// A request that the main loop hands to a thread of its pool, which reads and tells it: the events from `at` on, and when
/// each was.
fn by_a_worker(world: &mut World, at: u64, nr: u32, args: [u64; 4]) -> BTreeMap<Checkpoint, u64> {
    let woke = |tid| HostEvent::Sched(Sched::Waking { tid });
    let runs = |tid| {
        HostEvent::Sched(Sched::Switch {
            prev: OTHER,
            leaves: Leaves::Runnable,
            next: tid,
        })
    };
    let sleeps = |tid| {
        HostEvent::Sched(Sched::Switch {
            prev: tid,
            leaves: Leaves::Sleeping,
            next: OTHER,
        })
    };
    world.on_host(at, VCPU, woke(MAIN));
    world.on_host(at + 5, OTHER, runs(MAIN));
    world.on_host(at + 10, MAIN, HostEvent::Woke);
    world.on_host(at + 20, MAIN, woke(WORKER));
    world.on_host(at + 22, MAIN, sleeps(MAIN));
    world.on_host(at + 30, OTHER, runs(WORKER));
    world.on_host(at + 40, WORKER, HostEvent::Enter { nr, args });
    let range = Mark::range(on_device(args[3]), 4096);
    if nr == PREAD64 {
        world.on_host(
            at + 50,
            WORKER,
            HostEvent::OnDevice(Checkpoint::HostIssue, range),
        );
        world.interrupt_on_host(
            at + 80,
            HostEvent::OnDevice(Checkpoint::HostComplete, range),
        );
    }
    world.on_host(at + 90, WORKER, HostEvent::Exit);
    world.on_host(at + 95, WORKER, woke(MAIN));
    world.on_host(at + 96, WORKER, sleeps(WORKER));
    world.on_host(at + 98, OTHER, runs(MAIN));
    world.on_host(at + 100, MAIN, HostEvent::Woke);
    world.on_host(
        at + 110,
        MAIN,
        HostEvent::Passes(Checkpoint::Inject, Mark::default()),
    );
    world.on_host(at + 120, MAIN, sleeps(MAIN));
    let of_call = [
        (Checkpoint::KvmNotify, at),
        (Checkpoint::QemuWake, at + 10),
        (Checkpoint::QemuSubmit, at + 20),
        (Checkpoint::HostCall, at + 40),
        (Checkpoint::QemuReap, at + 100),
        (Checkpoint::Inject, at + 110),
    ];
    let of_device = [
        (Checkpoint::HostIssue, at + 50),
        (Checkpoint::HostComplete, at + 80),
    ];
    let of_device = of_device.into_iter().filter(|_| nr == PREAD64);
    of_call.into_iter().chain(of_device).collect()
}

#[test]
fn a_request_that_a_thread_hands_to_another_is_followed_there_and_back() {
    let mut world = World::new(START - 100);
    // The disk's file has descriptor 9.
    let read = by_a_worker(&mut world, START, PREAD64, [9, 0, 4096, 8192]);
    let flush = by_a_worker(&mut world, START + 1000, FDATASYNC, [9, 0, 0, 0]);
    by_a_worker(&mut world, START + 2000, FDATASYNC, [8, 0, 0, 0]);
    let requests = join(&world).requests;
    let kinds: Vec<RequestKind> = requests.iter().map(|request| request.kind).collect();
    assert_eq!(kinds, [RequestKind::Read, RequestKind::Flush]);
    for (request, expected) in requests.iter().zip([read, flush]) {
        let mut checkpoints = found(request).checkpoints;
        checkpoints
            .retain(|checkpoint, _| !matches!(checkpoint, Checkpoint::Begin | Checkpoint::End));
        assert_eq!(checkpoints, expected);
    }
    assert_eq!(requests[0].key, 8192);
}

#[test]
fn what_the_loop_finds_without_another_kick_begins_with_its_call() {
    let mut world = alone(&[Times::default()]);
    let at = world.end() + 1000;
    let read = |world: &mut World, at: u64| {
        world.enter(at, MAIN, PREAD64, [9, 0, 4096, 0]);
        world.on_host(at + 10, MAIN, HostEvent::Exit);
    };
    world.on_host(
        at,
        VCPU,
        HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
    );
    world.on_host(at + 10, MAIN, HostEvent::Woke);
    read(&mut world, at + 20);
    read(&mut world, at + 40);
    let begins: Vec<u64> = join(&world)
        .requests
        .iter()
        .skip(1)
        .map(|request| request.begin())
        .collect();
    assert_eq!(begins, [at, at + 40]);
}

/// A worker of the kernel, which is none of the VMM's threads.
const KERNEL_WORKER: i32 = 300;

#[test]
fn an_interrupt_that_is_left_to_a_worker_of_the_kernel_is_followed_there() {
    let mut world = World::new(START - 100);
    let work = 0xffff_8000;
    for at in [START, START + 1000] {
        world.on_host(at, VCPU, HostEvent::Sched(Sched::Waking { tid: MAIN }));
        world.on_host(at + 10, MAIN, HostEvent::Woke);
        world.enter(at + 20, MAIN, PREAD64, [9, 0, 4096, 8192]);
        world.on_host(at + 50, MAIN, HostEvent::Exit);
        world.on_host(at + 60, MAIN, HostEvent::InterruptQueued(work));
        let woken = Sched::Waking { tid: KERNEL_WORKER };
        world.on_host(at + 61, MAIN, HostEvent::Sched(woken));
        let runs = Sched::Switch {
            prev: OTHER,
            leaves: Leaves::Runnable,
            next: KERNEL_WORKER,
        };
        world.on_host(at + 85, OTHER, HostEvent::Sched(runs));
        // Another VM's, in the same worker.
        world.on_host(at + 88, KERNEL_WORKER, HostEvent::InterruptBegun(work + 8));
        world.on_host(at + 90, KERNEL_WORKER, HostEvent::InterruptBegun(work));
    }
    let requests = join(&world).requests;
    assert_eq!(requests.len(), 2);
    for (at, request) in [START, START + 1000].into_iter().zip(&requests) {
        let checkpoints = found(request).checkpoints;
        assert_eq!(checkpoints[&Checkpoint::QemuNotify], at + 60);
        assert_eq!(checkpoints[&Checkpoint::Inject], at + 90);
    }
    // The first interrupt shows that the worker is one of these.
    let waits: Vec<(State, u64)> = requests[1]
        .segments
        .iter()
        .filter(|segment| segment.to == Checkpoint::Inject)
        .map(|segment| (segment.state, segment.ticks))
        .collect();
    assert_eq!(
        waits,
        [
            (State::Running, 1),
            (State::Runnable, 24),
            (State::Running, 5)
        ]
    );
}

#[test]
fn an_interrupt_that_is_on_its_way_tells_of_the_next_request_too() {
    let mut world = World::new(START - 100);
    let work = 0xffff_8000;
    world.on_host(START, MAIN, HostEvent::Woke);
    let mut at = START;
    for offset in [0, 4096] {
        world.enter(at + 20, MAIN, PREAD64, [9, 0, 4096, offset]);
        at += 50;
        world.on_host(at, MAIN, HostEvent::Exit);
        if offset == 0 {
            world.on_host(at + 10, MAIN, HostEvent::InterruptQueued(work));
        }
    }
    world.on_host(at + 40, KERNEL_WORKER, HostEvent::InterruptBegun(work));
    for request in join(&world).requests {
        let checkpoints = found(&request).checkpoints;
        assert_eq!(checkpoints[&Checkpoint::Inject], at + 40);
        let notified = checkpoints.get(&Checkpoint::QemuNotify);
        assert_eq!(notified.is_some(), request.key == 0);
    }
}
