//! Finds the stations of one request in what both sides saw lately: by what identifies it where there is such a thing,
//! by order where there is not.

use crate::event::Element;
use crate::guest::{GuestPast, Part};
use crate::host::{Bytes, Call, HostPast};
use crate::way::{By, Way};
use vmtax_model::{RequestKind, Station};
use vmtax_trace::{EventWindow, Moment};

/// How much the guest shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// A kernel that traces.
    Kernel,
    /// The micro-guest: its stamps are its driver's, right before the notification and when it sees the completion.
    Driver,
    /// A kernel that does not trace.
    Blind,
}

/// How well times of both sides compare, and what may be concluded from order alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub view: View,
    /// Guest and host ticks agree within this.
    pub bound: u64,
    /// As far as this, an event that identifies a request but lies outside of it shows that the clocks do not agree.
    pub slack: u64,
    /// Never two requests at once: the next event is the request's.
    pub alone: bool,
}

/// Some event belongs to the request but contradicts cause and effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation;

/// What was found, and when it was; `None` where there is nothing.
type Found<T> = Result<Option<(u64, T)>, Violation>;

pub(crate) struct Follow<'a> {
    pub host: &'a HostPast,
    pub guest: &'a GuestPast,
    /// The guest's requests that completed lately.
    pub done: &'a EventWindow<Part>,
    pub terms: Terms,
}

