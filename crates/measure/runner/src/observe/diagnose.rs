//! A running VM under every observer that the rights allow, one after another, so that none is in the figures of another.

use super::observer::{Stop, wait};
use super::{profile, queues, vm_layers};
use crate::RunError;
use std::time::Duration;
use vmtax_configuration::configuration_of;
use vmtax_live::{Fleet, Level};
use vmtax_model::{
    AbilityName, Missing, NotObserved, ObservedVm, ProfileSettings, RunState, SCHEMA, VmCounters,
    VmSamples, files,
};
use vmtax_observe::counters::HostSample;
use vmtax_recording::{RecordingError, TrialFiles};
use vmtax_vmm::{Vm, VmmError};

/// The part of the time for the counters; the profile and the requests have equal parts of the rest.
const COUNTERS: f64 = 0.4;
/// Fewer requests a second are no load, and are not traced.
const MIN_REQUESTS_PER_S: f64 = 10.0;
/// Name of what tracing requests gives.
const REQUESTS: &str = "requests by layer";

/// Reads the counters of a running VM, then profiles its threads and counts its VM exits, then traces its requests, until the time
/// has passed or `stop` says so. The artifacts of each go to the files that `open` gives before the next begins. What was set in
/// the VM is removed at the end.
///
/// # Errors
/// [`RunError`] for a process that is no VM, for a VM that ends while its counters are read, and when the files cannot be written.
pub(crate) fn diagnose(
    vm: &Vm,
    spec: &ObservedVm,
    open: &OpenFiles<'_>,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let level = match spec.level {
        0 => Level::Counters,
        _ => Level::Histograms,
    };
    let mut samples = match counters(vm, spec, level, stop) {
        // Without a folder in which to write down what is set, nothing is set.
        Err(RunError::Fleet(error)) => {
            let mut samples = counters(vm, spec, Level::Counters, stop)?;
            samples.missing.push(Missing::for_error(
                "the 99th percentile of requests",
                &error,
            ));
            samples
        }
        samples => samples?,
    };
    let per_s = requests_per_s(&samples);
    // Of a process that is stopped a profile shows nothing else.
    let is_running = !matches!(samples.after.state, Some(RunState::Stopped(_)))
        && samples.after.process_stop.is_none();
    let is_complete = spec.level == ObservedVm::ALL_LEVELS;
    if !is_complete {
        samples.missing.push(beyond_level(spec.level));
    } else if is_running && per_s.is_none() {
        samples.missing.push(requests_not_counted(&samples));
    }
    open()?.store(files::VM_COUNTERS, &samples)?;
    if is_complete && is_running && !stop() {
        let is_loaded = per_s.is_some_and(|per_s| per_s >= MIN_REQUESTS_PER_S);
        profile_and_trace(vm, spec, is_loaded, open, stop)?;
    }
    if vm.has_ended() {
        let ended = RunError::Ended { pid: vm.pid() };
        let missing = Missing::for_error("the rest of the time", &ended);
        note_not_observed(open, files::MISSING_END, missing)?;
    }
    Ok(())
}

/// Opens the trial's files, for one observer.
type OpenFiles<'a> = dyn Fn() -> Result<TrialFiles, RecordingError> + 'a;

fn note_not_observed(open: &OpenFiles<'_>, name: &str, missing: Missing) -> Result<(), RunError> {
    let schema = SCHEMA;
    Ok(open()?.store(name, &NotObserved { schema, missing })?)
}

/// Profiles a VM for the time that the counters leave; where it is loaded for half of it, and then traces its requests.
fn profile_and_trace(
    vm: &Vm,
    spec: &ObservedVm,
    is_loaded: bool,
    open: &OpenFiles<'_>,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let left = spec.time().mul_f64(1.0 - COUNTERS);
    let each = if is_loaded { left / 2 } else { left };
    let time_ms = (each.as_millis() as u64).max(1);
    let settings = ProfileSettings {
        time_ms: Some(time_ms),
        ..ProfileSettings::default()
    };
    // A monitor that was taken when the diagnosis began may answer now.
    let vm = &vm.with_monitor();
    let profiled = profile(vm, &settings, open()?, stop);
    if let Some(missing) = refused("threads, functions and VM exits", profiled)? {
        note_not_observed(open, files::MISSING_PROFILE, missing)?;
    }
    if is_loaded && !stop() {
        let traced = ObservedVm {
            time_ms,
            ..spec.clone()
        };
        if let Some(missing) = refused(REQUESTS, vm_layers(vm, &traced, open()?, stop))? {
            note_not_observed(open, files::MISSING_REQUESTS, missing)?;
        }
    }
    Ok(())
}

