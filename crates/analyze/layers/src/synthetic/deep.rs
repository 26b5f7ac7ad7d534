//! Many requests at once: shared notifications, merged submits, completions out of order, shared interrupts.

use super::{BLOCK, CALL, IO_SUBMIT, MAIN, PPOLL, READER, Truth, VCPU, World, element, on_device};
use crate::events::{GuestEvent, HostEvent, Mark};
use std::ops::Range;
use vmtax_findings::{RequestKind, State};
use vmtax_model::{Checkpoint, Stamped};

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

/// A submit that the device has completed, of one request or several.
struct Completed {
    at: u64,
    requests: Range<usize>,
}

/// A batch on its way: the time it has come to, and the truth so far.
struct Round<'a> {
    batch: &'a Batch,
    begin: u64,
    offset: u64,
    at: u64,
    truth: Vec<Truth>,
    /// When each request was issued.
    issues: Vec<u64>,
    /// When the guest notified QEMU.
    notifies: Vec<u64>,
}

impl<'a> Round<'a> {
    /// Returns the round at its begin.
    fn new(begin: u64, offset: u64, batch: &'a Batch) -> Self {
        let mut round = Round {
            batch,
            begin,
            offset,
            at: begin,
            truth: Vec::new(),
            issues: Vec::new(),
            notifies: Vec::new(),
        };
        round.truth = (0..batch.issues.len())
            .map(|i| Truth {
                offset: round.place(i),
                ..Truth::default()
            })
            .collect();
        round
    }

    /// Returns the number of requests.
    fn count(&self) -> usize {
        self.batch.issues.len()
    }

    /// Returns where on the disk a request is.
    fn place(&self, i: usize) -> u64 {
        self.offset + i as u64 * BLOCK
    }

    /// Notes when a request was at a checkpoint.
    fn put(&mut self, i: usize, checkpoint: Checkpoint, at: u64) {
        self.truth[i].checkpoints.insert(checkpoint, at);
    }

    /// Notes by which notification a request was found that was popped at `pop`, in the ring if by none.
    fn put_notification(&mut self, i: usize, wake: u64, pop: u64) {
        let issue = self.issues[i];
        let tells = |at: &u64| (issue..=pop).contains(at);
        match self.notifies.iter().copied().find(tells) {
            Some(told) => {
                self.put(i, Checkpoint::GuestNotify, told);
                if told + 3 <= pop {
                    self.put(i, Checkpoint::KvmNotify, told + 3);
                }
                let since = if told + 3 <= pop { told + 3 } else { told };
                if wake >= since {
                    self.put(i, Checkpoint::QemuWake, wake);
                }
            }
            None => {
                let waited = (Checkpoint::QemuPop, State::InRing);
                self.truth[i].states.insert(waited, pop - issue);
            }
        }
    }
}

impl World {
    /// A batch, from `begin` on, on consecutive blocks from `offset` on. The event loop sleeps before and after it.
    pub fn batch(&mut self, begin: u64, offset: u64, batch: &Batch) {
        let mut round = Round::new(begin, offset, batch);
        self.issue_batch(&mut round);
        self.pop_batch(&mut round);
        let groups = self.submit_batch(&mut round);
        let completes = self.serve_batch(&mut round, groups);
        self.return_batch(&mut round, &completes);
        self.operations.sort_by_key(|o| o.begin);
        self.truth.extend(round.truth);
    }

