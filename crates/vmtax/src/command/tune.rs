//! `vmtax tune`: a diagnosis, what it proposes, tried on the running VM; or a guest that is booted for it.

use super::interrupt::interrupt;
use super::progress::Display;
use super::record::{Recorded, record};
use super::study::study;
use super::{doctor, print, recording_folder, report};
use crate::cli::{RecordArgs, StudyArgs};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_studies::{TuneOptions, analyze, diagnosed};

pub fn tune(args: &StudyArgs<TuneOptions>) -> Result<ExitCode, Fault> {
    let (options, output) = (&args.options, &args.record);
    let Some(diagnosis) = options.diagnosis()? else {
        return study(args);
    };
    recording_folder::check(output)?;
    let host = doctor::facts(None);
    let display = Display::new(1, output.verbosity());
    display.note("diagnosing the VM for 10 s: what is tried depends on it");
    // The diagnosis stands among the others; --output is the tuning's.
    let beside = RecordArgs {
        output: None,
        ..output.clone()
    };
    let Recorded { folder, .. } = record(&diagnosis, host.clone(), &beside, &display, None)?;
    if interrupt()?.raised() {
        return Err(Fault::Interrupted { folder });
    }
    let plan = options.plan_of(&diagnosed(&vmtax_recording::open(&folder)?)?)?;
    if output.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    let Recorded { folder, .. } = record(&plan, host, output, &display, None)?;
    let recording = vmtax_recording::open(&folder)?;
    report::show(
        &mut analyze(&recording)?,
        &folder,
        output.json,
        output.details,
        false,
    )?;
    Ok(ExitCode::SUCCESS)
}
