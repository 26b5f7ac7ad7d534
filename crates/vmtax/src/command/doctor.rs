use super::{print, style};
use crate::cli::DoctorArgs;
use crate::fault::Fault;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_guests::apt::AptError;
use vmtax_guests::kernel::UnusableKernel;
use vmtax_model::HostFacts;

pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Fault> {
    let fetched = vmtax_guests::kernel::cache_dir()
        .map(|cache| vmtax_guests::qemu::find(&cache))
        .unwrap_or_default();
    let fetched: Vec<PathBuf> = fetched.into_iter().map(|qemu| qemu.path).collect();
    let facts = collect(args.qemu.as_deref(), &fetched);
    if args.json {
        print(&vmtax_report::plain_json(&facts)?)?;
    } else {
        print(&vmtax_report::doctor(&facts).terminal(style(), false))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The facts that every command chooses by. Fetched QEMUs are used when they are named, so the others are not asked.
pub fn facts(qemu: Option<&Path>) -> HostFacts {
    collect(qemu, &[])
}

fn collect(qemu: Option<&Path>, fetched: &[PathBuf]) -> HostFacts {
    let cache = vmtax_guests::kernel::cache_dir();
    let mut found = vmtax_guests::kernel::find(cache.as_deref().ok());
    if let Err(error @ AptError::UntrustedCache { cache, .. }) = &cache {
        eprintln!("Warning: {}", vmtax_report::printable(&error.to_string()));
        found.unusable.push(UnusableKernel {
            path: cache.clone(),
            reason: error.to_string(),
        });
    }
    vmtax_rules::with_remedies(vmtax_host::collect(qemu, fetched, found))
}
