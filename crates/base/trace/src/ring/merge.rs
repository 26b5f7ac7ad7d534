//! All inputs of raw pages as one stream.

use super::{Input, Stream};
use crate::{Counts, Entry, Formats, TraceError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The entries of all inputs in the order of their time; those of one time in the order of the inputs.
pub(crate) struct Merge<'f> {
    formats: &'f Formats,
    streams: Vec<Stream<'f>>,
    /// All streams that have an entry, but the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream of the entry given last.
    current: Option<usize>,
    counts: Counts,
}

impl<'f> Merge<'f> {
    pub fn new(formats: &'f Formats, inputs: Vec<Input<'f>>) -> Result<Merge<'f>, TraceError> {
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
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
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

    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
