//! Traces that other tools wrote.

pub(crate) mod dat;
pub(crate) mod ftrace;
pub(crate) mod perf;
pub(crate) mod qemu;
mod read;
mod record;
mod threads;

pub use threads::{MAX_THREADS, TracedThread, TracedThreads};
