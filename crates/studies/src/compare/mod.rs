//! Which of several VM configurations is faster, or whether one became slower.

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