    /// The workload stamps all, then one call submits all.
    fn issue_batch(&mut self, round: &mut Round<'_>) {
        let (batch, begin, count) = (round.batch, round.begin, round.count());
        (0..count).for_each(|i| round.put(i, Checkpoint::Begin, begin + i as u64));
        let call = begin + count as u64 + 5;
        self.in_guest(call, READER, CALL);
        let mut at = call;
        for (i, (after, notifies)) in batch.issues.iter().enumerate() {
            at += after + 1;
            round.issues.push(at);
            round.put(i, Checkpoint::GuestCall, call);
            round.put(i, Checkpoint::GuestIssue, at);
            self.in_guest(
                at,
                READER,
                GuestEvent::Issue {
                    offset: round.place(i),
                    bytes: BLOCK,
                    kind: RequestKind::Read,
                },
            );
            if *notifies || i == 0 {
                at += 2;
                round.notifies.push(at);
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
        self.in_guest(at + 7, READER, CALL);
    }

    /// The event loop takes what is there until nothing is.
    fn pop_batch(&mut self, round: &mut Round<'_>) {
        let wake = round.notifies[0] + 4 + round.batch.wake;
        self.on_host(wake, MAIN, HostEvent::Exit);
        let mut pop = wake + 1;
        for i in 0..round.count() {
            pop = (pop + 3).max(round.issues[i] + 4);
            self.on_host(
                pop,
                MAIN,
                HostEvent::Passes(Checkpoint::QemuPop, element(round.place(i))),
            );
            round.put(i, Checkpoint::QemuPop, pop);
            round.put_notification(i, wake, pop);
        }
        round.at = pop;
    }

    /// Neighbours are merged: returns the requests of each submit.
    fn submit_batch(&mut self, round: &mut Round<'_>) -> Vec<Range<usize>> {
        let (batch, count) = (round.batch, round.count());
        let mut at = round.at + 5;
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut sizes = batch.merges.iter().copied().chain(std::iter::repeat(1));
        while let Some(first) = groups
            .last()
            .map_or(Some(0), |g| Some(g.end).filter(|end| *end < count))
        {
            let group = first..(first + sizes.next().unwrap_or(1).max(1)).min(count);
            at += 3;
            let range = Mark::range(round.place(first), group.len() as u64 * BLOCK);
            self.on_host(at, MAIN, HostEvent::Passes(Checkpoint::QemuSubmit, range));
            group
                .clone()
                .for_each(|i| round.put(i, Checkpoint::QemuSubmit, at));
            groups.push(group);
        }
        round.at = at;
        groups
    }

    /// One call submits all, and the device serves them: returns the submits in the order of their completions.
    fn serve_batch(&mut self, round: &mut Round<'_>, groups: Vec<Range<usize>>) -> Vec<Completed> {
        let (batch, count) = (round.batch, groups.len() as u64);
        let mut at = round.at + 3;
        let submits = at;
        self.enter(at, MAIN, IO_SUBMIT, [0, count, 0, 0]);
        let mut completes: Vec<Completed> = Vec::new();
        for (g, group) in groups.into_iter().enumerate() {
            at += 3;
            let from = on_device(round.place(group.start));
            let range = Mark::range(from, group.len() as u64 * BLOCK);
            self.on_host(at, MAIN, HostEvent::OnDevice(Checkpoint::HostIssue, range));
            let complete = at + 20 + 3 * count + batch.device.get(g).copied().unwrap_or(0);
            self.interrupt_on_host(
                complete,
                HostEvent::OnDevice(Checkpoint::HostComplete, range),
            );
            for i in group.clone() {
                round.put(i, Checkpoint::HostCall, submits);
                round.put(i, Checkpoint::HostIssue, at);
                round.put(i, Checkpoint::HostComplete, complete);
            }
            completes.push(Completed {
                at: complete,
                requests: group,
            });
        }
        self.on_host(at + 3, MAIN, HostEvent::Exit);
        self.enter(at + 5, MAIN, PPOLL, [0; 4]);
        round.at = at;
        completes.sort_by_key(|submit| submit.at);
        completes
    }

    /// Returns completed requests in two halves.
    fn return_batch(&mut self, round: &mut Round<'_>, completes: &[Completed]) {
        let middle = completes.len().div_ceil(2);
        let mut reaped = 0;
        for (half, part) in completes.chunks(middle).enumerate() {
            round.at = round.at.max(part.last().map_or(0, |submit| submit.at)) + 10;
            reaped += part.len();
            let requests: Vec<usize> = part.iter().flat_map(|s| s.requests.clone()).collect();
            let polled = round.batch.polled && half == 1;
            self.push_half(round, &requests);
            self.complete_half(round, &requests, polled);
            self.end_half(round, &requests);
            if reaped < completes.len() {
                self.in_guest(round.at, READER, CALL);
            }
            self.enter(round.at, MAIN, PPOLL, [0; 4]);
        }
    }

    /// The event loop reaps requests, and pushes one after the other.
    fn push_half(&mut self, round: &mut Round<'_>, requests: &[usize]) {
        let reap = round.at;
        self.on_host(reap, MAIN, HostEvent::Exit);
        let mut at = reap;
        for &i in requests {
            at += 3;
            round.put(i, Checkpoint::QemuReap, reap);
            round.put(i, Checkpoint::QemuPush, at);
            self.on_host(
                at,
                MAIN,
                HostEvent::Passes(Checkpoint::QemuPush, element(round.place(i))),
            );
        }
        round.at = at;
    }

    /// The guest sees that requests are done: by an interrupt, or, `polled`, before QEMU notifies it.
    fn complete_half(&mut self, round: &mut Round<'_>, requests: &[usize], polled: bool) {
        let pushed = round.at;
        let (told, injected, interrupt) = (pushed + 2, pushed + 4, pushed + 20);
        let mut at = pushed;
        if !polled {
            self.qemu_notifies(told);
            self.on_host(
                injected,
                MAIN,
                HostEvent::Passes(Checkpoint::Inject, Mark::default()),
            );
            at = interrupt;
            self.interrupt_in_guest(at, GuestEvent::Passes(Checkpoint::GuestInterrupt));
        }
        for &i in requests {
            at += 3;
            round.put(i, Checkpoint::GuestComplete, at);
            if !polled {
                round.put(i, Checkpoint::QemuNotify, told);
                round.put(i, Checkpoint::Inject, injected);
                round.put(i, Checkpoint::GuestInterrupt, interrupt);
            }
            let offset = round.place(i);
            self.interrupt_in_guest(at, GuestEvent::Complete { offset });
        }
        if polled {
            self.qemu_notifies(at + 2);
        }
        round.at = at;
    }

    /// The workload's call returns, and it stamps the ends of requests.
    fn end_half(&mut self, round: &mut Round<'_>, requests: &[usize]) {
        let at = round.at + 5;
        self.in_guest(at, READER, GuestEvent::Exit);
        for &i in requests {
            let end = at + 1 + i as u64;
            round.put(i, Checkpoint::GuestReturn, at);
            round.put(i, Checkpoint::End, end);
            self.operations.push(Stamped {
                begin: round.begin + i as u64,
                end,
                key: round.place(i),
            });
        }
        round.at = at + 2 + round.count() as u64;
    }
}

/// Returns the time that the request waited in the avail ring, in ticks; `None` if it did not wait there.
pub fn in_ring(truth: &Truth) -> Option<u64> {
    truth
        .states
        .get(&(Checkpoint::QemuPop, State::InRing))
        .copied()
}
