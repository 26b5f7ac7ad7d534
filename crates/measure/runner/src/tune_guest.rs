//! The parts of a tuning of a guest, until nothing is left to measure.

use crate::requirements::{Requirements, find_requirements};
use crate::run::{BeforePart, Parts, run};
use crate::watch::{Progress, Watch};
use crate::{Ended, RunError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vmtax_model::{HostFacts, Plan, Study, TrialRecord};
use vmtax_recording::{Writer, open};
use vmtax_workload::CheckedPlan;

/// Measures what is asked for, part by part, into one recording. A candidate that fails to boot does not end it.
pub(crate) fn tune_guest(
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
    let Some(like) = &mut tune.spec.like else {
        return;
    };
    let device = |path: &Path| std::fs::metadata(path).ok().map(|data| data.dev());
    let original = like
        .image
        .as_deref()
        .and_then(|image| Some((image, device(image.parent()?)?)));
    if let Some((image, _)) = original.filter(|(_, of_image)| device(folder) != Some(*of_image)) {
        let line = format!(
            "file system of {}: the twin's disk is in {}; --dir puts it elsewhere",
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
    note(&format!("twin of {}, disk {}", like.source, like.disk));
    for line in &like.not_twinned {
        note(&format!("not twinned: {line}"));
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
