//! `vmtax vms`: the VMs that run on this host.

use super::{print, style};
use crate::cli::VmsArgs;
use crate::fault::Fault;
use std::io;
use std::process::ExitCode;
use std::thread::Builder;
use vmtax_model::VmFacts;
use vmtax_vm::{Vm, running};

pub fn vms(args: &VmsArgs) -> Result<ExitCode, Fault> {
    let vms = facts(&running())?;
    if args.json {
        print(&(vmtax_report::plain_json(&vms)? + "\n"))?;
    } else {
        print(&vmtax_report::vms(&vms).terminal(style(), false))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the facts of each VM that is still running. All are queried in parallel, since a monitor that does not
/// answer takes seconds.
fn facts(pids: &[i32]) -> Result<Vec<VmFacts>, Fault> {
    std::thread::scope(|scope| {
        let ask = |pid: &i32| {
            let pid = *pid;
            Builder::new().spawn_scoped(scope, move || Vm::attach(pid).facts_with_state())
        };
        let asked: Vec<_> = pids
            .iter()
            .map(ask)
            .collect::<io::Result<_>>()
            .map_err(|e| Fault::file("starting a thread", e))?;
        Ok(asked
            .into_iter()
            .filter_map(|thread| thread.join().ok().flatten())
            .collect())
    })
}
