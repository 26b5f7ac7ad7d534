//! `vmtax import` and `vmtax profile import`: traces and profiles of other tools, as a recording of our own. And `vmtax
//! profile` with the other thing that it does with profiles that are there already.

use super::record::{begin, check_folder};
use super::study::study;
use super::{history, host, print, report, style};
use crate::cli::{DiffArgs, ImportArgs, ImportTracesArgs, ProfileArgs, ProfileCommand, RecordArgs};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_import::{Import, ImportSettings};
use vmtax_model::samples::ProfileFacts;
use vmtax_model::{Plan, ProfileSettings, VmIdentity, files};
use vmtax_profile::Imported;
use vmtax_recording::TrialFiles;
use vmtax_studies::{attached, changes, draw_difference, imported};

pub fn import(args: &ImportTracesArgs) -> Result<ExitCode, Fault> {
    if let Some(dataset) = &args.dataset {
        return history::import_dataset(dataset, args.host.as_deref(), &args.record.dir);
    }
    let record = &args.record;
    check_folder(record)?;
    let plan = imported(&args.files)?;
    if record.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    let (files, guest) = (args.files.clone(), args.guest_trace.clone());
    if let Some(guest) = guest.as_ref().filter(|guest| !files.contains(guest)) {
        return Err(Fault::Usage(format!(
            "--guest-trace {} is not one of the files: give it among them, too",
            guest.display()
        )));
    }
    let import = Import::open(ImportSettings {
        files,
        pid: args.pid,
        guest,
        tsc_mhz: args.tsc_mhz,
    })?;
    stored(record, &plan, |trial| Ok(import.store(trial)?))
}

/// Records what was imported, and shows it. Where that fails, no recording is left.
fn stored(
    record: &RecordArgs,
    plan: &Plan,
    store: impl FnOnce(&mut TrialFiles) -> Result<(), Fault>,
) -> Result<ExitCode, Fault> {
    let writer = begin(record, plan, &host::facts(None))?;
    let trial = writer.trial_files(0).map_err(Fault::from);
    if let Err(fault) = trial.and_then(|mut trial| store(&mut trial)) {
        writer.discard();
        return Err(fault);
    }
    let folder = writer.folder().to_path_buf();
    writer.finish()?;
    report::show_recording(&folder, record)
}

pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    match &args.command {
        Some(ProfileCommand::Diff(args)) => diff(args),
        Some(ProfileCommand::Import(args)) => import_profile(args),
        None => study(&args.study),
    }
}

fn diff(args: &DiffArgs) -> Result<ExitCode, Fault> {
    let svg = draw_difference(&args.before, &args.after)?;
    let shown = args.output.display();
    let what = || format!("writing {shown}: name a file with --output");
    std::fs::write(&args.output, svg).map_err(|e| Fault::file(what(), e))?;
    print(&changes(&args.before, &args.after)?.terminal(style(), false))?;
    print(&vmtax_report::printable(&format!("{shown}\n")))?;
    Ok(ExitCode::SUCCESS)
}

/// Imports a profile of another tool as a recording of vmtax.
fn import_profile(args: &ImportArgs) -> Result<ExitCode, Fault> {
    let record = &args.record;
    check_folder(record)?;
    let Imported {
        found,
        pid,
        program,
        missing,
    } = vmtax_profile::import(&args.file, args.pid, args.symbols.as_deref(), args.force)?;
    let name = args.file.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    if found.profile.total() == 0 {
        return Err(Fault::Usage(format!(
            "{name} holds no samples: give another file"
        )));
    }
    let settings = ProfileSettings {
        process: args.pid.map(|pid| VmIdentity {
            pid,
            started: None,
            name: None,
        }),
        file: Some(args.file.clone()),
        hz: found.hz,
        wall_hz: 0,
        events_ms: 0,
        stack: 0,
        symbols: args.symbols.clone(),
        ..ProfileSettings::default()
    };
    let plan = attached(settings, &name);
    if record.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    let facts = ProfileFacts {
        pid,
        program,
        file: Some(name),
        missing,
        ..ProfileFacts::default()
    };
    stored(record, &plan, |trial| {
        trial.store(files::OBSERVED, &facts)?;
        Ok(trial.store(files::ON_CPU, &found)?)
    })
}
