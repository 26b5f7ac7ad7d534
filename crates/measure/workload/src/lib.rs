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
mod fio;
mod net_server;
mod options;
mod overwrite;
mod recorder;
mod share;
mod sysbench;
mod workloads;

pub use clock::Clock;
pub use descriptor::{Checked, Descriptor, Preset, Room};
pub use error::WorkloadError;
pub use fio::{
    FioDirection, FioError, FioJob, FioJobResult, FioLatency, FioOutput, FioPaste, INSTALL_FIO,
    fio_output, json_documents, set_mount_attributes,
};
pub use net_server::{SERVER_THREADS, bulk_address, serve};
pub use options::{Alias, OptionInfo};
pub use workloads::bonnie::small_bonnie;
pub use workloads::descriptor;
pub use workloads::disk::{BlockWork, block_work, requests};
pub use workloads::exits::{exit_count, exits};
pub use workloads::fio::{fio_requests, fio_status, fio_work};
pub use workloads::fs_semantics::{GuestState, check_from_host, lingering};
pub use workloads::guest_antipatterns::{AntipatternWork, antipattern_work};
pub use workloads::net_rr::{
    RESPONSE_TIMEOUT, RoundTripWork, WARM_UP, round_trip_work, round_trips,
};
pub use workloads::syscalls::shortest_call;

use std::ops::Deref;
use vmtax_model::{Places, Plan, Series, TrialResult, WorkloadName, WorkloadSpec, without_secrets};

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

/// A plan whose workloads can be run as written, at each step of its range.
pub struct CheckedPlan {
    plan: Plan,
    steps: Vec<CheckedStep>,
}

/// A plan as it is at a step of its range.
pub struct CheckedStep {
    /// Plan with the values of this step.
    pub plan: Plan,
    /// Of each of the plan's variants.
    variants: Vec<Workloads>,
}

/// Workloads that a variant runs: as asked for and as checked, in the plan's order.
struct Workloads {
    specs: Vec<WorkloadSpec>,
    checked: Vec<Checked>,
}

impl CheckedPlan {
    /// Checks the workloads of a plan that [`Plan::check`] accepts. Its variants have names without their secrets: these are shown
    /// and stored.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(mut plan: Plan) -> Result<CheckedPlan, WorkloadError> {
        for variant in &mut plan.variants {
            variant.name = without_secrets(&variant.name).into_owned();
        }
        let checked_step = |step| {
            let plan = plan.at_step(step);
            let variants = (0..plan.variants.len()).map(|variant| {
                let specs = plan.workloads_of(variant);
                let checked = specs.iter().map(check).collect::<Result<_, _>>()?;
                Ok(Workloads { specs, checked })
            });
            let variants = variants.collect::<Result<_, _>>()?;
            Ok(CheckedStep { plan, variants })
        };
        let steps = (0..plan.steps())
            .map(checked_step)
            .collect::<Result<_, _>>()?;
        Ok(CheckedPlan { plan, steps })
    }

    /// The plan as it is at each step; without a range at the only one.
    pub fn checked_steps(&self) -> &[CheckedStep] {
        &self.steps
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;
    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl CheckedStep {
    /// The workloads of each variant, in the plan's order.
    pub fn workloads(&self) -> impl Iterator<Item = &[Checked]> {
        self.variants
            .iter()
            .map(|of_variant| of_variant.checked.as_slice())
    }

    /// Returns the workloads of a variant as the plan asks for them.
    pub fn specs(&self, variant: usize) -> &[WorkloadSpec] {
        self.variants
            .get(variant)
            .map_or(&self.plan.workloads, |of_variant| &of_variant.specs)
    }

    /// A variant's workload of a name; `None` where it is not run.
    pub fn workload(&self, variant: usize, name: WorkloadName) -> Option<&Checked> {
        self.variants
            .get(variant)?
            .checked
            .iter()
            .find(|workload| workload.name() == name)
    }
}
