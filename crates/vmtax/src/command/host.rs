//! This host and its running VMs: `vmtax doctor`, `vmtax vms`, and `vmtax undo`, which restores settings that a tuning changed.

use super::{note, print, style};
use crate::cli::{DoctorArgs, UndoArgs, VmsArgs};
use crate::fault::Fault;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::Builder;
use vmtax_guests::apt::AptError;
use vmtax_guests::kernel::UnusableKernel;
use vmtax_live::Undone;
use vmtax_model::{HostFacts, VmFacts};
use vmtax_vmm::{Vm, running};

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
        note(&format!("Warning: {error}"));
        found.unusable.push(UnusableKernel {
            path: cache.clone(),
            reason: error.to_string(),
        });
    }
    vmtax_rules::with_remedies(vmtax_host::collect(qemu, fetched, found))
}

pub fn vms(args: &VmsArgs) -> Result<ExitCode, Fault> {
    let vms = facts_of_vms(&running())?;
    if args.json {
        print(&(vmtax_report::plain_json(&vms)? + "\n"))?;
    } else {
        print(&vmtax_report::vms(&vms).terminal(style(), false))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the facts of each VM that is still running. All are queried in parallel, since a monitor that does not
/// answer takes seconds.
fn facts_of_vms(pids: &[i32]) -> Result<Vec<VmFacts>, Fault> {
    std::thread::scope(|scope| {
        let asked = pids.iter().map(|&pid| {
            Builder::new().spawn_scoped(scope, move || Vm::attach(pid).facts_with_state())
        });
        let asked = asked.collect::<io::Result<Vec<_>>>();
        let asked = asked.map_err(|e| Fault::file("starting a thread", e))?;
        let facts = asked.into_iter().map(|thread| thread.join().ok().flatten());
        let mut facts: Vec<VmFacts> = facts.flatten().collect();
        vmtax_vmm::mark_shared_names(&mut facts);
        Ok(facts)
    })
}

pub fn undo(args: &UndoArgs) -> Result<ExitCode, Fault> {
    vmtax_live::remove_stale_histograms();
    let undone = vmtax_live::undo(args.recording.as_deref());
    if undone.is_empty() {
        print("Nothing to undo: no change by `vmtax tune` is recorded for this user.\n")?;
    }
    for line in undone.iter().map(outcome) {
        print(&format!("{}\n", vmtax_report::printable(&line)))?;
    }
    let failed = undone.iter().any(|undone| undone.error.is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

/// Restores what a killed process left changed, and says which settings these were.
pub(super) fn undo_interrupted() {
    vmtax_live::remove_stale_histograms();
    for line in vmtax_live::undo_interrupted().iter().map(outcome) {
        note(&format!("left by a vmtax that was killed: {line}"));
    }
}

/// The value of a setting as people read it: of limits in JSON those that are set, "none" without any.
fn value_text(value: &str) -> String {
    let Ok(limits) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(value)
    else {
        return value.to_owned();
    };
    let is_set = |(_, limit): &(&String, &serde_json::Value)| limit.as_u64() != Some(0);
    let set = limits.iter().filter(is_set).map(|(name, limit)| {
        let limit = limit
            .as_str()
            .map_or_else(|| limit.to_string(), str::to_owned);
        format!("{name} {limit}")
    });
    let set: Vec<String> = set.collect();
    if set.is_empty() {
        "none".to_owned()
    } else {
        set.join(", ")
    }
}

/// Returns the line about a setting: restored, not restored, or gone by itself.
fn outcome(undone: &Undone) -> String {
    let (setting, value) = (&undone.setting, value_text(&undone.value));
    match &undone.error {
        None if undone.has_ended => format!(
            "not set any more: {setting} ended with the VM, its guest's boot, or the thread or group that had it"
        ),
        None => format!("restored: {setting}: {value}"),
        Some(error) => format!("not restored: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::value_text;

    #[test]
    fn limits_are_printed_as_people_read_them() {
        assert_eq!(value_text(r#"{"bps":0,"iops":0}"#), "none");
        assert_eq!(value_text("{}"), "none");
        assert_eq!(
            value_text(r#"{"bps":0,"iops":20,"group":"g"}"#),
            "group g, iops 20"
        );
        assert_eq!(value_text("max 100000"), "max 100000");
    }
}
