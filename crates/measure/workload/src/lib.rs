//! Workloads: sysbench's five tests, system calls, block requests, operations on a shared tree, each timed.
//!
//! The code that runs natively also runs inside a guest. A workload is given as a [`WorkloadSpec`]; [`check`] says
//! whether it can be run as written and [`run`] runs it. Each module states the definition it follows.
//!
//! A new workload is a block of the table in `vmtax-model`, and the module in `workloads` that the block names.

mod buffer;
mod clock;
mod descriptor;
mod error;
mod net_server;
mod options;
mod outcome;
mod plan;
mod recorder;
mod share;
mod sysbench;
mod workloads;

pub use clock::Clock;
pub use descriptor::{Checked, Descriptor, Preset, Room};
pub use error::WorkloadError;
pub use net_server::{SERVER_THREADS, bulk_address, serve};
pub use options::{Alias, OptionInfo};
pub use plan::{CheckedPlan, CheckedStep};
pub use workloads::bonnie::small_bonnie;
pub use workloads::descriptor;
pub use workloads::disk::{BlockWork, block_work, requests};
pub use workloads::exits::{exit_count, exits};
pub use workloads::fs_semantics::{GuestState, check_from_host, lingering};
pub use workloads::guest_antipatterns::{AntipatternWork, antipattern_work};
pub use workloads::net_rr::{
    RESPONSE_TIMEOUT, RoundTripWork, WARM_UP, round_trip_work, round_trips,
};
pub use workloads::syscalls::shortest_call;

use vmtax_model::{Places, Series, TrialResult, WorkloadName, WorkloadSpec};

/// Parses every option, fills in the defaults, and sees that they go together.
///
/// # Errors
/// An unknown option, a value out of range, or options that do not go together.
pub fn check(spec: &WorkloadSpec) -> Result<Checked, WorkloadError> {
    Checked::new(spec, descriptor(spec.name))
}

/// [`check`], and then [`Checked::run`].
///
/// # Errors
/// As they have.
pub fn run(spec: &WorkloadSpec, places: &Places) -> Result<TrialResult, WorkloadError> {
    check(spec)?.run(places)
}

/// Runs a workload, and keeps the stamps of each of its requests, up to four million, in memory that is there before the first.
/// A result whose operations are more says how many were not kept.
///
/// # Errors
/// As [`run`]; [`WorkloadError::NoRequests`] for workloads other than `disk` and `net-rr`, [`WorkloadError::TooMany`], and
/// [`WorkloadError::NoStamps`] where the clock is not the time stamp counter.
pub fn run_with_series(
    spec: &WorkloadSpec,
    places: &Places,
) -> Result<(TrialResult, Series), WorkloadError> {
    match spec.name {
        WorkloadName::Disk => workloads::disk::run_with_series(spec, places),
        WorkloadName::NetRr => workloads::net_rr::run_with_series(spec, places),
        other => Err(WorkloadError::NoRequests(other)),
    }
}

/// Sets an option by its name or an alias: fio's `bs`, `rw`, `iodepth`.
///
/// # Errors
/// [`WorkloadError::BadValue`] for a value that an alias does not have; [`check`] refuses all others.
pub fn set_option(spec: &mut WorkloadSpec, option: &str, value: &str) -> Result<(), WorkloadError> {
    options::set(spec, descriptor(spec.name).options, option, value)
}

/// Has a trial measure for so many seconds in all, where the workload has an option for its time.
///
/// # Errors
/// As [`check`].
pub fn set_duration(spec: &mut WorkloadSpec, seconds: f64) -> Result<(), WorkloadError> {
    if descriptor(spec.name)
        .options
        .iter()
        .any(|option| option.name == options::TIME)
    {
        let each = seconds / check(spec)?.parts() as f64;
        spec.options
            .insert(options::TIME.to_owned(), each.to_string());
    }
    Ok(())
}
