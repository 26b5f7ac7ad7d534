//! Finds the stations of one request in what both sides saw lately: by what identifies it where there is such a thing,
//! by order where there is not.

use crate::guest::{GuestPast, Moment, Part};
use crate::host::{Bytes, HostPast};
use crate::past::Past;
use vmtax_model::Station;

/// Who made a request pass a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Guest(Moment),
    /// A thread of QEMU.
    Thread(i32),
    /// The host's kernel, or its disk.
    Host,
}

/// The stations of a request, each with who made it pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    marks: [Option<(u64, By)>; Station::ALL.len()],
    /// It was issued and taken from the ring without a notification in between.
    pub in_ring: bool,
}

impl Way {
    pub fn new() -> Self {
        Way { marks: [None; Station::ALL.len()], in_ring: false }
    }

    pub fn set(&mut self, station: Station, at: u64, by: By) {
        self.marks[station as usize] = Some((at, by));
    }

    pub fn at(&self, station: Station) -> Option<u64> {
        self.marks[station as usize].map(|(at, _)| at)
    }

    /// The stations passed, in the order of the way.
    pub fn marks(&self) -> impl Iterator<Item = (Station, u64, By)> + '_ {
        Station::ALL.into_iter().filter_map(|s| self.marks[s as usize].map(|(at, by)| (s, at, by)))
    }

    /// Whether the stations follow each other, as well as clocks can tell that agree within `bound`.
    pub fn in_order(&self, bound: u64) -> bool {
        let mut latest = 0;
        self.marks().all(|(_, at, _)| {
            latest = latest.max(at);
            at.saturating_add(bound) >= latest
        })
    }

    /// The first of these that was passed.
    fn first_of(&self, stations: &[Station]) -> Option<u64> {
        stations.iter().find_map(|s| self.at(*s))
    }
}

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

pub(crate) struct Follow<'a> {
    pub host: &'a mut HostPast,
    pub guest: &'a GuestPast,
    /// The guest's requests that completed lately.
    pub done: &'a Past<Part>,
    pub terms: Terms,
}