/// The counters at both ends of the first part of the time.
fn counters(
    vm: &Vm,
    spec: &ObservedVm,
    level: Level,
    stop: &Stop<'_>,
) -> Result<VmSamples, RunError> {
    let pid = vm.pid();
    let mut fleet = Fleet::of(vm.clone(), level)?;
    let mut sample = || -> Result<_, RunError> {
        let (samples, _) = fleet.sample()?;
        Ok(samples
            .into_iter()
            .next()
            .map(|sample| (sample.facts.clone(), sample.counters)))
    };
    // The search takes time, which is not to be in the counters.
    let queues = (level >= Level::Histograms).then(|| queues::find(pid));
    let (_, before) = sample()?.ok_or(RunError::NoVm { pid })?;
    let host_before = HostSample::take();
    let share = match spec.level {
        ObservedVm::ALL_LEVELS => COUNTERS,
        _ => 1.0,
    };
    let time = spec.time().mul_f64(share);
    // Of a VM that does not run all requests stay where they are.
    let is_running =
        !matches!(before.state, Some(RunState::Stopped(_))) && before.process_stop.is_none();
    let (stalled, not_known) = match queues {
        Some(Ok(queues)) if is_running => (queues::stalled(queues, time, stop), None),
        not_sampled => {
            wait(time, stop);
            (Vec::new(), not_sampled.and_then(Result::err))
        }
    };
    let (vm, mut after) = sample()?.ok_or(RunError::Ended { pid })?;
    let devices = vm.disks.iter().filter_map(|disk| disk.host_device);
    let host = HostSample::take().since(&host_before, pid, &devices.collect());
    after.settings.configuration = configuration_of(pid);
    after.stalled_queues = stalled;
    let has_disks = !vm.disks.is_empty();
    let mut missing: Vec<Missing> = not_known.into_iter().filter(|_| has_disks).collect();
    if level >= Level::Histograms {
        // Nothing of a process that is stopped answers.
        let vm = fleet.vm(pid).filter(|_| after.process_stop.is_none());
        match vm.and_then(|vm| vm.guest_settings(&after.settings.disks)) {
            Some(Ok(settings)) => after.settings.guest = Some(settings),
            Some(Err(error)) => missing.push(guest_not_read(&error)),
            None => {}
        }
    }
    Ok(VmSamples {
        schema: SCHEMA,
        vm,
        before,
        after,
        host,
        missing,
    })
}

/// Returns the observations that a level leaves out.
fn beyond_level(level: u8) -> Missing {
    let what = match level {
        0 => "latency histograms, the guest's settings, threads, VM exits and requests by layer",
        _ => "threads, VM exits and requests by layer",
    };
    Missing {
        what: what.to_owned(),
        why: format!("--level {level} leaves them out"),
        fix: "omit --level".to_owned(),
    }
}

/// Why the guest's own settings are not known.
fn guest_not_read(error: &VmmError) -> Missing {
    Missing {
        what: "settings of the guest's kernel".to_owned(),
        why: error.to_string(),
        fix: "start qemu-guest-agent in the guest, and permit it to read files (guest-file-open, guest-file-read)".to_owned(),
    }
}

/// Why an observer did not observe; an error where nothing can be stored either.
fn refused(what: &str, done: Result<(), RunError>) -> Result<Option<Missing>, RunError> {
    match done {
        Err(error @ (RunError::Recording(_) | RunError::Machine(_))) => Err(error),
        Err(error) => Ok(Some(Missing::for_error(what, &error))),
        Ok(()) => Ok(None),
    }
}

