//! `vmtax undo`: settings that a tuning changed, restored.

use super::print;
use crate::cli::UndoArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_vm::Undone;

pub fn undo(args: &UndoArgs) -> Result<ExitCode, Fault> {
    vmtax_vm::remove_stale_histograms();
    let undone = vmtax_vm::undo(args.recording.as_deref());
    if undone.is_empty() {
        print("Nothing to undo: no setting is written down as changed by this user.\n")?;
    }
    for line in undone.iter().map(line) {
        print(&format!("{}\n", vmtax_report::printable(&line)))?;
    }
    let failed = undone.iter().any(|undone| undone.error.is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

/// Restores what a killed process left changed, and says which settings these were.
pub(super) fn undo_interrupted() {
    vmtax_vm::remove_stale_histograms();
    for line in vmtax_vm::undo_interrupted().iter().map(line) {
        eprintln!(
            "{}",
            vmtax_report::printable(&format!("left by a vmtax that was killed: {line}"))
        );
    }
}

fn line(
    Undone {
        setting,
        value,
        has_ended,
        error,
    }: &Undone,
) -> String {
    match error {
        None if *has_ended => {
            format!(
                "not set any more: {setting} ended with the VM, its guest's boot, or the thread or group that had it"
            )
        }
        None => format!("restored: {setting} is {value}"),
        Some(error) => format!("not restored: {error}"),
    }
}
