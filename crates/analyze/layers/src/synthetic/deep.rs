//! Many requests at once: shared notifications, merged submits, completions out of order, shared interrupts.

use super::{BLOCK, IO_SUBMIT, MAIN, PPOLL, QUEUE, READER, Truth, VCPU, World, on_device};
use crate::events::event::{GuestEvent, HostEvent, Mark};
use vmtax_model::{Checkpoint, RequestKind, Stamped, State};

/// One round of a workload that keeps many requests under way.
#[derive(Debug, Clone)]
pub struct Batch {
    /// For each request: how long after the one before it is issued, and whether a notification follows.
    pub issues: Vec<(u64, bool)>,
    /// Time that QEMU's event loop takes to wake after the first notification, in ticks.
    pub wake: u64,
    /// Number of requests that are merged, for one submit after another.
    pub merges: Vec<usize>,
    /// When each submit's device the time has passed, after its issue.
    pub device: Vec<u64>,
    /// The guest still handles an interrupt when the second half is done, and sees it without another.
    pub polled: bool,
}

impl World {
    /// A batch, from `begin` on, on consecutive blocks from `offset` on. The event loop sleeps before and after it.
    pub fn batch(&mut self, begin: u64, offset: u64, batch: &Batch) {
        use Checkpoint as S;
        let count = batch.issues.len();
        let place = |i: usize| offset + i as u64 * BLOCK;
        let mut truth: Vec<Truth> = (0..count)
            .map(|i| Truth {
                offset: place(i),
                ..Truth::default()
            })
            .collect();
        fn put(truth: &mut [Truth], i: usize, checkpoint: Checkpoint, at: u64) {
            truth[i].checkpoints.insert(checkpoint, at);
        }
        let element = |i: usize| Mark {
            address: Some(0x1000 + place(i)),
            offset: Some(place(i)),
            queue: Some(QUEUE),
            kind: Some(RequestKind::Read),
            ..Mark::default()
        };

        // The workload stamps all, then one call submits all.
        (0..count).for_each(|i| put(&mut truth, i, S::Begin, begin + i as u64));
        let call = begin + count as u64 + 5;
        self.in_guest(call, READER, GuestEvent::Enter);
        let (mut issue, mut notify) = (Vec::new(), Vec::new());
        let mut at = call;
        for (i, (after, notifies)) in batch.issues.iter().enumerate() {
            at += after + 1;
            issue.push(at);
            put(&mut truth, i, S::GuestCall, call);
            put(&mut truth, i, S::GuestIssue, at);
            self.in_guest(
                at,
                READER,
                GuestEvent::Issue {
                    offset: place(i),
                    bytes: BLOCK,
                    kind: RequestKind::Read,
                },
            );
            if *notifies || i == 0 {
                at += 2;
                notify.push(at);
                self.in_guest(at, READER, GuestEvent::Passes(Checkpoint::GuestNotify));
                // The guest stands still until KVM has taken it.
                self.on_host(
                    at + 3,
                    VCPU,
                    HostEvent::Passes(Checkpoint::KvmNotify, Mark::default()),
                );
                at += 4;
            }
        }
        self.in_guest(at + 5, READER, GuestEvent::Exit);
        self.in_guest(at + 7, READER, GuestEvent::Enter);

        // The event loop takes what is there until nothing is.
        let wake = notify[0] + 4 + batch.wake;
        self.on_host(wake, MAIN, HostEvent::Exit);
        let mut pop = wake + 1;
        for i in 0..count {
            pop = (pop + 3).max(issue[i] + 4);
            self.on_host(
                pop,
                MAIN,
                HostEvent::Passes(Checkpoint::QemuPop, element(i)),
            );
            put(&mut truth, i, S::QemuPop, pop);
            match notify.iter().find(|n| **n >= issue[i] && **n <= pop) {
                Some(told) => {
                    put(&mut truth, i, S::GuestNotify, *told);
                    if told + 3 <= pop {
                        put(&mut truth, i, S::KvmNotify, told + 3);
                    }
                    let since = if told + 3 <= pop { told + 3 } else { *told };
                    if wake >= since {
                        put(&mut truth, i, S::QemuWake, wake);
                    }
                }
                None => {
                    _ = truth[i]
                        .states
                        .insert((S::QemuPop, State::InRing), pop - issue[i])
                }
            }
        }

        // Neighbours are merged; one call submits all.
        let mut at = pop + 5;
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        let mut sizes = batch.merges.iter().copied().chain(std::iter::repeat(1));
        while let Some(first) = groups
            .last()
            .map_or(Some(0), |g| Some(g.end).filter(|end| *end < count))
        {
            let group = first..(first + sizes.next().unwrap_or(1).max(1)).min(count);
            at += 3;
            let bytes = group.len() as u64 * BLOCK;
            self.on_host(
                at,
                MAIN,
                HostEvent::Passes(Checkpoint::QemuSubmit, Mark::range(place(first), bytes)),
            );
            group
                .clone()
                .for_each(|i| put(&mut truth, i, S::QemuSubmit, at));
            groups.push(group);
        }
        at += 3;
        let submits = at;
        self.enter(at, MAIN, IO_SUBMIT, [0, groups.len() as u64, 0, 0]);
        let mut completes: Vec<(u64, usize)> = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            at += 3;
            let (from, bytes) = (on_device(place(group.start)), group.len() as u64 * BLOCK);
            self.on_host(
                at,
                MAIN,
                HostEvent::OnDevice(Checkpoint::HostIssue, Mark::range(from, bytes)),
            );
            let complete =
                at + 20 + 3 * groups.len() as u64 + batch.device.get(g).copied().unwrap_or(0);
            self.interrupt_on_host(
                complete,
                HostEvent::OnDevice(Checkpoint::HostComplete, Mark::range(from, bytes)),
            );
            completes.push((complete, g));
            for i in group.clone() {
                put(&mut truth, i, S::HostCall, submits);
                put(&mut truth, i, S::HostIssue, at);
                put(&mut truth, i, S::HostComplete, complete);
            }
        }
        self.on_host(at + 3, MAIN, HostEvent::Exit);
        self.enter(at + 5, MAIN, PPOLL, [0; 4]);

