//! The times of a thread with what it does.

use vmtax_model::{Role, ThreadCounters};
use vmtax_observe::counters::ThreadTimes;

/// A thread's counters.
pub(super) fn counted(thread: ThreadTimes, role: Role) -> ThreadCounters {
    let ThreadTimes {
        tid,
        cpu_ns,
        wait_ns,
        turns,
    } = thread;
    ThreadCounters {
        tid,
        role,
        cpu_ns,
        wait_ns,
        turns,
    }
}
