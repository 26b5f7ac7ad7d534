//! `perf.data`, the file of `perf record`: the samples of tracepoints in it, and all its records.

mod check;
mod file;
mod records;
mod samples;

#[cfg(test)]
mod tests;

pub use records::{PerfEvent, PerfRecords};
pub use samples::Perf;
