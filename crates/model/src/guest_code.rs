//! What a guest's processors execute, as seen from outside.

use crate::SampleShare;
use serde::{Deserialize, Serialize};

/// A place in a guest's code where its processors were found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodePlace {
    /// The guest's address of the next instruction.
    pub address: u64,
    /// The privilege level: 0 is the guest's kernel, 3 its programs.
    pub level: u8,
    /// Of all looks.
    pub share: SampleShare,
    /// The instruction that was done last; empty where the code could not be read.
    pub done: String,
    /// The one that comes next; empty as well.
    pub next: String,
}

/// Something that a guest's code does at a cost and need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostlyCode {
    /// Divisions by 64 bits.
    Division,
    /// A lock with the interrupt flag saved, cleared and restored around it.
    LockSavesInterrupts,
    /// A few bytes handed over by several calls of one small function.
    SmallCopies,
}

/// A known cost that was seen in a guest's code, and its cure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodeFinding {
    /// Which.
    pub cost: CostlyCode,
    /// The looks that found a processor at it, of all.
    pub share: SampleShare,
    /// Where most of them did.
    pub address: u64,
    /// What was seen, in a sentence.
    pub seen: String,
    /// What to do about it, in a sentence.
    pub advice: String,
    /// What others measured, with the source.
    pub published: String,
}

/// Where a guest's processors were, whenever QEMU's monitor was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCode {
    /// Looks at a processor.
    pub looks: u64,
    /// Of those, at one that was halted.
    pub halted: SampleShare,
    /// What a look took QEMU at the median, ns: the processor was stopped in it for a part of that.
    pub look_ns: f64,
    /// Where the others were, the most frequent first; the first 100.
    pub places: Vec<CodePlace>,
    /// Known costs, the most frequent first.
    pub findings: Vec<CodeFinding>,
}