impl Follow<'_> {
    /// The stations of a request that completed in the guest.
    pub fn way(&self, part: &Part) -> Result<Way, Violation> {
        let mut way = Way::new();
        match self.terms.view {
            View::Kernel => {
                way.set(Station::GuestIssue, part.issue.at, By::Guest(part.issue));
                way.set(Station::GuestComplete, part.complete.at, By::Guest(part.complete));
            }
            View::Driver => {
                way.set(Station::GuestNotify, part.issue.at, By::Guest(part.issue));
                way.set(Station::GuestComplete, part.complete.at, By::Guest(part.complete));
            }
            View::Blind => {}
        }
        let popped = self.popped(part)?;
        // A push does not tell which device's it is, so an offset may be chance: by its address too, where that is known.
        let address = popped.and_then(|(_, (_, pop))| pop.address);
        let pushed = self.identified(&self.host.pushes, part, |(_, e)| match e.offset {
            Some(offset) => offset == part.at_device() && (address.is_none() || e.address == address),
            None => address.is_some() && e.address == address,
        })?;
        let submit = self.identified(&self.host.submits, part, |b| b.cover(part.offset))?;
        let taken = [
            (Station::QemuPop, popped.map(|(at, (tid, _))| (at, tid))),
            (Station::QemuSubmit, submit.map(|(at, s)| (at, s.tid))),
            (Station::QemuPush, pushed.map(|(at, (tid, _))| (at, tid))),
        ];
        for (station, found) in taken {
            found.into_iter().for_each(|(at, tid)| way.set(station, at, By::Thread(tid)));
        }
        self.device(part, &mut way)?;
        self.call(part, &mut way, submit.map(|(_, s)| s));
        self.down(part, &mut way);
        self.up(part, &mut way, pushed.and_then(|(_, (_, e))| e.queue));
        if way.in_order(self.terms.bound) { Ok(way) } else { Err(Violation) }
    }

    /// The request's pop. Where the probe does not tell, and there is one request at a time: the first of its queue.
    fn popped(&self, part: &Part) -> Found<(i32, Element)> {
        let named = |(_, e): &(i32, Element)| e.offset == Some(part.at_device());
        let popped = self.identified(&self.host.pops, part, named)?;
        if popped.is_some() || !self.terms.alone {
            return Ok(popped);
        }
        let pushed = self.identified(&self.host.pushes, part, named)?;
        let Some(queue) = pushed.and_then(|(_, (_, push))| push.queue) else { return Ok(None) };
        self.identified(&self.host.pops, part, |(_, e)| e.offset.is_none() && e.queue == Some(queue))
    }

    fn early(&self, part: &Part) -> u64 {
        part.issue.at.saturating_sub(self.terms.bound)
    }

    fn late(&self, part: &Part) -> u64 {
        part.complete.at.saturating_add(self.terms.bound)
    }

    /// The first event that is the request's by what identifies it, while the request is under way as well as the
    /// clocks can tell. One that lies outside of that shows that the clocks, or causes and effects, are not in order.
    fn identified<T: Copy>(&self, past: &EventWindow<T>, part: &Part, is: impl Fn(&T) -> bool) -> Found<T> {
        let (early, late) = (self.early(part), self.late(part));
        if let Some((at, event)) = past.within(early, late).find(|(_, e)| is(e)) {
            return Ok(Some((at, *event)));
        }
        let slack = self.terms.slack;
        let outside = past.within(early.saturating_sub(slack), late.saturating_add(slack)).find(|(_, e)| is(e));
        // It may be another request's, for the same bytes shortly before or after.
        let twice = |(_, p): (u64, &Part)| *p != *part && p.overlaps(part.offset, part.bytes);
        match outside {
            Some(_) if !self.done.from(early.saturating_sub(slack)).any(twice) => Err(Violation),
            _ => Ok(None),
        }
    }

    /// What the host's block layer did for it.
    fn device(&self, part: &Part, way: &mut Way) -> Result<(), Violation> {
        let mine = |b: &Bytes| b.overlap(part.offset, part.bytes);
        let Some((at, issue)) = self.identified(&self.host.issues, part, mine)? else { return Ok(()) };
        let by = if self.host.threads.contains(&issue.tid) { By::Thread(issue.tid) } else { By::Host };
        way.set(Station::HostIssue, at, by);
        // The host may have split it: it is done when its last piece is.
        if let Some((at, _)) = self.host.completes.within(at, self.late(part)).filter(|(_, b)| mine(b)).last() {
            way.set(Station::HostComplete, at, By::Host);
        }
        Ok(())
    }

    /// The system call that handed it to the host's kernel.
    fn call(&self, part: &Part, way: &mut Way, submit: Option<Bytes>) {
        let from = way.first_of(&[Station::QemuSubmit, Station::QemuPop]).unwrap_or(self.early(part));
        let to = way.first_of(&[Station::HostIssue, Station::QemuPush]).unwrap_or(self.late(part));
        let begin = submit.map_or(part.offset, |s| s.offset);
        // During which call was it issued? Else, which call names its place? Else, the next that submits.
        let during = way.thread(Station::HostIssue).and_then(|(at, tid)| {
            let (enter, call) = self.host.calls_until(tid, at).next()?;
            let open = call.exit.is_none_or(|exit| exit >= at);
            let submits = call.kind.submits(&call.args) || call.kind.position(&call.args).is_some();
            (open && submits && enter >= from).then_some((enter, tid))
        });
        let all = || {
            self.host.threads.iter().flat_map(|&tid| {
                self.host.calls_from(tid, from).take_while(|(enter, _)| *enter <= to).map(move |c| (tid, c))
            })
        };
        let named = || {
            let mut mine = all().filter(|(_, (_, c))| c.kind.position(&c.args) == Some(begin));
            mine.next().map(|(tid, (enter, _))| (enter, tid))
        };
        let next = || {
            let tid = submit?.tid;
            let mut calls = self.host.calls_from(tid, from).take_while(|(enter, _)| *enter <= to);
            calls.find(|(_, c)| c.kind.submits(&c.args)).map(|(enter, _)| (enter, tid))
        };
        let flushes = || {
            let mine = all().filter(|(_, (_, c))| part.kind == RequestKind::Flush && c.kind.flushes());
            mine.map(|(tid, (enter, _))| (enter, tid)).min()
        };
        if let Some((enter, tid)) = during.or_else(named).or_else(next).or_else(flushes) {
            way.set(Station::HostCall, enter, By::Thread(tid));
        }
    }

    /// From the guest's notification to QEMU's event loop.
    fn down(&self, part: &Part, way: &mut Way) {
        let bound = self.terms.bound;
        let takers = [Station::QemuPop, Station::QemuSubmit, Station::HostCall];
        let taken = takers.into_iter().find_map(|s| way.thread(s));
        let until = taken.map_or(part.complete.at, |(at, _)| at);
        if self.terms.view == View::Kernel {
            // Whoever issued it also notifies, once for all that it issued together.
            let mut notifies = self.guest.notifies.within(part.issue.at, until.saturating_add(bound));
            if let Some((at, notify)) = notifies.find(|(_, n)| n.tid == part.issue.tid) {
                way.set(Station::GuestNotify, at, By::Guest(*notify));
            }
        }
        let told = way.at(Station::GuestNotify);
        let notifies_seen = self.terms.view == View::Driver || self.guest.notifies_seen;
        if told.is_some() || !notifies_seen {
            if let Some((at, tid)) = self.host.kicks.caused(told.unwrap_or(part.issue.at), until, bound) {
                way.set(Station::KvmNotify, at, By::Thread(*tid));
            }
        }
        let kicked = way.at(Station::KvmNotify);
        way.in_ring = (notifies_seen || self.host.kicks_seen) && told.or(kicked).is_none();
        if way.in_ring {
            return;
        }
        let from = kicked.unwrap_or_else(|| told.unwrap_or(part.issue.at).saturating_sub(bound));
        if let Some((woke, tid)) = taken.and_then(|(at, tid)| Some((self.host.woke(tid, from, at)?, tid))) {
            way.set(Station::QemuWake, woke, By::Thread(tid));
        }
    }

    /// From the host's completion to the guest's interrupt handler.
    fn up(&self, part: &Part, way: &mut Way, queue: Option<u64>) {
        let bound = self.terms.bound;
        if let Some((at, tid)) = way.thread(Station::QemuPush) {
            if let Some(reaped) = self.reaped(way, at, tid) {
                way.set(Station::QemuReap, reaped, By::Thread(tid));
            }
        }
        let Some(done) = way.first_of(&[Station::QemuPush, Station::HostComplete]) else { return };
        // A notification after the guest has seen the completion was not what told it: it polled, or was at it anyway.
        let mut notifies = self.host.notifies.within(done, part.complete.at);
        if let Some((at, (tid, _))) = notifies.find(|(_, (_, q))| queue.is_none_or(|queue| queue == *q)) {
            way.set(Station::QemuNotify, at, By::Thread(*tid));
        }
        let told = if self.host.notifies_seen { way.at(Station::QemuNotify) } else { Some(done) };
        let Some(told) = told else { return };
        let interrupt = self.guest.interrupts.caused(told, part.complete.at, bound);
        let interrupt = interrupt.map(|(at, cpu)| Moment { at, cpu: *cpu, tid: 0, interrupt: true });
        if let Some(moment) = interrupt {
            way.set(Station::GuestInterrupt, moment.at, By::Guest(moment));
        }
        let until = interrupt.map_or(part.complete.at, |m| m.at.saturating_add(bound));
        if let Some((at, tid)) = self.host.injects.within(told, until).next() {
            way.set(Station::Inject, at, By::Thread(*tid));
        }
    }

    /// When the thread that filled the used ring learned that the host had done it.
    fn reaped(&self, way: &Way, pushed: u64, tid: i32) -> Option<u64> {
        let called = way.thread(Station::HostCall);
        let call = called.and_then(|(at, tid)| Some((tid, *self.host.calls_from(tid, at).next()?.1)));
        // A call that does it all by itself is not done before it returns.
        let whole = |c: &Call| c.kind.position(&c.args).is_some() || c.kind.flushes();
        let returned = call.filter(|(_, c)| whole(c)).and_then(|(_, c)| c.exit);
        let done = way.at(Station::HostComplete).or(returned).or(called.map(|(at, _)| at))?;
        let own = call.filter(|(caller, _)| *caller == tid).and_then(|(_, c)| c.exit);
        self.host.woke(tid, done, pushed).or(own.filter(|exit| (done..=pushed).contains(exit)))
    }
}
