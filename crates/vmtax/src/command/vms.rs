//! `vmtax vms`: the VMs that run on this host.

use super::{print, style};
use crate::cli::VmsArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::VmFacts;
use vmtax_vm::{Vm, running};

pub fn vms(args: &VmsArgs) -> Result<ExitCode, Fault> {
    // One that ended meanwhile has no facts.
    let vms: Vec<VmFacts> = running().into_iter().filter_map(|pid| Vm::attach(pid).facts()).collect();
    if args.json {
        print(&(vmtax_report::plain_json(&vms)? + "\n"))?;
    } else {
        print(&vmtax_report::vms(&vms).terminal(style(), false))?;
    }
    Ok(ExitCode::SUCCESS)
}
