//! Pages of the kernel's ring buffer, as read from `trace_pipe_raw`, and the entries in those of one CPU.
//!
//! Source: `kernel/trace/ring_buffer.c` (`struct buffer_data_page`, `ring_buffer_read_page`, `rb_update_read_stamp`,
//! `rb_fix_abs_ts`, `check_buffer`) and `include/linux/ring_buffer.h` (`enum ring_buffer_type`).

mod folder;

pub use folder::{CpuStats, Folder, FolderWriter, Keep, RawFile, cpu_of_raw_file, cpu_stats};

use crate::file::failed;
use crate::format::{self, Field};
use crate::{Counts, Entry, Event, Formats, Lost, TraceError};
use std::io::{self, Read};
use std::path::PathBuf;

/// Where things lie in a page, from `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    stamp: Field,
    commit: Field,
    data: usize,
    size: usize,
}

/// Above the largest sub-buffer that a kernel can be set to.
const MAX_PAGE: usize = 16 << 20;
/// Flags and length share the commit field.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const LENGTH: u64 = MISSED_STORED - 1;

impl PageLayout {
    /// Reads the text of `events/header_page`; the error says what is wrong with it.
    ///
    /// # Errors
    /// A text that describes no page of a 32-bit or 64-bit kernel.
    pub fn parse(header_page: &str) -> Result<PageLayout, String> {
        let fields: Vec<(String, Field)> = header_page
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .map(format::parse_field)
            .collect::<Result<_, _>>()?;
        let field =
            |name| format::find(&fields, name).ok_or_else(|| format!("header_page without {name}"));
        let (stamp, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let size = (data.offset + data.size) as usize;
        let inside = [stamp, commit]
            .iter()
            .all(|f| f.offset + f.size <= data.offset);
        if stamp.size != 8
            || !matches!(commit.size, 4 | 8)
            || !inside
            || size > MAX_PAGE
            || data.size == 0
        {
            return Err("unknown layout of header_page".to_owned());
        }
        Ok(PageLayout {
            stamp,
            commit,
            data: data.offset as usize,
            size,
        })
    }

    /// Returns the layout with pages of another length, bytes, as `buffer_subbuf_size_kb` of an instance makes them;
    /// `None` for a length that no kernel has.
    pub(crate) fn with_size(self, size: usize) -> Option<PageLayout> {
        (self.data < size && size <= MAX_PAGE).then_some(PageLayout { size, ..self })
    }

    /// Returns the length of a page, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Begins to read a page; `None` when its length is wrong.
    fn begin(&self, page: &[u8]) -> Option<OpenedPage> {
        let ticks = self.stamp.unsigned(page)?;
        let commit = self.commit.unsigned(page)?;
        // The kernel adds its flag as an `int`, whose sign fills a 64-bit field.
        if page.len() != self.size || !matches!(commit >> 32, 0 | 0xffff_ffff) {
            return None;
        }
        let end = self.data + (commit & LENGTH) as usize;
        if end > self.size {
            return None;
        }
        let missed = (commit & MISSED != 0).then(|| {
            let stored = Field {
                offset: end as u32,
                signed: true,
                ..self.commit
            };
            // Without room for it the number is not there; -1 is a kernel that does not know it.
            if commit & MISSED_STORED == 0 {
                None
            } else {
                stored.signed(page).and_then(|n| u64::try_from(n).ok())
            }
        });
        Some(OpenedPage {
            cursor: Cursor {
                at: self.data,
                end,
                ticks,
            },
            missed,
        })
    }
}

/// A page with a valid header.
struct OpenedPage {
    cursor: Cursor,
    /// Loss before the page, with the number of missing events where it is known; the outer `None` if no event is
    /// missing.
    missed: Option<Option<u64>>,
}

/// A place in a page.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    at: usize,
    end: usize,
    /// The time of the last event.
    ticks: u64,
}

/// The next item of a page.
enum PageStep {
    /// An event: offset and end of its record.
    Record(usize, usize),
    /// End of the page.
    End,
}

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// Absolute time stamps have 59 bits; the rest is that of the time before.
const STAMP_BITS: u32 = 59;

