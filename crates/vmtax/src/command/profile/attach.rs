//! `vmtax profile --pid`: a process that runs already, into a recording.

use crate::cli::RecordArgs;
use crate::command::folder::Folder;
use crate::command::report::show;
use crate::command::{doctor, print};
use crate::fault::Fault;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vmtax_model::Plan;

/// Carries out a plan that observes a process, and shows what it says.
pub fn attach(plan: &Plan, args: &RecordArgs, out: Option<&Path>) -> Result<ExitCode, Fault> {
    if args.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some((settings, pid)) = plan.profile().and_then(|settings| Some((settings, settings.pid?))) else {
        let what = "the plan is of a file of another tool: give that to `vmtax profile import`";
        return Err(Fault::Usage(what.to_owned()));
    };
    Folder::check(out)?;
    vmtax_observe::may_observe(pid)?;
    // Before Ctrl-C ends the profile: there is none yet.
    let host = doctor::facts(None);
    let stopped = stopped()?;
    vmtax_observe::sweep();
    let writer = Folder { runs: &args.runs, named: out }.begin(plan, &host)?;
    let folder = writer.folder().to_path_buf();
    let profiled = writer.trial_files(0).map_err(Fault::from);
    let profiled = profiled.and_then(|files| Ok(vmtax_runner::profile(pid, settings, files, &stopped)?));
    if let Err(fault) = profiled {
        writer.discard();
        return Err(fault);
    }
    writer.finish()?;
    show(&vmtax_recording::open(&folder)?, args.json, false, None)
}

/// Becomes true with Ctrl-C and its like: what was recorded until then is shown.
fn stopped() -> Result<Arc<AtomicBool>, Fault> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).map_err(|e| Fault::file("catching signals", e))?;
    }
    Ok(stopped)
}
