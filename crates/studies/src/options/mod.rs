//! The options of studies, as they stand on a command line, and how plans are made of them.

mod common;
mod error;
mod variants;
mod words;

pub use common::{CommonOptions, MachineOptions, StudyOptions};
pub use error::OptionsError;
pub(crate) use variants::{settings, share_variant, variants};
pub use words::key_value;
pub(crate) use words::{named_workloads, plan_file, set_duration};
