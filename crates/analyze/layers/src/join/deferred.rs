//! Interrupts that KVM leaves to a worker of the kernel: a thread of the VMM writes an irqfd, whose interrupt is a line of the PIC or
//! the IO-APIC, and a worker raises the line.

use std::collections::{BTreeSet, HashMap};
use vmtax_trace::EventWindow;

/// An interrupt on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// When the VMM's thread left it to the kernel.
    pub queued: u64,
    /// When a worker began with it, and which; `None` until one does.
    pub begun: Option<(u64, i32)>,
}

/// The interrupts of one VM that were left to workers.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// By the thread that left them to the kernel.
    by_thread: HashMap<i32, EventWindow<Interrupt>>,
    /// By address of the work that waits: since when, and whose it is.
    waiting: HashMap<u64, (u64, i32)>,
    /// Addresses of the work that each thread left: one for each irqfd that it writes.
    works: HashMap<i32, BTreeSet<u64>>,
    /// Workers that have delivered one.
    workers: BTreeSet<i32>,
}

impl Deferred {
    /// A thread leaves an interrupt to the kernel.
    pub fn queue(&mut self, at: u64, tid: i32, work: u64) {
        self.waiting.insert(work, (at, tid));
        self.works.entry(tid).or_default().insert(work);
        let interrupt = Interrupt {
            queued: at,
            begun: None,
        };
        self.by_thread.entry(tid).or_default().push(at, interrupt);
    }

    /// A worker begins with one, perhaps another VM's.
    pub fn begin(&mut self, at: u64, worker: i32, work: u64) {
        let Some((queued, tid)) = self.waiting.remove(&work) else {
            return;
        };
        self.workers.insert(worker);
        let all = self.by_thread.get_mut(&tid).into_iter();
        let mut latest = all.flat_map(|all| all.latest_mut());
        if let Some(interrupt) = latest.find(|interrupt| interrupt.queued == queued) {
            interrupt.begun = Some((at, worker));
        }
    }

    /// Returns true for a worker that has delivered an interrupt of this VM.
    pub fn is_worker(&self, tid: i32) -> bool {
        self.workers.contains(&tid)
    }

    /// The interrupt that tells the guest what a thread has for it at `from`: one that it left to the kernel before and that no worker
    /// has begun with, as the kernel queues no work twice; else the first that it leaves to it up to and with `to`. Of a thread that
    /// writes several irqfds an earlier one may be another device's, and is left out.
    pub fn first(&self, tid: i32, from: u64, to: u64) -> Option<Interrupt> {
        let all = self.by_thread.get(&tid)?;
        let is_waiting = |left: &&Interrupt| left.begun.is_none_or(|(begun, _)| begun >= from);
        let has_one = self.works.get(&tid).is_some_and(|works| works.len() == 1);
        let earlier = all.before(from).next().filter(|_| has_one);
        let earlier = earlier.map(|(_, left)| left);
        let left = earlier.filter(is_waiting);
        left.or_else(|| Some(all.within(from, to).next()?.1))
            .copied()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_thread.values().map(EventWindow::len).sum()
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        self.by_thread.values_mut().for_each(|all| all.forget(at));
        self.waiting.retain(|_, (queued, _)| *queued >= at);
    }
}
