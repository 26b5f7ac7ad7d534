//! Recent events of each side, in which a request's checkpoints are searched; of the guest also its block requests in flight.

use super::PassedBy;
use super::deferred::Deferred;
use super::window::{Passed, RecordedWindow, Sleep};
use crate::disk::decode::Extents;
use crate::disk::{GuestRequest, InFlight};
use crate::events::{CallKind, Event, GuestEvent, HostEvent, Mark, is_one_of};
use std::collections::{BTreeSet, HashMap};
use vmtax_model::{Checkpoint, Role, TraceFacts};
use vmtax_trace::{EventWindow, Moment, Packet, Sched, SchedTimeline, ThreadState};

/// A system call of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestCall {
    pub cpu: u32,
    pub tid: i32,
    pub exit: Option<(u64, u32)>,
}

/// A packet that passed a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestPacket {
    pub moment: Moment,
    pub packet: Packet,
    /// The batch in which the stack received it: it has all packets of a batch before it wakes whom they are for.
    pub batch: u64,
}

/// A client that the stack woke: for a packet of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Woken {
    pub tid: i32,
    pub batch: u64,
}

#[derive(Debug, Default)]
pub(crate) struct GuestWindow {
    pub tasks: SchedTimeline<Sleep>,
    /// System calls by their time of entry.
    pub calls: EventWindow<GuestCall>,
    pub passed: Passed<Moment>,
    pub packets: Passed<GuestPacket>,
    /// The tasks that make round trips over the network.
    pub clients: BTreeSet<i32>,
    /// Clients that were woken. A client that does not sleep when its packet comes is not among them.
    pub woken: EventWindow<Woken>,
    /// The batch that the stack receives now, and whether it woke somebody for it already.
    batch: u64,
    woke: bool,
    pub recorded: RecordedWindow,
    requests: InFlight,
}

impl GuestWindow {
    pub fn new(facts: &TraceFacts) -> Self {
        GuestWindow {
            recorded: RecordedWindow::new(&facts.guest_costs, facts.tsc_mhz),
            ..GuestWindow::default()
        }
    }

    /// Takes an event; gives the request that it completes.
    pub fn take(&mut self, event: &Event<GuestEvent>) -> Option<GuestRequest> {
        let &Event {
            at, cpu, tid, what, ..
        } = event;
        let now = event.moment();
        let sched = match what {
            GuestEvent::Sched(sched) => Some(sched),
            _ => None,
        };
        self.recorded.take(event, sched);
        match what {
            GuestEvent::Other => {}
            GuestEvent::Sched(sched) => self.take_sched(now, sched),
            GuestEvent::Enter { .. } => {
                let exit = None;
                self.calls.push(at, GuestCall { cpu, tid, exit });
            }
            GuestEvent::Exit => {
                if let Some(call) = self.calls.latest_mut().find(|c| c.tid == tid) {
                    call.exit.get_or_insert((at, cpu));
                }
            }
            GuestEvent::Insert { offset } => self.requests.insert(offset, at),
            GuestEvent::Issue {
                offset,
                bytes,
                kind,
            } => self.requests.issue(offset, bytes, kind, now),
            GuestEvent::Complete { offset } => return self.requests.complete(offset, now),
            GuestEvent::Passes(checkpoint) => self.passed.push(checkpoint, at, now),
            GuestEvent::Packet(checkpoint, packet) => {
                if checkpoint == Checkpoint::NetGuestReceive && std::mem::take(&mut self.woke) {
                    self.batch += 1;
                }
                let passed = GuestPacket {
                    moment: now,
                    packet,
                    batch: self.batch,
                };
                self.packets.push(checkpoint, at, passed);
            }
        }
        None
    }

