//! Pages of the kernel's ring buffer, as read from `trace_pipe_raw`.
//!
//! Source: `kernel/trace/ring_buffer.c` (`struct buffer_data_page`, `ring_buffer_read_page`, `rb_update_read_stamp`,
//! `rb_fix_abs_ts`, `check_buffer`) and `include/linux/ring_buffer.h` (`enum ring_buffer_type`).

use crate::format::{self, Field};

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
pub(super) const MISSED: u64 = 1 << 31;
pub(super) const MISSED_STORED: u64 = 1 << 30;
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
            .map(format::field)
            .collect::<Result<_, _>>()?;
        let field = |name: &str| {
            let found = fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, field)| *field);
            found.ok_or_else(|| format!("header_page without {name}"))
        };
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
    pub(crate) fn begin(&self, page: &[u8]) -> Option<OpenedPage> {
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
pub(crate) struct OpenedPage {
    pub cursor: Cursor,
    /// Loss before the page, with the number of missing events where it is known; the outer `None` if no event is
    /// missing.
    pub missed: Option<Option<u64>>,
}

/// A place in a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    at: usize,
    end: usize,
    /// The time of the last event.
    pub ticks: u64,
}

/// The next item of a page.
pub(crate) enum PageStep {
    /// An event: offset and end of its record.
    Record(usize, usize),
    /// End of the page.
    End,
    /// Invalid data in the page.
    Damaged,
}

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// Absolute time stamps have 59 bits; the rest is that of the time before.
const STAMP_BITS: u32 = 59;

impl Cursor {
    /// Advances to the next event. Each step consumes at least four bytes, so a page always ends.
    #[inline]
    pub fn step(&mut self, page: &[u8]) -> PageStep {
        let Some(page) = page.get(..self.end) else {
            return PageStep::Damaged;
        };
        loop {
            if self.at >= page.len() {
                return PageStep::End;
            }
            let Some(header) = word(page, self.at) else {
                return PageStep::Damaged;
            };
            let delta = u64::from(header >> 5);
            let body = self.at + 4;
            match header & 31 {
                0 => {
                    // The length stands before the record and counts itself.
                    let Some(length) = word(page, body).filter(|&length| length >= 4) else {
                        return PageStep::Damaged;
                    };
                    self.ticks = self.ticks.wrapping_add(delta);
                    return self.record(page, body + 4, length as usize - 4);
                }
                PADDING if delta == 0 => {
                    self.at = page.len();
                    return PageStep::End;
                }
                PADDING => {
                    let Some(length) = word(page, body) else {
                        return PageStep::Damaged;
                    };
                    // An event that was thrown away still moved the time, unless its delta stands for none.
                    self.ticks = self.ticks.wrapping_add(if delta == 1 { 0 } else { delta });
                    self.at = body + length as usize;
                    if self.at > page.len() {
                        return PageStep::Damaged;
                    }
                }
                TIME_EXTEND => {
                    let Some(high) = word(page, body) else {
                        return PageStep::Damaged;
                    };
                    self.ticks = self
                        .ticks
                        .wrapping_add(u64::from(high) << DELTA_BITS | delta);
                    self.at = body + 4;
                }
                TIME_STAMP => {
                    let Some(high) = word(page, body) else {
                        return PageStep::Damaged;
                    };
                    self.ticks = absolute(u64::from(high) << DELTA_BITS | delta, self.ticks);
                    self.at = body + 4;
                }
                words => {
                    self.ticks = self.ticks.wrapping_add(delta);
                    return self.record(page, body, words as usize * 4);
                }
            }
        }
    }

    #[inline]
    fn record(&mut self, page: &[u8], start: usize, length: usize) -> PageStep {
        self.at = (start + length).next_multiple_of(4);
        if start + length > page.len() {
            PageStep::Damaged
        } else {
            PageStep::Record(start, start + length)
        }
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
