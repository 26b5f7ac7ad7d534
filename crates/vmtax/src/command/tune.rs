//! `vmtax tune`: a diagnosis, what it proposes, tried on the running VM; `vmtax undo`: restored.

use super::progress::Display;
use super::record::{Recorded, record};
use super::{doctor, print, recording_folder, report};
use crate::cli::{RecordArgs, StudyArgs, UndoArgs};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_studies::{TuneOptions, analyze, diagnosed};
use vmtax_vm::Undone;

pub fn tune(args: &StudyArgs<TuneOptions>) -> Result<ExitCode, Fault> {
    let (options, output) = (&args.options, &args.record);
    recording_folder::check(output)?;
    let host = doctor::facts(None);
    let display = Display::new(1, output.verbosity());
    let diagnosis = options.diagnosis()?;
    display.note("diagnosing the VM for 10 s");
    // The diagnosis stands among the others; --output is the tuning's.
    let beside = RecordArgs { output: None, ..output.clone() };
    let Recorded { folder, .. } = record(&diagnosis, host.clone(), &beside, &display, None)?;
    let plan = options.plan(&diagnosed(&vmtax_recording::open(&folder)?)?)?;
    if output.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    let Recorded { folder, .. } = record(&plan, host, output, &display, None)?;
    let recording = vmtax_recording::open(&folder)?;
    report::show(&mut analyze(&recording)?, &folder, output.json, output.details, false)?;
    Ok(ExitCode::SUCCESS)
}

pub fn undo(args: &UndoArgs) -> Result<ExitCode, Fault> {
    let undone = vmtax_vm::undo(args.recording.as_deref());
    if undone.is_empty() {
        print("Nothing to undo: vmtax has left no setting changed.\n")?;
    }
    for line in undone.iter().map(line) {
        print(&format!("{}\n", vmtax_report::printable(&line)))?;
    }
    let failed = undone.iter().any(|undone| undone.error.is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

/// Says what a killed process had left changed and this one has restored.
pub(super) fn undo_interrupted() {
    for line in vmtax_vm::undo_interrupted().iter().map(line) {
        eprintln!("{}", vmtax_report::printable(&format!("left by a vmtax that was killed: {line}")));
    }
}

fn line(Undone { setting, value, error }: &Undone) -> String {
    match error {
        None => format!("restored: {setting} is {value}"),
        Some(error) => format!("not restored: {error}"),
    }
}
