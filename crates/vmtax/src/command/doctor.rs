use super::{print, style};
use crate::cli::DoctorArgs;
use crate::fault::Fault;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::HostFacts;

pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Fault> {
    let facts = facts(args.qemu.as_deref());
    if args.json {
        print(&vmtax_report::doctor_json(&facts)?)?;
    } else {
        print(&vmtax_report::doctor_terminal(&facts, style()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The facts that every command chooses by.
pub fn facts(qemu: Option<&Path>) -> HostFacts {
    let found = vmtax_kernel::cache_dir().map(|cache| vmtax_kernel::find(&cache)).unwrap_or_default();
    vmtax_host::collect(qemu, found.kernels, &found.unusable)
}
