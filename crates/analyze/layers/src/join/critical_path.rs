//! The critical path: from the end of an interval back along who woke whom.

use vmtax_trace::{SchedTimeline, ThreadState};

/// Why a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// For a lock.
    Lock,
    /// For anything else.
    Other,
}

/// A part of the path: what the thread did on whose work the end of an interval hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathStep {
    pub from: u64,
    pub to: u64,
    pub tid: i32,
    pub cpu: u32,
    pub state: ThreadState<Sleep>,
}

/// The critical path to `to`, where `tid` was at work on `cpu`, back to `from`: latest first, without a gap. A thread that
/// was woken by another leads on to that one; one that was woken by an interrupt, or by nobody known, slept. A wait for a
/// lock is that, whoever ended it.
pub(crate) fn critical_path(
    threads: &SchedTimeline<Sleep>,
    tid: i32,
    cpu: u32,
    from: u64,
    to: u64,
) -> Vec<PathStep> {
    let mut steps = Vec::new();
    let (mut tid, mut cpu, mut to) = (tid, cpu, to);
    while to > from {
        let Some((since, state, at_cpu)) = threads.before(tid, to) else {
            // Before its first event it can only have run: whatever else it did would end with one.
            steps.push(PathStep {
                from,
                to,
                tid,
                cpu,
                state: ThreadState::Running,
            });
            break;
        };
        // A sleeper is on no CPU: what matters is the one on which it was woken.
        cpu = if matches!(state, ThreadState::Sleeping(_)) {
            cpu
        } else {
            at_cpu
        };
        let since = since.max(from);
        steps.push(PathStep {
            from: since,
            to,
            tid,
            cpu,
            state,
        });
        // Each step begins before the one after it, so this ends.
        to = since;
        let ThreadState::Runnable {
            waker: Some(waker), ..
        } = state
        else {
            continue;
        };
        cpu = waker.cpu;
        let lock = matches!(
            threads.before(tid, to),
            Some((_, ThreadState::Sleeping(Sleep::Lock), _))
        );
        if !lock {
            tid = waker.tid.filter(|tid| threads.knows(*tid)).unwrap_or(tid);
        }
    }
    steps
}
