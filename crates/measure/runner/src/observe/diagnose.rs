//! A running VM under every observer that the rights allow, one after another, so that none is in the figures of another.

use super::observer::store;
use super::wait::wait;
use super::{profile, vm_layers};
use crate::RunError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmtax_model::{DiskCounters, Missing, ObservedVm, ProfileSettings, RunState, SCHEMA, VmCounters, VmSamples, files};
use vmtax_recording::{RecordingError, TrialFiles};
use vmtax_vm::{Fleet, Level};

/// The part of the time for the counters; the profile and the requests have equal parts of the rest.
const COUNTERS: f64 = 0.4;
/// Fewer requests a second are no load, and are not traced.
const MIN_REQUESTS_PER_S: f64 = 10.0;

/// Reads the counters of a running VM, then profiles its threads and counts its VM exits, then traces its requests, until the time
/// has passed or `stop` becomes true. The artifacts go to the files that `open` gives. What was set in the VM is removed at the end.
///
/// # Errors
/// [`RunError`] for a process that is no VM, for a VM that ends while its counters are read, and when the files cannot be written.
pub fn diagnose(
    spec: &ObservedVm,
    open: &dyn Fn() -> Result<TrialFiles, RecordingError>,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let mut samples = match counters(spec, Level::Histograms, stop) {
        // Without a folder in which to write down what is set, nothing is set.
        Err(RunError::Machine(error)) => {
            let mut samples = counters(spec, Level::Counters, stop)?;
            samples.missing.push(Missing::for_error("the 99th percentile of requests", &error));
            samples
        }
        samples => samples?,
    };
    let is_running = !matches!(samples.after.state, Some(RunState::Stopped(_)));
    let left = spec.time().mul_f64(1.0 - COUNTERS);
    if is_running && !stop.load(Ordering::Relaxed) {
        let is_loaded = requests_per_s(&samples) >= MIN_REQUESTS_PER_S;
        let each = if is_loaded { left / 2 } else { left };
        let settings = ProfileSettings::of_process(spec.pid, each);
        let profiled = profile(spec.pid, &settings, open()?, stop);
        samples.missing.extend(refused("threads, functions and VM exits", profiled)?);
        if is_loaded && !stop.load(Ordering::Relaxed) {
            let traced = ObservedVm { time_ms: (each.as_millis() as u64).max(1), ..spec.clone() };
            samples.missing.extend(refused("requests by layer", vm_layers(&traced, open()?, stop))?);
        }
    }
    Ok(store(&mut open()?, files::VM_COUNTERS, &samples)?)
}

/// The counters at both ends of the first part of the time.
fn counters(spec: &ObservedVm, level: Level, stop: &AtomicBool) -> Result<VmSamples, RunError> {
    let mut fleet = Fleet::find(&[spec.pid.to_string()], level).map_err(|_| RunError::NoVm { pid: spec.pid })?;
    let mut sample = || -> Result<_, RunError> {
        let (samples, _) = fleet.sample()?;
        Ok(samples.into_iter().next().map(|sample| (sample.facts.clone(), sample.counters)))
    };
    let (_, before) = sample()?.ok_or(RunError::NoVm { pid: spec.pid })?;
    wait(spec.time().mul_f64(COUNTERS), &|| stop.load(Ordering::Relaxed));
    let (vm, after) = sample()?.ok_or(RunError::Ended { pid: spec.pid })?;
    Ok(VmSamples { schema: SCHEMA, vm, before, after, missing: Vec::new() })
}

/// Why an observer did not observe; an error where nothing can be stored either.
fn refused(what: &str, done: Result<(), RunError>) -> Result<Option<Missing>, RunError> {
    match done {
        Err(error @ (RunError::Recording(_) | RunError::Machine(_))) => Err(error),
        Err(error) => Ok(Some(Missing::for_error(what, &error))),
        Ok(()) => Ok(None),
    }
}

/// Requests of all disks; 0 where no monitor counts them.
fn requests_per_s(samples: &VmSamples) -> f64 {
    let all = |counters: &VmCounters| -> u64 {
        let of = |disk: &DiskCounters| disk.qemu.map_or(0, |kinds| kinds.iter().map(|kind| kind.count).sum());
        counters.disks.iter().map(of).fold(0, u64::saturating_add)
    };
    let time = Duration::from_nanos(samples.after.at_ns.saturating_sub(samples.before.at_ns));
    all(&samples.after).saturating_sub(all(&samples.before)) as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}
