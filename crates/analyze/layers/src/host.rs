//! What the host saw lately, kept so that a request's stations can be found in it.

use crate::calls::Kind;
use crate::event::{Element, Event, Host};
use crate::path::Sleep;
use std::collections::{BTreeSet, HashMap};
use vmtax_model::{Extent, TraceFacts};
use vmtax_trace::{EventWindow, Sched, SchedTimeline};

/// A system call of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub kind: Kind,
    pub args: [u64; 4],
    /// When it returned; `None` while it has not.
    pub exit: Option<u64>,
}

/// Bytes of the disk, and the thread that was current.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes {
    pub tid: i32,
    pub offset: u64,
    pub bytes: u64,
}

impl Bytes {
    pub fn cover(&self, offset: u64) -> bool {
        offset.checked_sub(self.offset).is_some_and(|into| into < self.bytes)
    }

    pub fn overlap(&self, offset: u64, bytes: u64) -> bool {
        offset < self.offset.saturating_add(self.bytes) && self.offset < offset.saturating_add(bytes)
    }
}

/// The histories of the host, by kind.
#[derive(Debug, Default)]
pub(crate) struct HostPast {
    /// By entry.
    pub calls: HashMap<i32, EventWindow<Call>>,
    /// When a thread returned from waiting for work.
    woken: HashMap<i32, EventWindow<()>>,
    pub tasks: SchedTimeline<Sleep>,
    /// Of QEMU: those that the facts name, and those that appear.
    pub threads: BTreeSet<i32>,
    pub pops: EventWindow<(i32, Element)>,
    pub submits: EventWindow<Bytes>,
    pub pushes: EventWindow<(i32, Element)>,
    /// The thread, and the queue.
    pub notifies: EventWindow<(i32, u64)>,
    /// Whether there ever was one.
    pub notifies_seen: bool,
    pub injects: EventWindow<i32>,
    pub kicks: EventWindow<i32>,
    /// Whether there ever was one.
    pub kicks_seen: bool,
    pub issues: EventWindow<Bytes>,
    pub completes: EventWindow<Bytes>,
    /// The disk's file on its device, by position on the device.
    extents: Vec<Extent>,
}

impl HostPast {
    pub fn new(facts: &TraceFacts) -> Self {
        let mut extents = facts.host_disk.extents.clone();
        extents.sort_by_key(|e| e.device);
        let threads = facts.threads.iter().map(|t| t.tid).collect();
        HostPast { extents, threads, ..HostPast::default() }
    }

    pub fn take(&mut self, event: &Event<Host>) {
        let &Event { at, cpu, tid, interrupt, what } = event;
        if !interrupt {
            self.tasks.at_work(tid, at, cpu);
        }
        match what {
            Host::Sched(what) => {
                let (threads, calls) = (&self.threads, &self.calls);
                let sleeps = |tid, _| match calls.get(&tid).and_then(|c| c.until(at).next()) {
                    Some((_, c)) if c.exit.is_none() && c.kind == Kind::Lock => Sleep::Lock,
                    _ => Sleep::Other,
                };
                self.tasks.take(event.moment(), what, |tid| threads.contains(&tid), sleeps);
                // The return from waiting for a lock may not be among the events: it comes with the processor.
                if let Sched::Switch { next, .. } = what {
                    let last = self.calls.get_mut(&next).and_then(EventWindow::last_mut);
                    if let Some((_, call)) = last.filter(|(_, c)| c.kind == Kind::Lock) {
                        call.exit.get_or_insert(at);
                    }
                }
            }
            Host::Enter { nr, args } => {
                // Only QEMU's threads are watched: one that the facts do not name ended before they were taken.
                self.threads.insert(tid);
                let call = Call { kind: Kind::of(nr, &args), args, exit: None };
                self.calls.entry(tid).or_default().push(at, call);
            }
            Host::Exit => {
                if let Some((_, call)) = self.calls.entry(tid).or_default().last_mut() {
                    call.exit.get_or_insert(at);
                    if call.kind.waits(&call.args) {
                        self.woken.entry(tid).or_default().push(at, ());
                    }
                }
            }
            Host::Woke => {
                self.threads.insert(tid);
                self.woken.entry(tid).or_default().push(at, ());
            }
            Host::Pop(element) => self.pops.push(at, (tid, element)),
            Host::Submit { offset, bytes } => self.submits.push(at, Bytes { tid, offset, bytes }),
            Host::Push(element) => self.pushes.push(at, (tid, element)),
            Host::Notify { queue } => {
                self.notifies_seen = true;
                self.notifies.push(at, (tid, queue));
            }
            Host::Inject => self.injects.push(at, tid),
            Host::Kick => {
                self.kicks_seen = true;
                self.kicks.push(at, tid);
            }
            Host::Issue { offset, bytes } => {
                for part in in_file(&self.extents, offset, bytes) {
                    self.issues.push(at, Bytes { tid, ..part });
                }
            }
            Host::Complete { offset, bytes } => {
                for part in in_file(&self.extents, offset, bytes) {
                    self.completes.push(at, Bytes { tid, ..part });
                }
            }
        }
    }

    /// A thread's system calls, latest first, from `at` back, each with its entry.
    pub fn calls_until(&self, tid: i32, at: u64) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.get(&tid).into_iter().flat_map(move |c| c.until(at))
    }

    /// A thread's system calls, oldest first, entered at `at` or later.
    pub fn calls_from(&self, tid: i32, at: u64) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.get(&tid).into_iter().flat_map(move |c| c.from(at))
    }

    /// When a thread last returned from waiting for work, from `from` to `to`.
    pub fn woke(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        let woke = self.woken.get(&tid)?.until(to).next()?.0;
        (woke >= from).then_some(woke)
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let calls = self.calls.values().map(EventWindow::len).sum::<usize>()
            + self.woken.values().map(EventWindow::len).sum::<usize>();
        calls + self.tasks.remembers() + self.pops.len() + self.submits.len() + self.issues.len() + self.kicks.len()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        for calls in self.calls.values_mut() {
            calls.forget_but_one(at);
        }
        self.woken.values_mut().for_each(|woken| woken.forget(at));
        self.tasks.forget(at);
        self.pops.forget(at);
        self.submits.forget(at);
        self.pushes.forget(at);
        self.notifies.forget(at);
        self.injects.forget(at);
        self.kicks.forget(at);
        self.issues.forget(at);
        self.completes.forget(at);
    }
}

/// A range of the device as ranges of the disk's file.
fn in_file(extents: &[Extent], offset: u64, bytes: u64) -> impl Iterator<Item = Bytes> {
    let end = offset.saturating_add(bytes);
    let first = extents.partition_point(|e| e.device.saturating_add(e.length) <= offset);
    extents[first..].iter().take_while(move |e| e.device < end).map(move |e| {
        let from = offset.max(e.device);
        let to = end.min(e.device.saturating_add(e.length));
        Bytes { tid: 0, offset: e.file.saturating_add(from - e.device), bytes: to - from }
    })
}
