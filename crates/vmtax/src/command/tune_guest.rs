//! The parts of a tuning of a guest, until nothing is left to measure.

use super::progress::Display;
use crate::fault::Fault;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vmtax_model::{HostFacts, Plan, Study};
use vmtax_recording::{Writer, open};
use vmtax_runner::{BeforePart, Ended, RunError, Watch, find_requirements};
use vmtax_vm::{Interrupt, Streams};
use vmtax_workload::CheckedPlan;

/// Measures what the analysis asks for, part by part, into one recording. A candidate that fails to boot does not end it.
pub(super) fn measure(
    plan: &Plan,
    host: &HostFacts,
    writer: &mut Writer,
    interrupt: &Interrupt,
    streams: Option<&Streams>,
    display: &Display,
) -> Result<Ended, Fault> {
    let folder = writer.folder().to_path_buf();
    let mut plan = plan.clone().without_parts();
    note_file_system(&mut plan, &folder);
    if let Some(like) = plan.guest_tune().and_then(|spec| spec.like.as_ref()) {
        display.note(&format!("twin of {}, disk {}", like.source, like.disk));
        like.not_twinned
            .iter()
            .for_each(|line| display.note(&format!("not twinned: {line}")));
    }
    // All parts have the candidates' disks, or some of them.
    let mut workspace = None;
    let mut trials = open(&folder)?.trials;
    loop {
        let Some(step) = vmtax_analysis::next_guest_step(&plan, &trials) else {
            return Ok(Ended::Complete);
        };
        if let Some(line) = vmtax_report::tune_guest::begins(&plan, &trials, &step) {
            display.note(&line);
        }
        let before = BeforePart {
            rounds: rounds(&trials),
            trials: trials.len() as u32,
        };
        plan.begin_part(step.clone(), before.rounds);
        writer.note_parts(&plan)?;
        let Some(part) = plan.part() else {
            return Ok(Ended::Complete);
        };
        part.check()?;
        let part = CheckedPlan::new(part)?;
        let means =
            find_requirements(&part, host, &vmtax_guests::kernel::cache_dir, &mut |line| {
                // Once is enough.
                if before.rounds == 0 {
                    display.note(line);
                }
            })?;
        if let Some(means) = means.as_ref().filter(|_| before.rounds == 0) {
            writer.note_kernels(means.kernels())?;
        }
        let mut watch = Watch {
            progress: &mut |progress| display.show(progress),
            // A step that cannot be read from what is recorded goes on to the part's end.
            go_on: &mut |_| {
                let Ok(recording) = open(&folder) else {
                    return true;
                };
                vmtax_analysis::next_guest_step(&plan, &recording.trials).as_ref() == Some(&step)
            },
            before: Some(before),
        };
        let ended = vmtax_runner::run(
            &part,
            means.as_ref(),
            writer,
            interrupt,
            streams,
            &mut workspace,
            &mut watch,
        );
        let ended = ended.map_err(|error| of_twin(&plan, error))?;
        trials = open(&folder)?.trials;
        plan.end_part(rounds(&trials) - before.rounds);
        writer.note_parts(&plan)?;
        if matches!(ended, Ended::Interrupted | Ended::CommandFailed(_)) {
            return Ok(ended);
        }
    }
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

/// An error of a twin's first boot, with what may be replaced in it.
fn of_twin(plan: &Plan, error: RunError) -> Fault {
    match (plan.guest_tune().and_then(|spec| spec.like.as_ref()), error) {
        (Some(like), RunError::FirstBoot { source, .. }) => Fault::Twin {
            like: like.source.clone(),
            source,
        },
        (_, error) => Fault::Run(error),
    }
}

/// Returns the number of rounds that began.
fn rounds(trials: &[vmtax_model::TrialRecord]) -> u32 {
    trials
        .iter()
        .map(|trial| trial.round + 1)
        .max()
        .unwrap_or(0)
}
