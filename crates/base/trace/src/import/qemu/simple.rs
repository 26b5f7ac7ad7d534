//! The file of QEMU's `simple` backend.
//!
//! A header (three 64-bit words: all ones, magic, version), then records that begin with their type, 64 bits. A mapping
//! names an event: its number (64 bits), the name's length (32) and the name. An event has its number (64), its time
//! (64), its length with these fields (32), QEMU's process (32), then the arguments: 64 bits each, a text as its length
//! (32) and its bytes.

use super::events::QemuEvents;
use super::list;
use super::record::{Kind, Record};
use crate::events::Entries;
use crate::file::unreadable;
use crate::{Counts, Entry, Event, EventId, Events, Lost, TraceError};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const HEADER_EVENT: u64 = u64::MAX;
const DROPPED: u64 = u64::MAX - 1;
const MAGIC: u64 = 0xf2b1_77cb_0aa4_29b4;
const VERSION: u64 = 4;
const MAPPING: u64 = 0;
const EVENT: u64 = 1;
/// Of an event, without its type.
const EVENT_HEADER: usize = 24;
/// QEMU's own buffer for records.
const LONGEST_RECORD: usize = 256 << 10;
const LONGEST_NAME: usize = 4096;

impl QemuEvents {
    /// The events of a file that QEMU's `simple` backend wrote (`--trace file=FILE`), version 4 (QEMU 2.8 and newer).
    /// [`crate::Event::ticks`] are nanoseconds of the host's `CLOCK_MONOTONIC` (the kernel's trace clock `mono`),
    /// [`crate::Event::pid`] is QEMU's process: the file names no thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read or is of another kind.
    pub fn simple(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        self.simple_from(File::open(path).map_err(|source| unreadable(path, source))?, path)
    }

    /// The same of what is read from elsewhere; `path` is for messages.
    ///
    /// # Errors
    /// The same.
    pub fn simple_from<'q>(&'q self, from: impl Read + 'q, path: &Path) -> Result<Events<'q>, TraceError> {
        Simple::new(self, Box::new(from), path).map(Events::of)
    }
}

/// The events of one file.
struct Simple<'q> {
    qemu: &'q QemuEvents,
    from: BufReader<Box<dyn Read + 'q>>,
    path: PathBuf,
    /// The file's numbers of events, and ours.
    ids: HashMap<u64, (EventId, &'q list::Event)>,
    payload: Vec<u8>,
    record: Record,
    last: u64,
    ended: bool,
    counts: Counts,
}

impl<'q> Simple<'q> {
    fn new(qemu: &'q QemuEvents, from: Box<dyn Read + 'q>, path: &Path) -> Result<Simple<'q>, TraceError> {
        let mut simple = Simple {
            qemu,
            from: BufReader::with_capacity(64 << 10, from),
            path: path.to_owned(),
            ids: HashMap::new(),
            payload: Vec::new(),
            record: Record::default(),
            last: 0,
            ended: false,
            counts: Counts::default(),
        };
        let damaged = |reason: String| Err(TraceError::Damaged { path: path.to_owned(), reason });
        match simple.words::<3>()? {
            Some([HEADER_EVENT, MAGIC, VERSION]) => Ok(simple),
            Some([HEADER_EVENT, MAGIC, version]) => {
                damaged(format!("version {version}, where only {VERSION} is known"))
            }
            _ => damaged("it does not begin as a file of QEMU's simple backend".to_owned()),
        }
    }
}

