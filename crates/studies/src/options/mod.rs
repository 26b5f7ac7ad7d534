//! Options that several studies have, and how plans are made of them.

mod common;
mod fio;
pub(crate) mod values;
mod workloads;

pub use common::{
    CommonOptions, GuestOptions, GuestSettings, LazyHost, MeasurementOptions, RunningVmOptions,
    StudyOptions,
};
pub(crate) use common::{
    MEMORY_HELP, OF_A_GUEST, PINNING_HELP, VCPUS_HELP, complete, on_host, plan_of_vm, with_help,
};
pub(crate) use fio::FioOptions;
pub use values::{OptionsError, duration, fraction};
pub use workloads::key_value;
pub(crate) use workloads::{
    WorkloadArguments, argv_of_exec, check_metrics, command_here, first_workload, named_workloads,
    plan_file, root_share, set_duration, settings, share_variant, variants,
};