impl Follow<'_> {
    /// The stations of a request that just completed in the guest. Requests must come in the order of completion.
    pub fn way(&mut self, part: &Part) -> Result<Way, Violation> {
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
        let submit = self.identified(&self.host.submits, part, part.issue.at);
        self.device(part, &mut way, submit.ok().flatten().map(|(at, _)| at));
        // Also of a request that is rejected: its push is not the next one's.
        let pushed = self.push(part, &mut way);
        let submit = submit?;
        pushed?;
        self.pop(part, &mut way, submit);
        self.call(part, &mut way, submit.map(|(_, s)| s));
        self.down(part, &mut way);
        self.up(part, &mut way);
        if way.in_order(self.terms.bound) { Ok(way) } else { Err(Violation) }
    }

    fn early(&self, part: &Part) -> u64 {
        part.issue.at.saturating_sub(self.terms.bound)
    }

    fn late(&self, part: &Part) -> u64 {
        part.complete.at.saturating_add(self.terms.bound)
    }

    /// The first event since `from` that names the request's bytes.
    fn identified(&self, past: &Past<Bytes>, part: &Part, from: u64) -> Result<Option<(u64, Bytes)>, Violation> {
        let mine = |(_, b): &(u64, &Bytes)| b.cover(part.offset);
        let (early, late) = (from.saturating_sub(self.terms.bound), self.late(part));
        if let Some((at, bytes)) = past.within(early, late).find(mine) {
            return Ok(Some((at, *bytes)));
        }
        let slack = self.terms.slack;
        // Another request's, when it has the same offset shortly before or after; then it was inside of that one.
        let anothers = |at: u64| {
            self.done.from(at.saturating_sub(self.terms.bound)).any(|(_, p)| *p != *part && p.offset == part.offset)
        };
        let outside = past.within(early.saturating_sub(slack), late.saturating_add(slack)).find(mine);
        match outside {
            Some((at, _)) if !anothers(at) => Err(Violation),
            _ => Ok(None),
        }
    }

    /// What the host's block layer did for it.
    fn device(&self, part: &Part, way: &mut Way, submit: Option<u64>) {
        let from = submit.unwrap_or(self.early(part));
        let mine = |(_, b): &(u64, &Bytes)| b.overlap(part.offset, part.bytes);
        let Some((at, issue)) = self.host.issues.within(from, self.late(part)).find(mine) else { return };
        let by = if self.host.threads.contains(&issue.tid) { By::Thread(issue.tid) } else { By::Host };
        way.set(Station::HostIssue, at, by);
        // The host may have split it: it is done when its last piece is.
        if let Some((at, _)) = self.host.completes.within(at, self.late(part)).filter(mine).last() {
            way.set(Station::HostComplete, at, By::Host);
        }
    }

    /// The used ring is filled in the order in which the guest completes requests.
    fn push(&mut self, part: &Part, way: &mut Way) -> Result<(), Violation> {
        let from = way.first_of(&[Station::HostComplete, Station::HostIssue]).unwrap_or(self.early(part));
        let late = self.late(part);
        let next = self.host.pushes.from_mut(from).find(|(_, (_, claimed))| !claimed);
        let Some((at, (tid, claimed))) = next else { return Ok(()) };
        if at <= late {
            *claimed = true;
            way.set(Station::QemuPush, at, By::Thread(*tid));
        } else if self.terms.alone && at <= late.saturating_add(self.terms.slack) {
            *claimed = true;
            return Err(Violation);
        }
        Ok(())
    }

    /// QEMU takes requests from the ring in the order in which the guest put them there, until it finds it empty, and
    /// submits all of them before its event loop waits again. Which of a turn's pops found nothing, it does not say.
    fn pop(&mut self, part: &Part, way: &mut Way, submit: Option<(u64, Bytes)>) {
        let early = self.early(part);
        let Some((at, submit)) = submit else {
            if self.terms.alone {
                let pops = self.host.pops.within(early, self.late(part));
                let first =
                    pops.filter(|(_, (_, queue))| self.host.of_disk(*queue)).map(|(at, (tid, _))| (at, *tid)).next();
                first.into_iter().for_each(|(at, tid)| way.set(Station::QemuPop, at, By::Thread(tid)));
            }
            return;
        };
        way.set(Station::QemuSubmit, at, By::Thread(submit.tid));
        let woke = self.host.woke(submit.tid, 0, at).unwrap_or(0);
        let again = self.host.waits_again(submit.tid, at);
        let turn = self.host.pops.within(woke, again).filter(|(_, (tid, _))| *tid == submit.tid);
        let pops: Vec<(u64, u64)> =
            turn.map(|(at, (_, queue))| (at, *queue)).filter(|(_, queue)| self.host.of_disk(*queue)).collect();
        let mut free = pops.iter().copied();
        for (issued, offset) in self.peers(part, woke, again, submit.tid) {
            let popped = free.find(|(pop, _)| *pop >= issued.saturating_sub(self.terms.bound));
            if (issued, offset) == (part.issue.at, part.offset) {
                if let Some((pop, queue)) = popped.filter(|(pop, _)| *pop <= at) {
                    way.set(Station::QemuPop, pop, By::Thread(submit.tid));
                    if pops.iter().all(|(_, q)| *q == queue) {
                        self.host.vote(queue);
                    }
                }
                return;
            }
        }
    }

    /// The requests that a thread submitted from one time to another, in the order of the ring.
    fn peers(&self, part: &Part, from: u64, to: u64, tid: i32) -> Vec<(u64, u64)> {
        let mine = (part.issue.at, part.offset);
        if self.terms.alone {
            return vec![mine];
        }
        let submits: Vec<(u64, &Bytes)> = self.host.submits.within(from, to).filter(|(_, b)| b.tid == tid).collect();
        let bound = self.terms.bound;
        let submitted = |offset: u64, issued: u64, completed: u64| {
            let during = |at: u64| issued <= at.saturating_add(bound) && at <= completed.saturating_add(bound);
            submits.iter().any(|(at, b)| during(*at) && b.cover(offset))
        };
        let done = self.done.from(from).map(|(_, p)| (p.issue.at, p.offset, p.complete.at));
        let under_way = self.guest.under_way().map(|(offset, _, issued)| (issued, offset, u64::MAX));
        let others = done.chain(under_way).filter(|&(issued, offset, completed)| submitted(offset, issued, completed));
        let mut all: Vec<(u64, u64)> = others.map(|(issued, offset, _)| (issued, offset)).chain([mine]).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The system call that handed it to the host's kernel.
    fn call(&self, part: &Part, way: &mut Way, submit: Option<Bytes>) {
        let from = way.first_of(&[Station::QemuSubmit, Station::QemuPop]).unwrap_or(self.early(part));
        let to = way.first_of(&[Station::HostIssue, Station::QemuPush]).unwrap_or(self.late(part));
        let begin = submit.map_or(part.offset, |s| s.offset);
        let issuer = way.marks().find_map(|(s, at, by)| match by {
            By::Thread(tid) if s == Station::HostIssue => Some((at, tid)),
            _ => None,
        });
        // During which call was it issued? Else, which call names its place? Else, the next that submits.
        let during = issuer.and_then(|(at, tid)| {
            let (enter, call) = self.host.calls_until(tid, at).next()?;
            let open = call.exit.is_none_or(|exit| exit >= at);
            let submits = call.kind.submits(&call.args) || call.kind.position(&call.args).is_some();
            (open && submits && enter >= from).then_some((enter, tid))
        });
        let named = || {
            let calls = self.host.threads.iter().flat_map(|&tid| {
                self.host.calls_from(tid, from).take_while(|(enter, _)| *enter <= to).map(move |c| (tid, c))
            });
            let mut mine = calls.filter(|(_, (_, c))| c.kind.position(&c.args) == Some(begin));
            mine.next().map(|(tid, (enter, _))| (enter, tid))
        };
        let next = || {
            let tid = submit?.tid;
            let mut calls = self.host.calls_from(tid, from).take_while(|(enter, _)| *enter <= to);
            calls.find(|(_, c)| c.kind.submits(&c.args)).map(|(enter, _)| (enter, tid))
        };
        if let Some((enter, tid)) = during.or_else(named).or_else(next) {
            way.set(Station::HostCall, enter, By::Thread(tid));
        }
    }

    /// From the guest's notification to QEMU's event loop.
    fn down(&self, part: &Part, way: &mut Way) {
        let bound = self.terms.bound;
        let taken = way.marks().find_map(|(s, at, by)| match by {
            By::Thread(tid) if s >= Station::QemuPop && s <= Station::HostCall => Some((at, tid)),
            _ => None,
        });
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
            let from = told.unwrap_or(part.issue.at).saturating_sub(bound);
            if let Some((at, tid)) = self.host.kicks.within(from, until).next() {
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
    fn up(&self, part: &Part, way: &mut Way) {
        let bound = self.terms.bound;
        let pushed = way.marks().find_map(|(s, at, by)| match by {
            By::Thread(tid) if s == Station::QemuPush => Some((at, tid)),
            _ => None,
        });
        if let Some((at, tid)) = pushed {
            if let Some(reaped) = self.reaped(way, at, tid) {
                way.set(Station::QemuReap, reaped, By::Thread(tid));
            }
        }
        let pushed = pushed.map(|(at, _)| at).or(way.at(Station::HostComplete));
        let Some(pushed) = pushed else { return };
        // A notification after the guest has seen the completion was not what told it: it polled, or was at it anyway.
        if let Some((at, tid)) = self.host.notifies.within(pushed, part.complete.at).next() {
            way.set(Station::QemuNotify, at, By::Thread(*tid));
        }
        let told = if self.host.notifies_seen { way.at(Station::QemuNotify) } else { Some(pushed) };
        let Some(told) = told else { return };
        let mut interrupts = self.guest.interrupts.within(told.saturating_sub(bound), part.complete.at);
        let interrupt = interrupts.next().map(|(at, cpu)| Moment { at, cpu: *cpu, tid: 0, interrupt: true });
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
        let called = way.marks().find_map(|(s, at, by)| match by {
            By::Thread(tid) if s == Station::HostCall => Some((at, tid)),
            _ => None,
        });
        let call = called.and_then(|(at, tid)| Some((tid, *self.host.calls_from(tid, at).next()?.1)));
        // A call that reads by itself is not done before it returns.
        let returned = call.filter(|(_, c)| c.kind.position(&c.args).is_some()).and_then(|(_, c)| c.exit);
        let done = way.at(Station::HostComplete).or(returned).or(called.map(|(at, _)| at))?;
        let own = call.filter(|(caller, _)| *caller == tid).and_then(|(_, c)| c.exit);
        self.host.woke(tid, done, pushed).or(own.filter(|exit| (done..=pushed).contains(exit)))
    }
}
