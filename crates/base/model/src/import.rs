//! Traces of a VM that other tools recorded: the files, as a plan names them, and what they say.

use crate::{Missing, VmExits, VmLayers};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Traces of one VM that other tools recorded. It is the plan's `[import]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportedFiles {
    /// Paths of the traces, 1 to 64.
    pub files: Vec<PathBuf>,
}

/// `import.json`: what was imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Files that were imported.
    pub files: Vec<ImportedFile>,
    /// Methods by which the files' clocks were joined; empty for one file.
    pub clocks: Vec<JoinedClock>,
    /// Data that the files do not hold.
    pub missing: Vec<Missing>,
}

/// A file that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedFile {
    /// As it was named.
    pub file: String,
    /// `trace.dat`, `perf.data`, `ftrace text`, `QEMU log`, `QEMU simple trace`.
    pub format: String,
    /// Whose events it has.
    pub side: TraceSide,
    /// The clock of its events, as the kernel's trace clocks are called; empty where the file does not say.
    pub clock: String,
    /// Events in it that were read.
    pub events: u64,
    /// Events that it says are missing.
    pub lost: u64,
    /// Records and lines that are no known event.
    pub unknown: u64,
}

/// Whose events a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceSide {
    /// The host's kernel.
    Host,
    /// The guest's kernel.
    Guest,
    /// QEMU: its own trace events.
    Qemu,
    /// A kernel of which nothing says whether it is a host's or a guest's.
    Unknown,
}

/// Join of one file's clock with the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedClock {
    /// Name of the file.
    pub file: String,
    /// Method of joining, for people.
    pub method: String,
    /// By how much its times may be wrong on the host's clock, ns; null where the files do not say.
    pub bound_ns: Option<f64>,
}

/// The findings of imported traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportFindings {
    /// Facts of the import.
    #[serde(flatten)]
    pub facts: ImportFacts,
    /// The VM's exits; null where no file has events of KVM.
    pub exits: Option<VmExits>,
    /// The VM's requests; null where no file has any.
    pub layers: Option<VmLayers>,
}
