//! What the scheduler's events and system calls of a process say.

use crate::{CallRow, WaitFor};
use serde::{Deserialize, Serialize};

/// A thread by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThread {
    /// Its number on the host.
    pub tid: i32,
    /// Its name.
    pub name: String,
}

/// Something that a thread was blocked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockedOn {
    /// The system call; empty where it was in none, as in a page fault.
    pub call: String,
    /// The futex, as `0x7f…`; null where it is not one.
    pub futex: Option<String>,
    /// How often.
    pub count: u64,
    /// Of the time, 0 to 1.
    pub share: f64,
}

/// A thread's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Its number on the host.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Of the time, 0 to 1, on a CPU.
    pub runs: f64,
    /// Of the time, runnable without a CPU.
    pub ready: f64,
    /// Of the time, blocked.
    pub blocked: f64,
    /// What it was blocked on, the longest first.
    pub on: Vec<BlockedOn>,
    /// Its system calls and, with `_post` behind their names, the user time after them; the longest in all first.
    pub calls: Vec<CallRow>,
}

/// A thread that woke others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// Which.
    #[serde(flatten)]
    pub thread: NamedThread,
    /// How often.
    pub count: u64,
}

/// Waits at one futex.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FutexWaits {
    /// Its address, as `0x7f…`.
    pub address: String,
    /// What it is, as the stacks of its waiters say; null where none was sampled.
    pub what: Option<WaitFor>,
    /// The innermost of the program's functions there; empty where none was sampled.
    pub below: String,
    /// How often a thread was blocked on it.
    pub waits: u64,
    /// How long in all, ns.
    pub waited_ns: f64,
    /// The longest, ns.
    pub longest_ns: f64,
    /// Who waited.
    pub waiters: Vec<NamedThread>,
    /// Who woke them by a call on this futex: of a lock, who held it. The most first.
    pub wakers: Vec<Waker>,
    /// Who held it at the end, where it is a lock of the C library's.
    pub holder: Option<NamedThread>,
}

/// What was traced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFindings {
    /// How long, s.
    pub seconds: f64,
    /// Events that there was no room for; what they report ends before the first of them.
    pub lost: u64,
    /// The threads, those that ran most first.
    pub threads: Vec<ThreadTimes>,
    /// The futexes, those waited at longest first.
    pub futexes: Vec<FutexWaits>,
}
