//! Traces that other tools wrote.

pub(crate) mod dat;
pub(crate) mod ftrace;
pub(crate) mod perf;
pub(crate) mod qemu;
mod read;
mod record;

use std::collections::BTreeMap;

/// No more threads than these are remembered of a trace.
pub const MAX_THREADS: usize = 1 << 16;

/// A thread, as far as a trace describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedThread {
    /// PID of the thread's process (thread group); `None` where the trace does not say.
    pub process: Option<i32>,
    /// Name of the thread (`comm`).
    pub name: String,
}

/// The threads of a trace, by their TIDs.
pub type TracedThreads = BTreeMap<i32, TracedThread>;
