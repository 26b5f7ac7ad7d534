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

/// Among so many of the latest packets is the last of any CPU whose stack is at work.
const MAX_CPUS_AT_ONCE: usize = 16;

/// A system call of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub cpu: u32,
    pub tid: i32,
    pub exit: Option<(u64, u32)>,
}

/// A packet that passed a checkpoint, and the client whose response it was seen to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestPacket {
    pub moment: Moment,
    pub packet: Packet,
    /// Of a packet that the stack receives: the client that was woken for it. One that did not sleep is not.
    pub woke: Option<i32>,
}

#[derive(Debug, Default)]
pub(crate) struct GuestWindow {
    pub tasks: SchedTimeline<Sleep>,
    /// By entry.
    pub calls: EventWindow<Call>,
    pub passed: Passed<Moment>,
    pub packets: Passed<GuestPacket>,
    /// The tasks that make round trips over the network.
    pub clients: BTreeSet<i32>,
    pub recorded: RecordedWindow,
    requests: InFlight,
}

impl GuestWindow {
    pub fn new(facts: &TraceFacts) -> Self {
        let recorded = RecordedWindow::new(&facts.guest_costs, facts.tsc_mhz);
        GuestWindow { recorded, ..GuestWindow::default() }
    }

    /// Takes an event; gives the request that it completes.
    pub fn take(&mut self, event: &Event<GuestEvent>) -> Option<GuestRequest> {
        let &Event { at, cpu, tid, what, .. } = event;
        let now = event.moment();
        self.recorded.take(event, if let GuestEvent::Sched(what) = what { Some(what) } else { None });
        match what {
            // 0 is every CPU's idle task at once.
            GuestEvent::Sched(what) => {
                if let Sched::Waking { tid } = what {
                    self.woken(cpu, tid);
                }
                self.tasks.take(now, what, |tid| tid != 0, |_, _| Sleep::Other);
            }
            GuestEvent::Enter => self.calls.push(at, Call { cpu, tid, exit: None }),
            GuestEvent::Exit => {
                if let Some(call) = self.calls.latest_mut().find(|c| c.tid == tid) {
                    call.exit.get_or_insert((at, cpu));
                }
            }
            GuestEvent::Insert { offset } => self.requests.insert(offset, at),
            GuestEvent::Issue { offset, bytes, kind } => self.requests.issue(offset, bytes, kind, now),
            GuestEvent::Complete { offset } => return self.requests.complete(offset, now),
            GuestEvent::Passes(checkpoint) => self.passed.push(checkpoint, at, now),
            GuestEvent::Packet(checkpoint, packet) => {
                self.packets.push(checkpoint, at, GuestPacket { moment: now, packet, woke: None });
            }
            GuestEvent::Other => {}
        }
        None
    }

    /// A client is woken by the packet that its CPU's stack received last.
    fn woken(&mut self, cpu: u32, tid: i32) {
        if !self.clients.contains(&tid) {
            return;
        }
        let mut received = self.packets.at_mut(Checkpoint::NetGuestReceive).latest_mut().take(MAX_CPUS_AT_ONCE);
        if let Some(packet) = received.find(|packet| packet.moment.cpu == cpu) {
            packet.woke.get_or_insert(tid);
        }
    }

    /// When the oldest request began that is under way, or that was taken in since `since` and may be.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        self.requests.oldest(since)
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let events = self.tasks.remembers() + self.calls.len() + self.recorded.len();
        events + self.passed.len() + self.packets.len() + self.requests.len()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        self.tasks.forget(at);
        self.calls.forget(at);
        self.passed.forget(at);
        self.packets.forget(at);
        self.recorded.forget(at);
        self.requests.forget(at);
    }
}
