//! Recent guest events: block requests in flight, and the events around them.

use super::window::{Passed, RecordedWindow, Sleep};
use crate::disk::{GuestRequest, InFlight};
use crate::events::{Event, GuestEvent};
use std::collections::BTreeSet;
use vmtax_model::{Checkpoint, TraceFacts};
use vmtax_trace::{EventWindow, Moment, Packet, Sched, SchedTimeline};

/// A system call of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
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
    pub calls: EventWindow<Call>,
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
                self.calls.push(at, Call { cpu, tid, exit });
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
