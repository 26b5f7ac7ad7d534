//! Findings from the scheduler's events and system calls of a process.

use crate::{CallRow, WaitFor};
use serde::{Deserialize, Serialize};

/// A thread by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThread {
    /// TID on the host.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
}

/// Something that a thread was blocked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockedOn {
    /// The system call; empty where it was in none, as in a page fault.
    pub call: String,
    /// The futex, as `0x7f…`; null where it is not one.
    pub futex: Option<String>,
    /// Number of times that it was blocked there.
    pub count: u64,
    /// Of the time, 0 to 1.
    pub share: f64,
}

/// A thread's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSchedule {
    /// TID on the host.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
    /// Of the time, 0 to 1, on a CPU.
    pub runs: f64,
    /// Of the time, runnable without a CPU.
    pub ready: f64,
    /// Of the time, blocked.
    pub blocked: f64,
    /// Causes of the blocked time, the longest first.
    pub on: Vec<BlockedOn>,
    /// System calls of the thread and, with `_post` behind their names, the user time after them; the longest in all
    /// first.
    pub calls: Vec<CallRow>,
}

/// A thread that woke others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// Thread that woke others.
    #[serde(flatten)]
    pub thread: NamedThread,
    /// Number of times that it woke others.
    pub count: u64,
}

/// Waits at one futex.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FutexWaits {
    /// Address of the futex, as `0x7f…`.
    pub address: String,
    /// Purpose of the futex, as the stacks of its waiters show; null where none was sampled.
    pub what: Option<WaitFor>,
    /// The innermost of the program's functions there; empty where none was sampled.
    pub below: String,
    /// Number of times that a thread was blocked on the futex.
    pub waits: u64,
    /// Total time that threads waited for it, ns.
    pub waited_ns: f64,
    /// The longest, ns.
    pub longest_ns: f64,
    /// Threads that waited for it.
    pub waiters: Vec<NamedThread>,
    /// Who woke them by a call on this futex: of a lock, who held it. The most first.
    pub wakers: Vec<Waker>,
    /// Who held it at the end, where it is a lock of the C library's.
    pub holder: Option<NamedThread>,
}

/// Findings of a trace of the scheduler's events and system calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFindings {
    /// Duration of the trace, s.
    pub seconds: f64,
    /// Events that there was no room for; what they report ends before the first of them.
    pub lost: u64,
    /// The threads, those that ran most first.
    pub threads: Vec<ThreadSchedule>,
    /// The futexes, those waited at longest first.
    pub futexes: Vec<FutexWaits>,
}