impl Entries for Simple<'_> {
    fn next(&mut self) -> Result<Option<Entry<'_>>, TraceError> {
        while !self.ended {
            if self.from.fill_buf().map_err(|source| unreadable(&self.path, source))?.is_empty() {
                break;
            }
            let step = match self.words::<1>()? {
                Some([MAPPING]) => self.mapping()?,
                Some([EVENT]) => self.event()?,
                _ => Step::Damaged,
            };
            match step {
                Step::Nothing => {}
                Step::Event { id, pid } => {
                    self.counts.events += 1;
                    let data = self.record.bytes();
                    return Ok(Some(Entry::Event(Event { ticks: self.last, cpu: 0, input: 0, id, pid, data })));
                }
                Step::Dropped(n) => return Ok(Some(self.lost(Some(n)))),
                // Where one record makes no sense, nobody knows where the next begins.
                Step::Damaged => {
                    self.ended = true;
                    self.counts.damaged_pages += 1;
                    return Ok(Some(self.lost(None)));
                }
            }
        }
        self.ended = true;
        Ok(None)
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl<'q> Simple<'q> {
    fn lost(&mut self, events: Option<u64>) -> Entry<'static> {
        self.counts.loss(events);
        Entry::Lost(Lost { ticks: self.last, cpu: 0, input: 0, events })
    }

    fn mapping(&mut self) -> Result<Step, TraceError> {
        let mut head = [0; 12];
        if !self.fill(&mut head)? {
            return Ok(Step::Damaged);
        }
        let (number, length) = (word(&head, 0), half(&head, 8) as usize);
        if length > LONGEST_NAME || !self.take(length)? {
            return Ok(Step::Damaged);
        }
        if let Some(event) = std::str::from_utf8(&self.payload).ok().and_then(|name| self.qemu.named(name)) {
            self.ids.insert(number, event);
        }
        Ok(Step::Nothing)
    }

    fn event(&mut self) -> Result<Step, TraceError> {
        let mut head = [0; EVENT_HEADER];
        if !self.fill(&mut head)? {
            return Ok(Step::Damaged);
        }
        let (number, ticks, length) = (word(&head, 0), word(&head, 8), half(&head, 16) as usize);
        let pid = half(&head, 20) as i32;
        if !(EVENT_HEADER..=LONGEST_RECORD).contains(&length) || !self.take(length - EVENT_HEADER)? {
            return Ok(Step::Damaged);
        }
        let known = self.ids.get(&number);
        if number == DROPPED {
            self.counts.time(&mut self.last, ticks);
            let dropped = self.payload.first_chunk().map(|n| u64::from_le_bytes(*n));
            return Ok(dropped.map_or(Step::Damaged, Step::Dropped));
        }
        let Some(&(id, event)) = known else {
            self.counts.unknown += 1;
            return Ok(Step::Nothing);
        };
        self.record.begin(id, pid, event.arguments.len());
        if arguments(event, &self.payload, &mut self.record).is_none() {
            self.counts.short += 1;
            return Ok(Step::Nothing);
        }
        self.counts.time(&mut self.last, ticks);
        Ok(Step::Event { id, pid })
    }

    /// Fills `self.payload`; `false` when the file ends before.
    fn take(&mut self, length: usize) -> Result<bool, TraceError> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length, 0);
        let filled = self.fill(&mut payload);
        self.payload = payload;
        filled
    }

    /// `false` when the file ends before.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, TraceError> {
        match self.from.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(source) => Err(unreadable(&self.path, source)),
        }
    }

    /// So many 64-bit words; `None` when the file ends before.
    fn words<const N: usize>(&mut self) -> Result<Option<[u64; N]>, TraceError> {
        let mut words = [0; N];
        for place in &mut words {
            let mut bytes = [0; 8];
            if !self.fill(&mut bytes)? {
                return Ok(None);
            }
            *place = u64::from_le_bytes(bytes);
        }
        Ok(Some(words))
    }
}

/// What a record gave.
enum Step {
    Nothing,
    Event { id: EventId, pid: i32 },
    Dropped(u64),
    Damaged,
}

/// The arguments as the record has them; `None` when they are not those of this event.
fn arguments(event: &list::Event, mut payload: &[u8], record: &mut Record) -> Option<()> {
    for (n, argument) in event.arguments.iter().enumerate() {
        if argument.kind == Kind::Text {
            let (length, rest) = payload.split_first_chunk()?;
            let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            record.text(n, text)?;
            payload = rest;
        } else {
            let (value, rest) = payload.split_first_chunk()?;
            record.number(n, u64::from_le_bytes(*value));
            payload = rest;
        }
    }
    payload.is_empty().then_some(())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}
