//! From a plan to a recording: of guests that are booted, of a process that runs already, of the steps of a tuning.

use crate::observe::{diagnose, expected_stops, profile, tune, vm_exits, vm_layers};
use crate::requirements::{Requirements, find_requirements};
use crate::run::{Parts, run};
use crate::tune_guest::tune_guest;
use crate::watch::{Progress, Watch};
use crate::{Ended, RunError};
use vmtax_model::{HostFacts, Plan, Study};
use vmtax_observe::may_observe;
use vmtax_recording::Writer;
use vmtax_vm::{Vm, Watchdog};
use vmtax_workload::CheckedPlan;

/// A plan that can be carried out.
pub struct Recorder<'a> {
    plan: &'a CheckedPlan,
    host: &'a HostFacts,
    source: Source,
}

/// Source of a plan's trials.
enum Source {
    /// The host itself, and guests that are booted with what they need.
    Machines(Option<Requirements>),
    /// Guests of a tuning: each of its parts finds what these need.
    Tuning,
    /// A process that runs already.
    Process(Vm),
}

impl<'a> Recorder<'a> {
    /// Finds what the plan needs: a kernel is fetched if none is there, a process that runs already is attached to. A plan that
    /// cannot be carried out fails here, before its recording begins.
    ///
    /// # Errors
    /// [`RunError`] saying what is missing and how to get it.
    pub fn prepare(
        plan: &'a CheckedPlan,
        host: &'a HostFacts,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Recorder<'a>, RunError> {
        let source = if plan.is_attached() {
            Source::Process(attach(plan, progress)?)
        } else if plan.guest_tune().is_some() {
            Source::Tuning
        } else {
            let mut note = |line: &str| progress(Progress::Note(line));
            Source::Machines(find_requirements(plan, host, &mut note)?)
        };
        Ok(Recorder { plan, host, source })
    }

    /// Carries the plan out, and marks its recording as ended unless it was interrupted. Where a process that runs already
    /// cannot be observed there is no recording.
    ///
    /// # Errors
    /// [`RunError`] when the plan cannot be carried out: the error would occur each time.
    pub fn record(self, mut writer: Writer, watch: &mut Watch<'_>) -> Result<Ended, RunError> {
        let Recorder { plan, host, source } = self;
        let ended = match source {
            Source::Machines(means) => {
                writer.note_kernels(means.as_ref().map_or(&[], Requirements::kernels))?;
                let parts = &mut Parts::default();
                run(plan, means.as_ref(), parts, &mut writer, watch)?
            }
            Source::Tuning => tune_guest(plan, host, &mut writer, watch)?,
            Source::Process(vm) => {
                if let Err(error) = observe(plan, &vm, &writer, watch) {
                    writer.discard();
                    return Err(error);
                }
                Ended::Complete
            }
        };
        if !matches!(ended, Ended::Interrupted | Ended::CommandFailed(_)) {
            writer.finish()?;
        }
        Ok(ended)
    }
}

/// Attaches to the VM of a plan, or to its process, which has to be the one that the plan was made for.
fn attach(plan: &Plan, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Vm, RunError> {
    let Some(planned) = plan.running_vm() else {
        return Err(RunError::OfFiles {
            plan: plan.name.clone(),
        });
    };
    let pid = planned.pid;
    // Another VM may have its PID by now, and would be changed.
    if plan.tune().is_some() && planned.started.is_none() {
        return Err(RunError::UnknownStart { pid });
    }
    let vm = Vm::planned(&planned)?;
    // A diagnosis lists what this user may not observe.
    if !matches!(plan.study, Study::Diagnose(_) | Study::Tune(_)) {
        may_observe(pid)?;
    }
    if let Some(line) = plan
        .profile()
        .and_then(|settings| expected_stops(&vm, settings))
    {
        progress(Progress::Note(&line));
    }
    Ok(vm)
}

/// Observes a process that runs already.
fn observe(plan: &Plan, vm: &Vm, writer: &Writer, watch: &mut Watch<'_>) -> Result<(), RunError> {
    let _watchdog = Watchdog::start(Vec::new())?;
    let interrupt = watch.interrupt;
    let (files, stop) = (|| writer.trial_files(0), || interrupt.raised());
    match &plan.study {
        Study::Diagnose(spec) => diagnose(vm, spec, &files, &stop),
        Study::Tune(spec) => tune(vm, spec, files()?, watch.decide, &stop),
        Study::VmLayers(spec) => vm_layers(vm, spec, files()?, &stop),
        Study::VmExits(spec) => vm_exits(vm, spec, files()?, &stop),
        _ => plan
            .profile()
            .map_or(Ok(()), |settings| profile(vm, settings, files()?, &stop)),
    }
}
