//! `vmtax profile import`: what another tool recorded, into a recording of our own.

use super::settings::attached;
use crate::cli::ImportArgs;
use crate::command::doctor;
use crate::command::folder::Folder;
use crate::command::report::show;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::samples::ProfileFacts;
use vmtax_model::{ProfileSettings, files};
use vmtax_profile::{Imported, import as read};
use vmtax_recording::TrialFiles;

pub fn import(args: &ImportArgs) -> Result<ExitCode, Fault> {
    Folder::check(args.out.as_deref())?;
    let Imported { found, pid, program, missing } = read(&args.file, args.pid, args.symbols.as_deref())?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if found.profile.total() == 0 {
        return Err(Fault::Usage(format!("{name} holds no samples: give another file")));
    }
    let settings = ProfileSettings {
        pid: args.pid,
        file: Some(args.file.clone()),
        time_ms: None,
        hz: found.hz,
        wall_hz: 0,
        events_ms: 0,
        stack: 0,
        symbols: args.symbols.clone(),
    };
    let plan = attached(settings, &name);
    let writer = Folder { runs: &args.runs, named: args.out.as_deref() }.begin(&plan, &doctor::facts(None))?;
    let mut trial = writer.trial_files(0)?;
    put(&mut trial, files::OBSERVED, &ProfileFacts { pid, program, file: Some(name), missing })?;
    put(&mut trial, files::ON_CPU, &found)?;
    let folder = writer.folder().to_path_buf();
    writer.finish()?;
    show(&vmtax_recording::open(&folder)?, args.json, false, None)
}

fn put(trial: &mut TrialFiles, name: &str, value: &impl serde::Serialize) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(value).map_err(|e| Fault::file(format!("writing {name}"), e.into()))?;
    Ok(trial.append(name, &bytes)?)
}