    /// Takes an event of the scheduler.
    fn take_sched(&mut self, now: Moment, sched: Sched) {
        if let Sched::Waking { tid } = sched {
            if self.clients.contains(&tid) {
                let batch = self.batch;
                self.woken.push(now.at, Woken { tid, batch });
                self.woke = true;
            }
        }
        // 0 is every CPU's idle task at once.
        self.tasks
            .take(now, sched, |tid| tid != 0, |_, _| Sleep::Other);
    }

    /// When the oldest request began that is under way, or that was taken in since `since` and may be.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        self.requests.oldest(since)
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let events = self.tasks.remembers() + self.calls.len() + self.recorded.len();
        events + self.passed.len() + self.packets.len() + self.woken.len() + self.requests.len()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        self.tasks.forget(at);
        self.calls.forget(at);
        self.passed.forget(at);
        self.packets.forget(at);
        self.woken.forget(at);
        self.recorded.forget(at);
        self.requests.forget(at);
    }
}

/// A system call of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub kind: CallKind,
    pub args: [u64; 4],
    /// When it returned; `None` while it has not.
    pub exit: Option<u64>,
}

/// A request, or several, that passed a checkpoint, and the thread that was current.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passing {
    pub tid: i32,
    pub mark: Mark,
}

/// A packet that passed a checkpoint, and the thread that was current.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassingPacket {
    pub tid: i32,
    pub interrupt: bool,
    pub packet: Packet,
}

/// The histories of the host, by kind.
#[derive(Debug, Default)]
pub(crate) struct HostWindow {
    /// System calls of each thread by their time of entry.
    pub calls: HashMap<i32, EventWindow<Call>>,
    /// When a thread returned from waiting for work.
    woken: HashMap<i32, EventWindow<()>>,
    pub tasks: SchedTimeline<Sleep>,
    /// Of QEMU: those that the facts name, and those that appear.
    pub threads: BTreeSet<i32>,
    /// Of these, those that run vCPUs.
    pub vcpus: BTreeSet<i32>,
    /// The server's that answers requests over the network.
    pub servers: BTreeSet<i32>,
    /// passt's, where packets go through it.
    pub passt: BTreeSet<i32>,
    /// The kernel's own that move packets between the guest's queues and a tap.
    pub vhost: BTreeSet<i32>,
    /// True if passt takes packets from the guest's queues itself, by vhost-user.
    pub passt_has_queues: bool,
    pub passed: Passed<Passing>,
    pub packets: Passed<PassingPacket>,
    /// Interrupts that workers of the kernel deliver.
    pub deferred: Deferred,
    /// QEMU's descriptors of the disk's file.
    descriptors: Vec<i32>,
    /// The VMM's descriptors of the tap.
    tap: Vec<i32>,
    pub recorded: RecordedWindow,
    /// True if QEMU's functions show the round trip that a packet belongs to.
    pub tells_round_trips: bool,
    extents: Extents,
}

impl HostWindow {
    pub fn new(facts: &TraceFacts) -> Self {
        let with_role = |is: &dyn Fn(&Role) -> bool| -> BTreeSet<i32> {
            let threads = facts.threads.iter().filter(|thread| is(&thread.role));
            threads.map(|thread| thread.tid).collect()
        };
        HostWindow {
            descriptors: facts.host_disk.descriptors.clone(),
            tap: facts.tap.clone(),
            extents: Extents::new(&facts.host_disk),
            threads: with_role(&|_| true),
            vcpus: with_role(&|role| matches!(role, Role::Vcpu(_))),
            servers: with_role(&|role| role.is_other(Role::ECHO_SERVER)),
            passt: with_role(&|role| role.is_other(Role::PASST)),
            vhost: with_role(&|role| *role == Role::Vhost),
            recorded: RecordedWindow::new(&facts.host_costs, facts.tsc_mhz),
            ..HostWindow::default()
        }
    }

