//! `vmtax profile`: from its command line to a recording, and from a recording to pictures and a table.

mod attach;
mod beside;
mod diff;
mod import;
mod settings;
mod workload;

pub(super) use attach::attach;
pub(super) use beside::beside;

use crate::cli::{ProfileArgs, ProfileCommand};
use crate::fault::Fault;
use settings::{attached, settings};
use std::process::ExitCode;
use vmtax_model::ProfileSettings;
use vmtax_vm::Vm;

/// For how long a process is profiled where nobody says, s.
const USUAL_S: f64 = 10.0;

pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    match (&args.command, args.pid) {
        (Some(ProfileCommand::Diff(args)), _) => diff::diff(args),
        (Some(ProfileCommand::Import(args)), _) => import::import(args),
        (None, Some(pid)) => {
            let settings = settings(args, Some(args.seconds.unwrap_or(USUAL_S)))?;
            let plan =
                attached(ProfileSettings { pid: Some(pid), ..settings }, &format!("{}-{pid}", Vm::program_of(pid)));
            attach(&plan, &args.common.record, args.out.as_deref())
        }
        (None, None) if !args.workload.is_empty() => workload::of_workload(args),
        (None, None) => Err(Fault::Usage(
            "no process to look at: name it with --pid (`pgrep -a qemu-system` lists QEMUs with their numbers), or a \
             workload to run in a guest, as in `vmtax profile -- seqread`"
                .to_owned(),
        )),
    }
}