        // What is done comes back in two halves.
        completes.sort_unstable();
        let middle = completes.len().div_ceil(2);
        let (mut at, mut reaped) = (at, 0);
        for (half, part) in completes.chunks(middle).enumerate() {
            at = at.max(part.last().map_or(0, |(c, _)| *c)) + 10;
            reaped += part.len();
            self.on_host(at, MAIN, HostEvent::Exit);
            let reap = at;
            let requests: Vec<usize> = part.iter().flat_map(|(_, g)| groups[*g].clone()).collect();
            for &i in &requests {
                at += 3;
                put(&mut truth, i, S::QemuReap, reap);
                put(&mut truth, i, S::QemuPush, at);
                self.on_host(
                    at,
                    MAIN,
                    HostEvent::Passes(Checkpoint::QemuPush, element(i)),
                );
            }
            let polled = batch.polled && half == 1;
            let (mut told, mut interrupt) = (None, None);
            if !polled {
                self.on_host(
                    at + 2,
                    MAIN,
                    HostEvent::Passes(
                        Checkpoint::QemuNotify,
                        Mark {
                            queue: Some(QUEUE),
                            ..Mark::default()
                        },
                    ),
                );
                self.on_host(
                    at + 4,
                    MAIN,
                    HostEvent::Passes(Checkpoint::Inject, Mark::default()),
                );
                (told, interrupt) = (Some(at + 2), Some(at + 20));
                at += 20;
                self.interrupt_in_guest(at, GuestEvent::Passes(Checkpoint::GuestInterrupt));
            }
            for &i in &requests {
                at += 3;
                put(&mut truth, i, S::GuestComplete, at);
                if let (Some(told), Some(interrupt)) = (told, interrupt) {
                    put(&mut truth, i, S::QemuNotify, told);
                    put(&mut truth, i, S::Inject, told + 2);
                    put(&mut truth, i, S::GuestInterrupt, interrupt);
                }
                self.interrupt_in_guest(at, GuestEvent::Complete { offset: place(i) });
            }
            if polled {
                self.on_host(
                    at + 2,
                    MAIN,
                    HostEvent::Passes(
                        Checkpoint::QemuNotify,
                        Mark {
                            queue: Some(QUEUE),
                            ..Mark::default()
                        },
                    ),
                );
            }
            at += 5;
            self.in_guest(at, READER, GuestEvent::Exit);
            for &i in &requests {
                put(&mut truth, i, S::GuestReturn, at);
                put(&mut truth, i, S::End, at + 1 + i as u64);
                self.operations.push(Stamped {
                    begin: begin + i as u64,
                    end: at + 1 + i as u64,
                    key: place(i),
                });
            }
            at += 2 + count as u64;
            if reaped < completes.len() {
                self.in_guest(at, READER, GuestEvent::Enter);
            }
            self.enter(at, MAIN, PPOLL, [0; 4]);
        }
        self.operations.sort_by_key(|o| o.begin);
        self.truth.extend(truth);
    }
}

/// Returns the time that the request waited in the avail ring, in ticks; `None` if it did not wait there.
pub fn in_ring(truth: &Truth) -> Option<u64> {
    truth
        .states
        .get(&(Checkpoint::QemuPop, State::InRing))
        .copied()
}
