//! System calls of all processes, counted and timed; without a [`CallCounter`] nothing is there.

mod bpf;
mod counter;
mod in_kernel;
mod program;
#[cfg(test)]
mod tests;
mod traced;

pub use counter::CallCounter;

/// Calls, or calls of processes, that are distinguished.
const ROWS: usize = 8192;
