//! Raw pages of the kernel's ring buffer, merged into one stream.

mod folder;
mod merge;
#[cfg(test)]
mod merge_tests;
mod page;
#[cfg(test)]
mod page_tests;
mod stats;
mod writer;

pub use folder::{Folder, RawFile};
pub(crate) use merge::Merge;
pub use page::PageLayout;
pub use stats::{CpuStats, parse as cpu_stats};
pub use writer::{FolderWriter, Keep};

use crate::file::failed;
use crate::format::pid;
use crate::{Counts, Entry, Event, EventId, Formats, Lost, TraceError};
use page::{Cursor, PageStep};
use std::io::{self, Read};
use std::path::PathBuf;

/// Number of bytes that are read at once: enough that the cost of calls does not count, few enough for hundreds of
/// CPUs.
const CHUNK: usize = 64 << 10;

/// The pages that one CPU wrote, back to back.
pub struct Input<'f> {
    /// The file, for messages.
    pub path: PathBuf,
    /// Number of the CPU.
    pub cpu: u32,
    /// Layout of a page.
    pub layout: PageLayout,
    /// Reader of the pages.
    pub pages: Box<dyn Read + 'f>,
}

/// One input, with its next entry at hand.
pub(crate) struct Stream<'f> {
    input: Input<'f>,
    number: u32,
    layout: PageLayout,
    /// Whole pages, and a cut one at the end of the input.
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that are filled.
    filled: usize,
    /// The page under way.
    page: usize,
    /// True if a page is under way.
    begun: bool,
    cursor: Cursor,
    /// The time of the last entry; 0 before the first.
    last: u64,
    head: Head,
}

/// The next entry.
#[derive(Clone, Copy)]
enum Head {
    Record {
        start: usize,
        end: usize,
        id: EventId,
    },
    Lost(Option<u64>),
}

impl<'f> Stream<'f> {
    pub fn new(input: Input<'f>, number: u32) -> Stream<'f> {
        let layout = input.layout;
        let pages = (CHUNK / layout.size()).max(1);
        Stream {
            input,
            number,
            layout,
            buffer: vec![0; pages * layout.size()],
            filled: 0,
            page: 0,
            begun: false,
            cursor: Cursor::default(),
            last: 0,
            head: Head::Lost(None),
        }
    }

    /// When the next entry is.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.last
    }

    /// The next entry.
    #[inline]
    pub fn entry(&self) -> Entry<'_> {
        let (ticks, cpu, input) = (self.last, self.input.cpu, self.number);
        match self.head {
            Head::Lost(events) => Entry::Lost(Lost {
                ticks,
                cpu,
                input,
                events,
            }),
            Head::Record { start, end, id } => {
                let data = self.buffer.get(start..end).unwrap_or_default();
                Entry::Event(Event {
                    ticks,
                    cpu,
                    input,
                    id,
                    pid: pid(data),
                    data,
                })
            }
        }
    }

    /// Finds the next entry; `false` at the end.
    #[inline]
    pub fn advance(&mut self, formats: &Formats, counts: &mut Counts) -> Result<bool, TraceError> {
        loop {
            if !self.begun {
                match self.next_page(counts)? {
                    Next::End => return Ok(false),
                    Next::Lost(events) => return Ok(self.lose(events, counts)),
                    Next::Page => {}
                }
            }
            let page = self
                .buffer
                .get(self.page..self.page + self.layout.size())
                .unwrap_or_default();
            match self.cursor.step(page) {
                PageStep::End => self.leave(),
                PageStep::Damaged => {
                    self.leave();
                    counts.damaged_pages += 1;
                    return Ok(self.lose(None, counts));
                }
                PageStep::Record(start, end) => {
                    let record = page.get(start..end).unwrap_or_default();
                    let Some(id) = formats.kind(record, counts) else {
                        continue;
                    };
                    counts.time(&mut self.last, self.cursor.ticks);
                    counts.events += 1;
                    self.head = Head::Record {
                        start: self.page + start,
                        end: self.page + end,
                        id,
                    };
                    return Ok(true);
                }
            }
        }
    }

    fn lose(&mut self, events: Option<u64>, counts: &mut Counts) -> bool {
        counts.loss(events);
        self.head = Head::Lost(events);
        true
    }

    fn leave(&mut self) {
        self.begun = false;
        self.page += self.layout.size();
    }

    /// Goes on to the next page.
    fn next_page(&mut self, counts: &mut Counts) -> Result<Next, TraceError> {
        if self.page >= self.filled {
            self.fill()?;
            if self.filled == 0 {
                return Ok(Next::End);
            }
        }
        let end = (self.page + self.layout.size()).min(self.filled);
        let begun = self
            .buffer
            .get(self.page..end)
            .and_then(|page| self.layout.begin(page));
        let Some(begun) = begun else {
            // A wrong length, or a file that was cut off.
            self.leave();
            counts.damaged_pages += 1;
            return Ok(Next::Lost(None));
        };
        self.begun = true;
        self.cursor = begun.cursor;
        match begun.missed {
            None => Ok(Next::Page),
            Some(events) => {
                counts.time(&mut self.last, self.cursor.ticks);
                Ok(Next::Lost(events))
            }
        }
    }

    /// Reads on, until whole pages are there or the input ends: of a pipe, what is in it.
    fn fill(&mut self) -> Result<(), TraceError> {
        self.page = 0;
        self.filled = 0;
        while self.filled == 0 || self.filled % self.layout.size() != 0 {
            match self.input.pages.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(&self.input.path, e)),
            }
        }
        Ok(())
    }
}

/// Item with which a page begins.
enum Next {
    Page,
    Lost(Option<u64>),
    End,
}
