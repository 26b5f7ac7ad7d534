//! History of measurements: figures and facts of every run in `ledger.sqlite` beside the recordings. The recordings
//! stay the truth: the database is rebuilt from them, and in addition keeps the figures of runs whose directories were
//! deleted.
//!
//! ```text
//! run     one a run: directory, when, the plan's name, the command, CPUs
//! fact    of a run's setup: host, kernels, QEMU, vmtax; by machine and variant, both empty for the host's own; of a
//!         tuning the changes that it kept, of a running VM's tuning the VM
//! figure  median, interval and rounds of a metric on a machine, in a variant, at a step, with the workload's settings
//! ```

mod connect;
mod dataset;
mod entry;
mod ledger;
mod open;
mod read;
mod repair;
mod time_limit;
mod tunings;
mod write;

pub use dataset::ImportedRuns;
pub use ledger::{FILE, Ledger, LedgerError};

use std::path::Path;
use vmtax_recording::RecordingsFolder;

/// Puts a recording that was just finished into the ledger of a folder of recordings. Returns what whoever made it should know.
///
/// # Errors
/// [`LedgerError`], saying how to add it later; nothing is lost by it.
pub fn add(runs: &RecordingsFolder, recording: &Path) -> Result<Vec<String>, LedgerError> {
    let mut ledger = Ledger::open(runs)?;
    ledger.add(&vmtax_recording::open(recording)?)?;
    Ok(ledger.notes)
}
