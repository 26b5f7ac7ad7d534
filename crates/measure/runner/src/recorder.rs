//! From a plan to a recording: of guests that are booted, of a process that runs already, of the steps of a tuning.

use crate::observe::{diagnose, expected_stops, profile, tune, vm_exits, vm_layers};
use crate::requirements::{Requirements, find_requirements};
use crate::run::{BeforePart, Parts, run};
use crate::tool_output::check_patterns;
use crate::{Ended, Progress, RunError, Watch};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vmtax_model::{HostFacts, Plan, Study, TrialRecord, VmStudy};
use vmtax_observe::may_observe;
use vmtax_recording::{Writer, open};
use vmtax_vm::Watchdog;
use vmtax_vmm::Vm;
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
            check_patterns(plan.command().map_or(&[], |command| &command.metrics))?;
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
    let vm = Vm::planned(planned, !matches!(plan.study, Study::Profile(_)))?;
    match plan.study {
        Study::Vm(VmStudy::VmLayers | VmStudy::VmExits, _) | Study::Profile(_) => may_observe(pid)?,
        // A diagnosis lists what this user may not observe.
        _ => {}
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
        Study::Tune(spec) => tune(vm, spec, files()?, watch.decide, &stop),
        Study::Vm(VmStudy::VmLayers, spec) => vm_layers(vm, spec, files()?, &stop),
        Study::Vm(VmStudy::VmExits, spec) => vm_exits(vm, spec, files()?, &stop),
        // All that this user may observe.
        Study::Vm(_, spec) => diagnose(vm, spec, &files, &stop),
        _ => plan
            .profile()
            .map_or(Ok(()), |settings| profile(vm, settings, files()?, &stop)),
    }
}

/// Measures what is asked for, part by part, into one recording. A candidate that fails to boot does not end it.
fn tune_guest(
    plan: &Plan,
    host: &HostFacts,
    writer: &mut Writer,
    watch: &mut Watch<'_>,
) -> Result<Ended, RunError> {
    let folder = writer.folder().to_path_buf();
    let mut plan = plan.clone().without_parts();
    note_file_system(&mut plan, &folder);
    note_twin(&plan, watch);
    // All parts have the candidates' disks, or some of them.
    let mut parts = Parts::default();
    let mut trials = open(&folder)?.trials;
    while let Some(step) = watch.decide.next_of_guest(&plan, &trials) {
        let before = BeforePart {
            rounds: rounds(&trials),
            trials: trials.len() as u32,
        };
        parts.before = Some(before);
        plan.begin_part(step, before.rounds);
        writer.note_parts(&plan)?;
        let Some(part) = plan.part() else {
            break;
        };
        part.check()?;
        let part = CheckedPlan::new(part)?;
        let is_first = before.rounds == 0;
        let means = find_requirements(&part, host, &mut |line| {
            // Once is enough.
            if is_first {
                (watch.progress)(Progress::Note(line));
            }
        })?;
        if is_first {
            writer.note_kernels(means.as_ref().map_or(&[], Requirements::kernels))?;
        }
        let ended = run(&part, means.as_ref(), &mut parts, writer, watch)
            .map_err(|error| of_twin(&plan, error))?;
        trials = open(&folder)?.trials;
        plan.end_part(rounds(&trials) - before.rounds);
        writer.note_parts(&plan)?;
        if matches!(ended, Ended::Interrupted | Ended::CommandFailed(_)) {
            return Ok(ended);
        }
    }
    Ok(Ended::Complete)
}

/// Notes where a twin's image lies on another file system than its original.
fn note_file_system(plan: &mut Plan, folder: &Path) {
    let Study::TuneGuest(tune) = &mut plan.study else {
        return;
    };
    let Some(like) = &mut tune.settings.like else {
        return;
    };
    let device = |path: &Path| std::fs::metadata(path).ok().map(|data| data.dev());
    let original = like
        .image
        .as_deref()
        .and_then(|image| Some((image, device(image.parent()?)?)));
    if let Some((image, _)) = original.filter(|(_, of_image)| device(folder) != Some(*of_image)) {
        let line = format!(
            "file system of {}: the test guest's disk is in {}; --dir selects another place",
            image.display(),
            folder.display()
        );
        like.not_twinned.push(line);
    }
}

/// Tells of which VM the guest is a twin, and in what it is none.
fn note_twin(plan: &Plan, watch: &mut Watch<'_>) {
    let Some(like) = plan.guest_tune().and_then(|spec| spec.like.as_ref()) else {
        return;
    };
    let mut note = |line: &str| (watch.progress)(Progress::Note(line));
    note(&format!(
        "test guest with the configuration of {}, disk {}",
        like.source, like.disk
    ));
    for line in &like.not_twinned {
        note(&format!("not copied from the VM: {line}"));
    }
}

/// An error of a twin's first boot, with what may be replaced in it.
fn of_twin(plan: &Plan, error: RunError) -> RunError {
    match (plan.guest_tune().and_then(|spec| spec.like.as_ref()), error) {
        (Some(like), RunError::FirstBoot { source, .. }) => RunError::Twin {
            like: like.source.clone(),
            source,
        },
        (_, error) => error,
    }
}

/// Returns the number of rounds that began.
fn rounds(trials: &[TrialRecord]) -> u32 {
    trials
        .iter()
        .map(|trial| trial.round + 1)
        .max()
        .unwrap_or(0)
}