    pub fn take(&mut self, event: &Event<HostEvent>) {
        let &Event { at, tid, what, .. } = event;
        let sched = match what {
            HostEvent::Sched(sched) => Some(sched),
            _ => None,
        };
        self.recorded.take(event, sched);
        self.take_work(event);
        match what {
            HostEvent::Sched(what) => self.take_sched(event.moment(), what),
            HostEvent::Enter { nr, args } => self.take_entry(at, tid, nr, args),
            HostEvent::Exit => self.take_exit(at, tid),
            // In an interrupt it is not the current thread's.
            HostEvent::InterruptQueued(_) if event.interrupt => {}
            HostEvent::InterruptQueued(work) => self.deferred.queue(at, tid, work),
            HostEvent::InterruptBegun(work) => self.deferred.begin(at, tid, work),
            HostEvent::Woke => {
                self.threads.insert(tid);
                self.woken.entry(tid).or_default().push(at, ());
            }
            HostEvent::Passes(checkpoint, mark) => {
                self.tells_round_trips |= mark.round_trip.is_some();
                self.passt_has_queues |=
                    checkpoint == Checkpoint::NetPasstNotify && self.passt.contains(&tid);
                self.passed.push(checkpoint, at, Passing { tid, mark });
            }
            HostEvent::Packet(checkpoint, packet) => {
                let passing = PassingPacket {
                    tid,
                    interrupt: event.interrupt,
                    packet,
                };
                self.packets.push(checkpoint, at, passing);
            }
            HostEvent::OnDevice(checkpoint, mark) => {
                for mark in self.extents.in_file(mark) {
                    self.passed.push(checkpoint, at, Passing { tid, mark });
                }
            }
            HostEvent::Other => {}
        }
    }

    /// Tells the timeline that the current thread is at work, if the event shows that.
    fn take_work(&mut self, event: &Event<HostEvent>) {
        // One that leaves its CPU may have been woken before: the timeline sees to it.
        let leaves = matches!(event.what, HostEvent::Sched(Sched::Switch { .. }));
        if !event.interrupt && !leaves && event.what != HostEvent::Other {
            self.tasks.at_work(event.tid, event.at, event.cpu);
        }
    }

    /// Takes an event of the scheduler.
    fn take_sched(&mut self, now: Moment, what: Sched) {
        let at = now.at;
        let (threads, calls) = (&self.threads, &self.calls);
        let sleeps = |tid, _| match calls.get(&tid).and_then(|c| c.until(at).next()) {
            Some((_, c)) if c.exit.is_none() && c.kind == CallKind::Lock => Sleep::Lock,
            _ => Sleep::Other,
        };
        // A vhost worker makes no call that could return: it waits for nothing but work.
        if let Sched::Switch { next, .. } = what {
            let woken = |state| matches!(state, ThreadState::Runnable { waker: Some(_), .. });
            if self.vhost.contains(&next) && self.tasks.now(next).is_some_and(woken) {
                self.woken.entry(next).or_default().push(at, ());
            }
        }
        let deferred = &self.deferred;
        // No event shows that a worker goes to sleep, but only one that sleeps is woken.
        if let Sched::Waking { tid } = what {
            if deferred.is_worker(tid) && self.tasks.now(tid) == Some(ThreadState::Running) {
                let sleeps = ThreadState::Sleeping(Sleep::Other);
                self.tasks.set(tid, at, now.cpu, sleeps);
            }
        }
        let is_followed = |tid: i32| threads.contains(&tid) || deferred.is_worker(tid);
        self.tasks.take(now, what, is_followed, sleeps);
        // The return from waiting for a lock may not be among the events: it comes with the CPU.
        if let Sched::Switch { next, .. } = what {
            let last = self.calls.get_mut(&next).and_then(EventWindow::last_mut);
            if let Some((_, call)) = last.filter(|(_, c)| c.kind == CallKind::Lock) {
                call.exit.get_or_insert(at);
            }
        }
    }

