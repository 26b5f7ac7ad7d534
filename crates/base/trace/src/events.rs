//! One stream of entries, whatever the trace was.

use crate::ring::Merge;
use crate::{Counts, Entry, Formats, Input, TraceError};

/// The entries of a trace in the order of their time. Each input (a processor's pages, a file) is believed to be in
/// order itself: where its clock was set back ([`Counts::backwards`]), so is the stream.
pub struct Events<'f>(Source<'f>);

enum Source<'f> {
    /// The kernel's own pages: millions of events, so no call through a table.
    Pages(Merge<'f>),
    Other(Box<dyn Entries + 'f>),
}

/// The entries of another kind of trace.
pub(crate) trait Entries {
    /// The next entry; `None` at the end.
    fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError>;

    fn counts(&self) -> &Counts;
}

impl<'f> Events<'f> {
    /// Reads raw pages.
    ///
    /// # Errors
    /// [`TraceError::Read`] when an input cannot be read.
    pub fn pages(formats: &'f Formats, inputs: Vec<Input<'f>>) -> Result<Events<'f>, TraceError> {
        Merge::new(formats, inputs).map(|merge| Events(Source::Pages(merge)))
    }

    pub(crate) fn of(other: impl Entries + 'f) -> Events<'f> {
        Events(Source::Other(Box::new(other)))
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
            Source::Other(other) => other.next(),
        }
    }

    /// What came out so far, and what was left out. Events that are read ahead, at most one an input, are counted.
    pub fn counts(&self) -> &Counts {
        match &self.0 {
            Source::Pages(pages) => pages.counts(),
            Source::Other(other) => other.counts(),
        }
    }
}