impl Cursor {
    /// Advances to the next event; `None` at invalid data. Each step consumes at least four bytes, so a page always ends.
    #[inline]
    fn step(&mut self, page: &[u8]) -> Option<PageStep> {
        let page = page.get(..self.end)?;
        while self.at < page.len() {
            let header = word(page, self.at)?;
            let delta = u64::from(header >> 5);
            let body = self.at + 4;
            match header & 31 {
                0 => {
                    // The length stands before the record and counts itself.
                    let length = word(page, body).filter(|&length| length >= 4)?;
                    self.ticks = self.ticks.wrapping_add(delta);
                    return self.record(page, body + 4, length as usize - 4);
                }
                PADDING if delta == 0 => self.at = page.len(),
                PADDING => {
                    let length = word(page, body)?;
                    // An event that was thrown away still moved the time, unless its delta stands for none.
                    self.ticks = self.ticks.wrapping_add(if delta == 1 { 0 } else { delta });
                    self.at = body + length as usize;
                    if self.at > page.len() {
                        return None;
                    }
                }
                kind @ (TIME_EXTEND | TIME_STAMP) => {
                    let time = u64::from(word(page, body)?) << DELTA_BITS | delta;
                    self.ticks = match kind {
                        TIME_EXTEND => self.ticks.wrapping_add(time),
                        _ => absolute(time, self.ticks),
                    };
                    self.at = body + 4;
                }
                words => {
                    self.ticks = self.ticks.wrapping_add(delta);
                    return self.record(page, body, words as usize * 4);
                }
            }
        }
        Some(PageStep::End)
    }

    #[inline]
    fn record(&mut self, page: &[u8], start: usize, length: usize) -> Option<PageStep> {
        let end = start + length;
        self.at = end.next_multiple_of(4);
        (end <= page.len()).then_some(PageStep::Record(start, end))
    }
}

/// A full time from the 59 bits of an absolute time stamp and the time before it.
fn absolute(stamp: u64, before: u64) -> u64 {
    let mask = (1 << STAMP_BITS) - 1;
    let stamp = stamp & mask;
    let high = before & !mask;
    if high == 0 {
        return stamp;
    }
    let full = stamp | high;
    if full < before {
        full.wrapping_add(1 << STAMP_BITS)
    } else {
        full
    }
}

#[inline]
fn word(page: &[u8], at: usize) -> Option<u32> {
    page.get(at..)?
        .first_chunk()
        .map(|word| u32::from_le_bytes(*word))
}

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
    Record { start: usize, end: usize },
    Lost(Option<u64>),
}

impl<'f> Stream<'f> {
    pub fn new(input: Input<'f>, number: u32) -> Stream<'f> {
        let pages = (CHUNK / input.layout.size).max(1);
        Stream {
            number,
            buffer: vec![0; pages * input.layout.size],
            input,
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
                cpu: Some(cpu),
                input,
                events,
            }),
            Head::Record { start, end } => {
                let data = self.buffer.get(start..end).unwrap_or_default();
                Entry::Event(Event::of_record(ticks, cpu, input, data))
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
                .get(self.page..self.page + self.input.layout.size)
                .unwrap_or_default();
            match self.cursor.step(page) {
                Some(PageStep::End) => self.leave(),
                None => {
                    self.leave();
                    counts.damaged_pages += 1;
                    return Ok(self.lose(None, counts));
                }
                Some(PageStep::Record(start, end)) => {
                    let record = page.get(start..end).unwrap_or_default();
                    if formats.kind(record, counts).is_none() {
                        continue;
                    }
                    counts.time(&mut self.last, self.cursor.ticks);
                    counts.events += 1;
                    self.head = Head::Record {
                        start: self.page + start,
                        end: self.page + end,
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
        self.page += self.input.layout.size;
    }

    /// Goes on to the next page.
    fn next_page(&mut self, counts: &mut Counts) -> Result<Next, TraceError> {
        if self.page >= self.filled {
            self.fill()?;
            if self.filled == 0 {
                return Ok(Next::End);
            }
        }
        let end = (self.page + self.input.layout.size).min(self.filled);
        let begun = self
            .buffer
            .get(self.page..end)
            .and_then(|page| self.input.layout.begin(page));
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
        while self.filled == 0 || self.filled % self.input.layout.size != 0 {
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

#[cfg(test)]
mod tests;
