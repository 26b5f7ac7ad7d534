//! The contents of the file head, common to versions 6 and 7.

use super::compress::Codec;
use super::options::Options;
use crate::{Formats, PageLayout, TracedThreads};

/// The pages of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The instance of tracefs; empty for the top one.
    pub instance: String,
    /// Number of the CPU.
    pub cpu: u32,
    /// Where its data begin in the file, and how long they are there, bytes.
    pub(super) place: (u64, u64),
    pub(super) layout: PageLayout,
    pub(super) codec: Option<Codec>,
}

/// The contents of a file's head.
pub(super) struct Head {
    pub options: Options,
    pub formats: Formats,
    pub threads: TracedThreads,
    pub parts: Vec<Part>,
}
