//! Recent guest events: block requests in flight, and the events around them.

use super::critical_path::Sleep;
use super::passed::Passed;
use super::recorded::RecordedWindow;
use crate::disk::in_flight::InFlight;
use crate::disk::request::GuestRequest;
use crate::events::event::{Event, GuestEvent};
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
        let recorded = RecordedWindow::new(&facts.guest_costs, facts.tsc_mhz);
        GuestWindow {
            recorded,
            ..GuestWindow::default()
        }
    }

    /// Takes an event; gives the request that it completes.
    pub fn take(&mut self, event: &Event<GuestEvent>) -> Option<GuestRequest> {
        let &Event {
            at, cpu, tid, what, ..
        } = event;
        let now = event.moment();
        self.recorded.take(
            event,
            if let GuestEvent::Sched(what) = what {
                Some(what)
            } else {
                None
            },
        );
        match what {
            // 0 is every CPU's idle task at once.
            GuestEvent::Sched(what) => {
                if let Sched::Waking { tid } = what {
                    if self.clients.contains(&tid) {
                        self.woken.push(
                            at,
                            Woken {
                                tid,
                                batch: self.batch,
                            },
                        );
                        self.woke = true;
                    }
                }
                self.tasks
                    .take(now, what, |tid| tid != 0, |_, _| Sleep::Other);
            }
            GuestEvent::Enter => self.calls.push(
                at,
                Call {
                    cpu,
                    tid,
                    exit: None,
                },
            ),
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
                self.packets.push(
                    checkpoint,
                    at,
                    GuestPacket {
                        moment: now,
                        packet,
                        batch: self.batch,
                    },
                );
            }
            GuestEvent::Other => {}
        }
        None
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
