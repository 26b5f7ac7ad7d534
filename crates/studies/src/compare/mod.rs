//! Comparison of VM configurations: the fastest of several, or a metric that became slower.

mod analysis;
mod forecast;
mod interim;
mod one_boot;
mod options;
mod recordings;
mod sides;

pub(crate) use analysis::Comparison;
pub use forecast::forecast;
pub use interim::InterimAnalyses;
pub use options::{CompareOptions, Compared};
pub(crate) use recordings::{Baseline, Recordings};
pub use recordings::{check, compare_recordings};
