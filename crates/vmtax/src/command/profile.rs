//! `vmtax profile`, and what it does with profiles that are there already.

use super::study::study;
use super::{doctor, print, recording_folder, report, style};
use crate::cli::{DiffArgs, ImportArgs, ProfileArgs, ProfileCommand};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::samples::ProfileFacts;
use vmtax_model::{ProfileSettings, files};
use vmtax_profile::Imported;
use vmtax_recording::TrialFiles;
use vmtax_studies::{analyze, attached, changes, draw_difference};

pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    match &args.command {
        Some(ProfileCommand::Diff(args)) => diff(args),
        Some(ProfileCommand::Import(args)) => import(args),
        None => study(&args.study),
    }
}

fn diff(args: &DiffArgs) -> Result<ExitCode, Fault> {
    let svg = draw_difference(&args.before, &args.after)?;
    let failed = |e| {
        Fault::file(
            format!(
                "writing {}: name a file with --output",
                args.output.display()
            ),
            e,
        )
    };
    std::fs::write(&args.output, svg).map_err(failed)?;
    print(&changes(&args.before, &args.after)?.terminal(style(), false))?;
    print(&vmtax_report::printable(&format!(
        "{}\n",
        args.output.display()
    )))?;
    Ok(ExitCode::SUCCESS)
}

/// Imports a profile of another tool as a recording of vmtax.
fn import(args: &ImportArgs) -> Result<ExitCode, Fault> {
    let record = &args.record;
    recording_folder::check(record)?;
    let Imported {
        found,
        pid,
        program,
        missing,
    } = vmtax_profile::import(&args.file, args.pid, args.symbols.as_deref(), args.force)?;
    let name = args
        .file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if found.profile.total() == 0 {
        return Err(Fault::Usage(format!(
            "{name} holds no samples: give another file"
        )));
    }
    let settings = ProfileSettings {
        pid: args.pid,
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
    let writer = recording_folder::begin(record, &plan, &doctor::facts(None))?;
    let mut trial = writer.trial_files(0)?;
    put(
        &mut trial,
        files::OBSERVED,
        &ProfileFacts {
            pid,
            program,
            file: Some(name),
            missing,
            ..ProfileFacts::default()
        },
    )?;
    put(&mut trial, files::ON_CPU, &found)?;
    let folder = writer.folder().to_path_buf();
    writer.finish()?;
    let recording = vmtax_recording::open(&folder)?;
    report::show(
        &mut analyze(&recording)?,
        &folder,
        record.json,
        record.details,
        false,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn put(trial: &mut TrialFiles, name: &str, value: &impl serde::Serialize) -> Result<(), Fault> {
    let bytes =
        serde_json::to_vec(value).map_err(|e| Fault::file(format!("writing {name}"), e.into()))?;
    Ok(trial.append(name, &bytes)?)
}
