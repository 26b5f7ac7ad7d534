//! One stream of entries, whatever the trace was.

use crate::merge::Merge;
use crate::perf::Samples;
use crate::qemu::{Log, Simple};
use crate::{Counts, Entry, Formats, Input, TraceError};

/// The entries of a trace in the order of their time. Each input (a processor's pages, a file) is believed to be in
/// order itself: where its clock was set back ([`Counts::backwards`]), so is the stream.
pub struct Events<'f>(pub(crate) Source<'f>);

pub(crate) enum Source<'f> {
    Pages(Merge<'f>),
    Simple(Simple<'f>),
    Log(Log<'f>),
    Perf(Box<Samples<'f>>),
}

impl<'f> Events<'f> {
    /// Reads raw pages.
    ///
    /// # Errors
    /// [`TraceError::Read`] when an input cannot be read.
    pub fn pages(formats: &'f Formats, inputs: Vec<Input<'f>>) -> Result<Events<'f>, TraceError> {
        Merge::new(formats, inputs).map(|merge| Events(Source::Pages(merge)))
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`] when an input cannot be read further.
    #[expect(clippy::should_implement_trait, reason = "an entry borrows the buffer, which no Iterator can say")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        match &mut self.0 {
            Source::Pages(pages) => pages.next(),
            Source::Simple(simple) => simple.next(),
            Source::Log(log) => log.next(),
            Source::Perf(samples) => samples.next(),
        }
    }

    /// What came out so far, and what was left out. Events that are read ahead, at most one an input, are counted.
    pub fn counts(&self) -> &Counts {
        match &self.0 {
            Source::Pages(pages) => pages.counts(),
            Source::Simple(simple) => simple.counts(),
            Source::Log(log) => log.counts(),
            Source::Perf(samples) => samples.counts(),
        }
    }
}