/// Requests of all disks; `None` where nothing counts those of the VM's disks.
fn requests_per_s(samples: &VmSamples) -> Option<f64> {
    let disks = &samples.after.disks;
    // Without a monitor not all disks are known.
    let may_have_disks = !disks.is_empty() || no_monitor(samples).is_some();
    if may_have_disks && disks.iter().all(|disk| disk.qemu.is_none()) {
        return None;
    }
    let all = |counters: &VmCounters| -> u64 {
        let kinds = counters.disks.iter().filter_map(|disk| disk.qemu);
        kinds
            .map(|kinds| kinds.iter().map(|kind| kind.count).sum())
            .fold(0, u64::saturating_add)
    };
    let time = Duration::from_nanos(samples.after.at_ns.saturating_sub(samples.before.at_ns));
    let requests = all(&samples.after).saturating_sub(all(&samples.before));
    Some(requests as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// Why its monitor cannot be asked.
fn no_monitor(samples: &VmSamples) -> Option<&Missing> {
    let monitor = samples
        .vm
        .abilities
        .iter()
        .find(|ability| ability.what == AbilityName::Monitor);
    monitor?.missing.as_ref()
}

/// Requests are traced where there is load, which QEMU's monitor tells.
fn requests_not_counted(samples: &VmSamples) -> Missing {
    let trace = format!("`vmtax layers --vm {}` traces them anyway", samples.vm.pid);
    let vmm = samples.vm.vmm;
    if !vmm.is_qemu() {
        return Missing {
            what: REQUESTS.to_owned(),
            why: format!(
                "skipped: vmtax asks no monitor of {}, so it is not known whether the disks do I/O",
                vmm.subject()
            ),
            fix: trace,
        };
    }
    let (why, fix) = match no_monitor(samples) {
        Some(missing) => (missing.why.clone(), format!("{}; {trace}", missing.fix)),
        None => match samples.after.monitor_timeout_s {
            Some(seconds) => (format!("QMP did not answer within {seconds} s"), trace),
            None => ("QEMU's monitor did not answer".to_owned(), trace),
        },
    };
    Missing {
        what: REQUESTS.to_owned(),
        why: format!("skipped: without QMP it is not known whether the disks do I/O ({why})"),
        fix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Ability, DiskCounters, HostActivity, RequestCounters, VmFacts};

    fn samples(counts: Option<[u64; 2]>, monitor: Option<Missing>) -> VmSamples {
        let counters_at = |at_ns, count: Option<u64>| {
            let counted = |count| {
                [RequestCounters {
                    count,
                    ..RequestCounters::default()
                }; 3]
            };
            let disk = DiskCounters {
                name: "vd0".to_owned(),
                qemu: count.map(counted),
                ..DiskCounters::default()
            };
            VmCounters {
                at_ns,
                disks: vec![disk],
                ..VmCounters::default()
            }
        };
        let [before, after] = counts.map_or([None; 2], |counts| counts.map(Some));
        let abilities = vec![Ability {
            what: AbilityName::Monitor,
            missing: monitor,
        }];
        let vm = VmFacts {
            abilities,
            ..VmFacts::unknown(7)
        };
        let (before, after) = (counters_at(1, before), counters_at(1_000_000_001, after));
        VmSamples {
            schema: SCHEMA,
            vm,
            before,
            after,
            host: HostActivity::default(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn requests_that_nothing_counts_are_missing_with_what_would_count_them() {
        assert_eq!(requests_per_s(&samples(Some([10, 30]), None)), Some(60.0));
        let no_disk = VmSamples {
            after: VmCounters::default(),
            ..samples(None, None)
        };
        assert_eq!(
            requests_per_s(&no_disk),
            Some(0.0),
            "there is nothing to count"
        );
        let monitor = Missing {
            what: "QEMU's monitor".to_owned(),
            why: "QEMU has no QMP socket".to_owned(),
            fix: "start it with -qmp".to_owned(),
        };
        let unknown_disks = VmSamples {
            after: VmCounters::default(),
            ..samples(None, Some(monitor.clone()))
        };
        assert_eq!(requests_per_s(&unknown_disks), None);
        let blind = samples(None, Some(monitor));
        assert_eq!(requests_per_s(&blind), None);
        let missing = requests_not_counted(&blind);
        assert_eq!(
            missing.why,
            "skipped: without QMP it is not known whether the disks do I/O (QEMU has no QMP socket)"
        );
        assert_eq!(
            missing.fix,
            "start it with -qmp; `vmtax layers --vm 7` traces them anyway"
        );
        assert!(
            requests_not_counted(&samples(None, None))
                .why
                .contains("QEMU's monitor did not answer")
        );
    }
}