    /// Takes the entry of a system call.
    fn take_entry(&mut self, at: u64, tid: i32, nr: u32, args: [u64; 4]) {
        // Only QEMU's threads are watched: one that the facts do not name ended before they were taken.
        self.threads.insert(tid);
        let call = Call {
            kind: CallKind::from_call(nr, &args),
            args,
            exit: None,
        };
        self.calls.entry(tid).or_default().push(at, call);
    }

    /// Takes the return of a thread's last system call.
    fn take_exit(&mut self, at: u64, tid: i32) {
        if let Some((_, call)) = self.calls.entry(tid).or_default().last_mut() {
            call.exit.get_or_insert(at);
            if call.kind.waits(&call.args) {
                self.woken.entry(tid).or_default().push(at, ());
            }
        }
    }

    /// The first passing of a checkpoint by one of these threads, from `from` up to and with `to`: when and by which.
    pub fn first_by(
        &self,
        checkpoint: Checkpoint,
        from: u64,
        to: u64,
        is_one: impl Fn(i32) -> bool,
    ) -> Option<(u64, i32)> {
        let passed = self.passed.within(checkpoint, from, to);
        let mut threads = passed.map(|(at, passing)| (at, passing.tid));
        threads.find(|(_, tid)| is_one(*tid))
    }

    /// The last passing of a checkpoint by one of these threads, from `to` back to and with `from`: when and by which.
    pub fn last_by(
        &self,
        checkpoint: Checkpoint,
        from: u64,
        to: u64,
        is_one: impl Fn(i32) -> bool,
    ) -> Option<(u64, i32)> {
        let passed = self.passed.back(checkpoint, from, to);
        let mut threads = passed.map(|(at, passing)| (at, passing.tid));
        threads.find(|(_, tid)| is_one(*tid))
    }

    /// The system call that a thread entered last, at `at` or before, with its entry.
    pub fn call_until(&self, tid: i32, at: u64) -> Option<(u64, &Call)> {
        self.calls.get(&tid)?.until(at).next()
    }

    /// A thread's system calls, oldest first, entered from `from` up to and with `to`.
    pub fn calls_within(&self, tid: i32, from: u64, to: u64) -> impl Iterator<Item = (u64, &Call)> {
        let calls = self.calls.get(&tid).into_iter();
        calls.flat_map(move |calls| calls.within(from, to))
    }

    /// The system calls of all threads, each thread's oldest first, entered from `from` up to and with `to`.
    pub fn all_calls_within(&self, from: u64, to: u64) -> impl Iterator<Item = (i32, u64, &Call)> {
        self.threads.iter().flat_map(move |&tid| {
            let calls = self.calls_within(tid, from, to);
            calls.map(move |(enter, call)| (tid, enter, call))
        })
    }

    /// When a thread woke from waiting for work before the last time, `woke`, if that was at `from` or later.
    pub fn woke_before(&self, tid: i32, from: u64, woke: u64) -> Option<u64> {
        self.woke(tid, from, woke.checked_sub(1)?)
    }

    /// When a thread last returned from waiting for work, from `from` to `to`.
    pub fn woke(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        let woke = self.woken.get(&tid)?.until(to).next()?.0;
        (woke >= from).then_some(woke)
    }

    /// When a thread last went on after another thread, or an interrupt, had woken it, from `from` to `to`: it returned from
    /// waiting for work, or, if it waits by calls that do not tell that, had a CPU again.
    pub fn resumed(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        if self.woken.contains_key(&tid) {
            return self.woke(tid, from, to);
        }
        let mut runs = to.saturating_add(1);
        loop {
            let (since, state, _) = self.tasks.before(tid, runs)?;
            match state {
                ThreadState::Runnable { waker: Some(_), .. } => {
                    return (from..=to).contains(&runs).then_some(runs);
                }
                ThreadState::Sleeping(_) => return None,
                ThreadState::Running | ThreadState::Runnable { .. } => runs = since,
            }
        }
    }

