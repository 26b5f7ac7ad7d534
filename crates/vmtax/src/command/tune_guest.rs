//! The parts of a tuning of a guest, until nothing is left to measure.

use super::progress::Display;
use crate::fault::Fault;
use vmtax_model::{HostFacts, Plan};
use vmtax_recording::{Writer, open};
use vmtax_runner::{BeforePart, Ended, Watch, find_requirements};
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
    loop {
        let trials = open(&folder)?.trials;
        let Some(step) = vmtax_analysis::next_guest_step(&plan, &trials) else { return Ok(Ended::Complete) };
        if let Some(line) = vmtax_report::tune_guest::begins(&plan, &trials, &step) {
            display.note(&line);
        }
        let before = BeforePart { rounds: rounds(&trials), trials: trials.len() as u32 };
        plan.begin_part(step.clone(), before.rounds);
        writer.note_parts(&plan)?;
        let Some(part) = plan.part() else { return Ok(Ended::Complete) };
        part.check()?;
        let part = CheckedPlan::new(part)?;
        let means = find_requirements(&part, host, &vmtax_guests::kernel::cache_dir, &mut |line| {
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
                let Ok(recording) = open(&folder) else { return true };
                vmtax_analysis::next_guest_step(&plan, &recording.trials).as_ref() == Some(&step)
            },
            before: Some(before),
        };
        let ended = vmtax_runner::run(&part, means.as_ref(), writer, interrupt, streams, &mut watch)?;
        plan.end_part(rounds(&open(&folder)?.trials) - before.rounds);
        writer.note_parts(&plan)?;
        if matches!(ended, Ended::Interrupted) {
            return Ok(Ended::Interrupted);
        }
    }
}

/// How many rounds were begun.
fn rounds(trials: &[vmtax_model::TrialRecord]) -> u32 {
    trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0)
}
