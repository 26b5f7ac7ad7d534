//! `trace.dat`, the file of trace-cmd, versions 6 and 7.
//!
//! Source: `trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`, and files that trace-cmd 3.1 wrote.

mod compress;
mod file;
mod head;
mod options;
mod part;
mod v6;
mod v7;

#[cfg(test)]
mod tests;

pub use file::Dat;
pub(crate) use file::perf_head;
pub use options::{TimeOffset, TimeShift, TracedGuest, TscScale};
