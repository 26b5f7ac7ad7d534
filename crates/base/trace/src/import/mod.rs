//! Traces that other tools wrote.

pub(crate) mod dat;
pub(crate) mod perf;
pub(crate) mod qemu;
mod read;