    /// When a thread first returned from waiting for work, from `from` to `to`.
    pub fn woke_first(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        Some(self.woken.get(&tid)?.within(from, to).next()?.0)
    }

    /// When a thread next returns from waiting for work, after `at`.
    pub fn woke_after(&self, tid: i32, at: u64) -> Option<u64> {
        Some(self.woken.get(&tid)?.from(at.saturating_add(1)).next()?.0)
    }

    /// When a vCPU's thread woke another one that then returned from its wait, and which: a kick that KVM does not show. Nothing
    /// counts that was before `since`.
    pub fn waking_vcpu(&self, tid: i32, woke: u64, since: u64) -> Option<(u64, i32)> {
        let before = |at| {
            self.tasks
                .before(tid, at)
                .filter(|(begin, ..)| *begin > since)
        };
        let (at, state, _) = match before(woke)? {
            (at, ThreadState::Running, _) => before(at)?,
            other => other,
        };
        let ThreadState::Runnable {
            waker: Some(waker), ..
        } = state
        else {
            return None;
        };
        waker
            .tid
            .filter(|tid| self.vcpus.contains(tid))
            .map(|tid| (at, tid))
    }

    /// Returns when another thread last woke this one, before `at`, and which; `None` if an interrupt did or it is not known.
    pub fn woken_by(&self, tid: i32, at: u64) -> Option<(u64, i32)> {
        let mut at = at;
        loop {
            let (since, state, _) = self.tasks.before(tid, at)?;
            match state {
                ThreadState::Runnable {
                    waker: Some(waker), ..
                } => return waker.tid.map(|by| (since, by)),
                ThreadState::Sleeping(_) => return None,
                ThreadState::Running | ThreadState::Runnable { .. } => at = since,
            }
        }
    }

    /// Returns true if QEMU has the disk's file open by this descriptor.
    pub fn is_of_disk(&self, descriptor: u64) -> bool {
        is_one_of(&self.descriptors, descriptor)
    }

    /// Returns true if the VMM has the tap by this descriptor.
    pub fn is_of_tap(&self, descriptor: u64) -> bool {
        is_one_of(&self.tap, descriptor)
    }

    /// Returns a range of the host's device as ranges of the disk's file.
    pub fn in_file(&self, range: Mark) -> impl Iterator<Item = Mark> + '_ {
        self.extents.in_file(range)
    }

    /// Returns whose work it was that a request or a packet passed while this thread was current. A thread that sends works in the
    /// softirq that it raises; any other thread that is not watched tells nothing.
    pub fn by(&self, tid: i32) -> PassedBy {
        if self.threads.contains(&tid) {
            PassedBy::Thread(tid)
        } else {
            PassedBy::Host
        }
    }

    /// Returns who passed on a packet that a queueing discipline had: the thread that queued it, at once, or a timer's
    /// softirq, later.
    pub fn by_queue(&self, queued: &PassingPacket, passed: &PassingPacket) -> PassedBy {
        if passed.interrupt && !queued.interrupt {
            PassedBy::Queue
        } else {
            self.by(passed.tid)
        }
    }

    /// Returns true if a thread that sends or receives over the network is QEMU's.
    pub fn is_qemus(&self, tid: i32) -> bool {
        !self.servers.contains(&tid) && !self.passt.contains(&tid)
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let calls = self.calls.values().map(EventWindow::len).sum::<usize>()
            + self.woken.values().map(EventWindow::len).sum::<usize>();
        calls
            + self.tasks.remembers()
            + self.passed.len()
            + self.packets.len()
            + self.deferred.len()
            + self.recorded.len()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        for calls in self.calls.values_mut() {
            calls.forget_but_one(at);
        }
        self.woken.values_mut().for_each(|woken| woken.forget(at));
        self.tasks.forget(at);
        self.passed.forget(at);
        self.packets.forget(at);
        self.deferred.forget(at);
        self.recorded.forget(at);
    }
}
