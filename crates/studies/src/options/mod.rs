//! Options that several studies have, and how plans are made of them.

mod common;
mod error;
mod running_vm;
pub(crate) mod values;
mod variants;
mod workloads;

pub use common::{CommonOptions, GuestOptions, GuestSettings, MeasurementOptions, StudyOptions};
pub(crate) use common::{complete, with_help};
pub use error::OptionsError;
pub use running_vm::RunningVmOptions;
pub(crate) use running_vm::plan_of_vm;
pub use values::duration;
pub(crate) use variants::{settings, share_variant, variants};
pub use workloads::key_value;
pub(crate) use workloads::{
    WorkloadArguments, first_workload, named_workloads, plan_file, set_duration,
};
