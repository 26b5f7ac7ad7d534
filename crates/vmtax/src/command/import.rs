//! `vmtax import`: traces of other tools, as a recording of our own.

use super::{doctor, import_dataset, print, recording_folder, report};
use crate::cli::ImportTracesArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_import::{Import, ImportSettings};
use vmtax_studies::{analyze, imported};

pub fn import(args: &ImportTracesArgs) -> Result<ExitCode, Fault> {
    if let Some(dataset) = &args.dataset {
        return import_dataset::import(dataset, args.host.as_deref(), &args.record.dir);
    }
    let record = &args.record;
    recording_folder::check(record)?;
    let plan = imported(&args.files)?;
    if record.dry_run {
        return print(&plan.to_toml()?).map(|()| ExitCode::SUCCESS);
    }
    let (files, guest) = (args.files.clone(), args.guest_trace.clone());
    if let Some(guest) = guest.as_ref().filter(|guest| !files.contains(guest)) {
        return Err(Fault::Usage(format!(
            "--guest-trace {} is none of the files: name it among them, too",
            guest.display()
        )));
    }
    let import = Import::open(ImportSettings {
        files,
        pid: args.pid,
        guest,
        tsc_mhz: args.tsc_mhz,
    })?;
    let writer = recording_folder::begin(record, &plan, &doctor::facts(None))?;
    let stored = writer
        .trial_files(0)
        .map_err(Fault::from)
        .and_then(|mut trial| Ok(import.store(&mut trial)?));
    if let Err(fault) = stored {
        writer.discard();
        return Err(fault);
    }
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
