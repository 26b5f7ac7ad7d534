//! One stream of entries, whatever the trace was.

use crate::ring::Merge;
use crate::{Counts, Entry, Event, EventId, Formats, Input, Lost, TraceError};

/// The entries of a trace in the order of their time. Each input (a CPU's pages, a file) is assumed to be in
/// order itself: where its clock was set back ([`Counts::backwards`]), so is the stream.
pub struct Events<'f>(Source<'f>);

enum Source<'f> {
    /// The kernel's own pages: millions of events, so no call through a table.
    Pages(Merge<'f>),
    Other(Decoded<'f>),
}

/// Reader of another kind of trace, record by record.
pub(crate) trait Decoder {
    /// Reads on. What is left out is counted there.
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError>;

    /// The record of the event that was read last.
    fn record(&self) -> &[u8];
}

/// The next item of a trace.
pub(crate) enum DecoderStep {
    /// A record without an entry.
    Nothing,
    Event {
        ticks: u64,
        cpu: u32,
        id: EventId,
        pid: i32,
    },
    Lost {
        ticks: Option<u64>,
        events: Option<u64>,
    },
    /// Invalid data; `ends` where the start of the next record is unknown.
    Damaged { ends: bool },
    /// The end, with what is known only there to be lost.
    End { lost: Option<u64> },
}

/// The entries of a decoder.
struct Decoded<'f> {
    decoder: Box<dyn Decoder + 'f>,
    /// The time of the last entry; 0 before the first.
    last: u64,
    ended: bool,
    counts: Counts,
}

impl Decoded<'_> {
    fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        while !self.ended {
            let events = match self.decoder.step(&mut self.counts)? {
                DecoderStep::Nothing => continue,
                DecoderStep::Event {
                    ticks,
                    cpu,
                    id,
                    pid,
                } => {
                    self.counts.time(&mut self.last, ticks);
                    self.counts.events += 1;
                    let data = self.decoder.record();
                    return Ok(Some(Entry::Event(Event {
                        ticks,
                        cpu,
                        input: 0,
                        id,
                        pid,
                        data,
                    })));
                }
                DecoderStep::Lost { ticks, events } => {
                    self.last = self.last.max(ticks.unwrap_or(0));
                    events
                }
                DecoderStep::Damaged { ends } => {
                    self.ended = ends;
                    self.counts.damaged_pages += 1;
                    None
                }
                DecoderStep::End { lost } => {
                    self.ended = true;
                    if lost.is_none() {
                        break;
                    }
                    lost
                }
            };
            self.counts.loss(events);
            return Ok(Some(Entry::Lost(Lost {
                ticks: self.last,
                cpu: 0,
                input: 0,
                events,
            })));
        }
        Ok(None)
    }
}

impl<'f> Events<'f> {
    /// Reads raw pages.
    ///
    /// # Errors
    /// [`TraceError::Read`] when an input cannot be read.
    pub fn pages(formats: &'f Formats, inputs: Vec<Input<'f>>) -> Result<Events<'f>, TraceError> {
        Merge::new(formats, inputs).map(|merge| Events(Source::Pages(merge)))
    }

    pub(crate) fn of(decoder: impl Decoder + 'f) -> Events<'f> {
        let decoder = Box::new(decoder);
        Events(Source::Other(Decoded {
            decoder,
            last: 0,
            ended: false,
            counts: Counts::default(),
        }))
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`] when an input cannot be read further.
    #[expect(
        clippy::should_implement_trait,
        reason = "an entry borrows the buffer, which no Iterator can say"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        match &mut self.0 {
            Source::Pages(pages) => pages.next(),
            Source::Other(other) => other.next(),
        }
    }

    /// Returns the counts of events read so far, and of those left out. Events that are read ahead, at most one an
    /// input, are counted.
    pub fn counts(&self) -> &Counts {
        match &self.0 {
            Source::Pages(pages) => pages.counts(),
            Source::Other(other) => &other.counts,
        }
    }
}
