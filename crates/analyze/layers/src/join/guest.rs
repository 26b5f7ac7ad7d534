//! Recent guest events: block requests in flight, and the events around them.

use super::critical_path::Sleep;
use super::passed::Passed;
use super::recorded::RecordedWindow;
use crate::disk::in_flight::InFlight;
use crate::disk::request::GuestRequest;
use crate::events::event::{Event, GuestEvent};
use vmtax_model::TraceFacts;
use vmtax_trace::{EventWindow, Moment, Packet, SchedTimeline};

/// A system call of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub cpu: u32,
    pub tid: i32,
    pub exit: Option<(u64, u32)>,
}

#[derive(Debug, Default)]
pub(crate) struct GuestWindow {
    pub tasks: SchedTimeline<Sleep>,
    /// By entry.
    pub calls: EventWindow<Call>,
    pub passed: Passed<Moment>,
    pub packets: Passed<(Moment, Packet)>,
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
            GuestEvent::Sched(what) => self.tasks.take(now, what, |tid| tid != 0, |_, _| Sleep::Other),
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
            GuestEvent::Packet(checkpoint, packet) => self.packets.push(checkpoint, at, (now, packet)),
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
