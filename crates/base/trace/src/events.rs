//! One stream of entries, whatever the trace was.

use crate::ring::Stream;
use crate::{Counts, Entry, Event, Formats, Input, Lost, TraceError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    /// The event of [`Decoder::record`].
    Event { ticks: u64, cpu: u32 },
    Lost {
        ticks: Option<u64>,
        /// CPU whose events are missing; `None` where the trace does not say.
        cpu: Option<u32>,
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
            let (cpu, events) = match self.decoder.step(&mut self.counts)? {
                DecoderStep::Nothing => continue,
                DecoderStep::Event { ticks, cpu } => {
                    self.counts.time(&mut self.last, ticks);
                    self.counts.events += 1;
                    let event = Event::of_record(ticks, cpu, 0, self.decoder.record());
                    return Ok(Some(Entry::Event(event)));
                }
                DecoderStep::Lost { ticks, cpu, events } => {
                    self.last = self.last.max(ticks.unwrap_or(0));
                    (cpu, events)
                }
                DecoderStep::Damaged { ends } => {
                    self.ended = ends;
                    self.counts.damaged_pages += 1;
                    (None, None)
                }
                DecoderStep::End { lost } => {
                    self.ended = true;
                    if lost.is_none() {
                        break;
                    }
                    (None, lost)
                }
            };
            self.counts.loss(events);
            return Ok(Some(Entry::Lost(Lost {
                ticks: self.last,
                cpu,
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

    pub(crate) fn decoded(decoder: impl Decoder + 'f) -> Events<'f> {
        Events(Source::Other(Decoded {
            decoder: Box::new(decoder),
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
            Source::Pages(pages) => &pages.counts,
            Source::Other(other) => &other.counts,
        }
    }
}

/// The entries of all inputs in the order of their time; those of one time in the order of the inputs.
struct Merge<'f> {
    formats: &'f Formats,
    streams: Vec<Stream<'f>>,
    /// All streams that have an entry, but the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream of the entry given last.
    current: Option<usize>,
    counts: Counts,
}

impl<'f> Merge<'f> {
    fn new(formats: &'f Formats, inputs: Vec<Input<'f>>) -> Result<Merge<'f>, TraceError> {
        let streams: Vec<_> = (0..)
            .zip(inputs)
            .map(|(n, input)| Stream::new(input, n))
            .collect();
        let waiting = BinaryHeap::with_capacity(streams.len());
        let mut events = Merge {
            formats,
            streams,
            waiting,
            current: None,
            counts: Counts::default(),
        };
        for (n, stream) in events.streams.iter_mut().enumerate() {
            if stream.advance(formats, &mut events.counts)? {
                events.waiting.push(Reverse((stream.ticks(), n)));
            }
        }
        Ok(events)
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        let mut next = None;
        if let Some(n) = self.current.take() {
            let stream = &mut self.streams[n];
            if stream.advance(self.formats, &mut self.counts)? {
                let mine = (stream.ticks(), n);
                // Events come in bursts: mostly the same stream goes on, and the heap stays as it is.
                match self.waiting.peek_mut() {
                    Some(mut first) if first.0 < mine => {
                        next = Some(std::mem::replace(&mut first.0, mine).1)
                    }
                    _ => next = Some(n),
                }
            }
        }
        let next = next.or_else(|| self.waiting.pop().map(|first| first.0.1));
        self.current = next;
        Ok(next.map(|n| self.streams[n].entry()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Collected, Page, format, layout, read, record};
    use crate::{EventId, LEAP};
    use Collected::{Lost, Number};
    use proptest::prelude::*;
    use std::io::{self, Read};

    #[test]
    fn inputs_are_merged_by_time() {
        let a = Page::new(10)
            .number(0, 1)
            .number(10, 2)
            .number(10, 3)
            .bytes();
        let b = Page::new(15).number(0, 4).number(10, 5).bytes();
        let c = Page::new(20).number(0, 6).missed(Some(3)).bytes();
        let (got, counts) = read(&[&a, &b, &[], &c]);
        let expected = [
            Number(10, 1),
            Number(15, 4),
            Number(20, 2),
            Lost(20, Some(3)),
            Number(20, 6),
            Number(25, 5),
            Number(30, 3),
        ];
        assert_eq!(got, expected);
        assert_eq!((counts.events, counts.lost), (6, 3));
    }

    #[test]
    fn an_event_tells_its_cpu_thread_and_input() {
        let formats = crate::testing::formats();
        let page = Page::new(5).number(0, 1).bytes();
        let input = |cpu| Input {
            path: "test".into(),
            cpu,
            layout: layout(),
            pages: Box::new(page.as_slice()),
        };
        let mut events = Events::pages(&formats, vec![input(3), input(9)]).unwrap();
        let mut seen = Vec::new();
        while let Some(Entry::Event(event)) = events.next().unwrap() {
            seen.push((event.input, event.cpu, event.pid, event.id));
        }
        assert_eq!(seen, [(0, 3, 42, EventId(7)), (1, 9, 42, EventId(7))]);
    }

    #[test]
    fn unknown_and_short_events_are_left_out_and_counted() {
        let mut unknown = record(1);
        unknown[0] = 8;
        let mut far = record(1);
        far[1] = 0xff;
        let page = Page::new(0)
            .event(0, &unknown)
            .event(1, &far)
            .event(1, &record(1)[..12])
            .event(1, &[])
            .number(1, 5);
        let (got, counts) = read(&[&page.bytes()]);
        assert_eq!(got, [Number(4, 5)]);
        assert_eq!(
            counts,
            Counts {
                events: 1,
                unknown: 3,
                short: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn a_clock_that_jumps_is_counted() {
        let mut pages = Page::new(1000).number(0, 1).bytes();
        pages.extend(Page::new(900).number(0, 2).bytes());
        pages.extend(Page::new(900 + LEAP - 1).number(0, 3).number(5, 4).bytes());
        pages.extend(Page::new(904 + 2 * LEAP).number(0, 5).bytes());
        let (got, counts) = read(&[&pages]);
        assert_eq!(got.len(), 5);
        assert_eq!((counts.backwards, counts.leaps), (1, 1));
        // A trace may begin at any time.
        assert_eq!(read(&[&Page::new(1 << 60).number(0, 1).bytes()]).1.leaps, 0);
    }

    #[test]
    fn the_last_array_of_ftraces_own_events_may_be_cut() {
        let stack = [
            "field:int size;\toffset:8;\tsize:4;\tsigned:1;",
            "field:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;",
        ];
        let mut formats = Formats::default();
        formats
            .add("ftrace", &format("kernel_stack", 4, &stack))
            .unwrap();
        formats
            .add("other", &format("kernel_stack", 5, &stack))
            .unwrap();
        let mut event = record(0);
        event[0] = 4;
        let mut other = event.clone();
        other[0] = 5;
        let page = Page::new(0).event(0, &event).event(0, &other).bytes();
        let input = Input {
            path: "test".into(),
            cpu: 0,
            layout: layout(),
            pages: Box::new(page.as_slice()),
        };
        let mut events = Events::pages(&formats, vec![input]).unwrap();
        while events.next().unwrap().is_some() {}
        assert_eq!((events.counts().events, events.counts().short), (1, 1));
    }

    /// Gives a few bytes at a time, is interrupted, and breaks in the end. What came before that is given.
    struct Awkward(Vec<u8>, usize);

    impl Read for Awkward {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1 % 3 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if self.0.is_empty() {
                return Err(io::Error::other("gone"));
            }
            let n = 7.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }

    #[test]
    fn a_reader_that_fails_is_an_error_that_names_the_file() {
        let formats = crate::testing::formats();
        let pages: Vec<u8> = (0..17)
            .flat_map(|n| Page::new(n).number(0, n).bytes())
            .collect();
        let input = Input {
            path: "x.cpu0.raw".into(),
            cpu: 0,
            layout: layout(),
            pages: Box::new(Awkward(pages, 0)),
        };
        let mut events = Events::pages(&formats, vec![input]).unwrap();
        for n in 0..17 {
            let Some(Entry::Event(event)) = events.next().unwrap() else {
                panic!("no event")
            };
            assert_eq!(event.ticks, n);
        }
        let error = events.next().unwrap_err();
        assert!(
            matches!(error, TraceError::Read { .. })
                && error
                    .to_string()
                    .starts_with("failed to read x.cpu0.raw: gone"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_inputs_come_in_order_and_none_is_lost(inputs in proptest::collection::vec(proptest::collection::vec(0..50u32, 0..20), 0..6)) {
            let mut expected = Vec::new();
            let pages: Vec<Vec<u8>> = inputs.iter().enumerate().map(|(i, gaps)| {
                let mut now = 0;
                gaps.chunks(3).flat_map(|gaps| {
                    let first = now;
                    gaps.iter().fold(Page::new(first), |page, gap| {
                        now += u64::from(*gap);
                        expected.push((now, i as u64));
                        page.number(*gap, i as u64)
                    }).bytes()
                }).collect()
            }).collect();
            expected.sort_unstable();
            let (got, _) = read(&pages.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let expected: Vec<_> = expected.into_iter().map(|(t, i)| Number(t, i)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
