//! The folder of a recording.

use crate::cli::RecordArgs;
use crate::fault::Fault;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use vmtax_model::{HostFacts, Plan};
use vmtax_recording::{RecordingsFolder, Writer, check_place};

/// Checks, before time is spent, that a recording can be written to its directory. A directory given by name has to be
/// new or empty: it is created, and removed again.
pub(super) fn check(args: &RecordArgs) -> Result<(), Fault> {
    check_place(args.output.as_ref().unwrap_or(&args.dir))?;
    let Some(path) = &args.output else {
        return Ok(());
    };
    let new: Vec<&Path> = path.ancestors().take_while(|part| !part.exists()).collect();
    let made = fs::create_dir_all(path);
    let made = made.map_err(|e| {
        Fault::file(
            format!(
                "making the folder {}: name one with --output",
                path.display()
            ),
            e,
        )
    });
    let usable = made.and_then(|()| {
        match fs::read_dir(path).is_ok_and(|mut files| files.next().is_some()) {
            true => Err(Fault::Usage(format!(
                "{} holds files already: name a new folder with --output",
                path.display()
            ))),
            false => {
                let refused = |e: Errno| {
                    Fault::file(
                        format!("{}: name another folder with --output", path.display()),
                        e.into(),
                    )
                };
                access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(refused)
            }
        }
    });
    new.iter().for_each(|part| drop(fs::remove_dir(part)));
    usable
}

/// Clears up after killed processes, and begins a recording: in the named folder, or in a new one among the others.
pub(super) fn begin(args: &RecordArgs, plan: &Plan, host: &HostFacts) -> Result<Writer, Fault> {
    let command: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    vmtax_observe::remove_stale_traces();
    vmtax_vm::remove_stale_groups();
    super::undo::undo_interrupted();
    if let Some(folder) = &args.output {
        return Ok(Writer::create_at(folder, plan, host, &command, version)?);
    }
    let folder = RecordingsFolder::create(&args.dir)?;
    folder.sweep(vmtax_vm::remove_scratch);
    Ok(Writer::create(&folder, plan, host, &command, version)?)
}
