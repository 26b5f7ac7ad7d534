//! The files of QEMU's trace backends.
//!
//! `simple`: a header (three 64-bit words: all ones, magic, version), then records that begin with their type, 64 bits. A
//! mapping names an event: its number (64 bits), the name's length (32) and the name. An event has its number (64), its time
//! (64), its length with these fields (32), QEMU's process (32), then the arguments: 64 bits each, a text as its length
//! (32) and its bytes.
//!
//! `log`: lines `4711@1700000000.123456:virtio_queue_notify vdev 0x55… n 0 vq 0x7f…`.

use super::{Declaration, QemuEvents};
use crate::events::{Decoder, DecoderStep};
use crate::file::{self, LineRead, Lines, damaged, open, unreadable};
use crate::import::{ArgumentKind, Record};
use crate::{Counts, EventId, Events, TraceError};
use std::collections::HashMap;
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
const MAX_RECORD: usize = 256 << 10;
const MAX_NAME: usize = 4096;

impl QemuEvents {
    /// The events of a file that QEMU's `simple` backend wrote (`--trace file=FILE`), version 4 (QEMU 2.8 and newer).
    /// [`crate::Event::ticks`] are nanoseconds of the host's `CLOCK_MONOTONIC` (the kernel's trace clock `mono`),
    /// [`crate::Event::pid`] is QEMU's process: the file names no thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read or is of another kind.
    pub fn simple(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        self.simple_from(open(path)?, path)
    }

    /// Returns the events of data that are read from elsewhere, as [`QemuEvents::simple`] does; `path` is for
    /// messages.
    ///
    /// # Errors
    /// [`TraceError`] when the data cannot be read or are of another kind.
    pub fn simple_from<'q>(
        &'q self,
        from: impl Read + 'q,
        path: &Path,
    ) -> Result<Events<'q>, TraceError> {
        let mut from = BufReader::with_capacity(64 << 10, Box::new(from) as Box<dyn Read>);
        let mut word = || file::u64(&mut from);
        let header = word().and_then(|first| Ok([first, word()?, word()?]));
        match header {
            Ok([HEADER_EVENT, MAGIC, VERSION]) => Ok(Events::decoded(Simple {
                qemu: self,
                from,
                path: path.to_owned(),
                ids: HashMap::new(),
                payload: Vec::new(),
                record: Record::default(),
            })),
            Ok([HEADER_EVENT, MAGIC, version]) => {
                let reason = format!("unknown version {version}; only {VERSION} is supported");
                Err(damaged(path, reason))
            }
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(unreadable(path, e)),
            _ => Err(damaged(path, "not a file of QEMU's simple trace backend")),
        }
    }

    /// The events of a log that QEMU's `log` backend wrote with `-msg timestamp=on`, as Debian's QEMU does.
    /// [`crate::Event::ticks`] are nanoseconds since 1970, full microseconds; [`crate::Event::pid`] is the thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read.
    pub fn log(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        Ok(self.log_from(open(path)?, path))
    }

    /// Returns the events of a log that is read from elsewhere, as [`QemuEvents::log`] does; `path` is for messages.
    pub fn log_from<'q>(&'q self, from: impl Read + 'q, path: &Path) -> Events<'q> {
        Events::decoded(Log {
            qemu: self,
            lines: Lines::new(Box::new(from)),
            path: path.to_owned(),
            record: Record::default(),
        })
    }
}

/// The events of one file.
struct Simple<'q> {
    qemu: &'q QemuEvents,
    from: BufReader<Box<dyn Read + 'q>>,
    path: PathBuf,
    /// The file's numbers of events, and ours.
    ids: HashMap<u64, (EventId, &'q Declaration)>,
    payload: Vec<u8>,
    record: Record,
}

/// After an invalid record the start of the next is unknown.
const DAMAGED: DecoderStep = DecoderStep::Damaged { ends: true };

impl Decoder for Simple<'_> {
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError> {
        let step = match self.from.fill_buf() {
            Ok([]) => return Ok(DecoderStep::End { lost: None }),
            Ok(_) => self.read(counts),
            Err(e) => Err(e),
        };
        match step {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(DAMAGED),
            other => other.map_err(|source| unreadable(&self.path, source)),
        }
    }

    fn record(&self) -> &[u8] {
        self.record.bytes()
    }
}

impl Simple<'_> {
    fn read(&mut self, counts: &mut Counts) -> io::Result<DecoderStep> {
        match file::u64(&mut self.from)? {
            MAPPING => self.mapping(),
            EVENT => self.event(counts),
            _ => Ok(DAMAGED),
        }
    }

    fn mapping(&mut self) -> io::Result<DecoderStep> {
        let (number, length) = (
            file::u64(&mut self.from)?,
            file::u32(&mut self.from)? as usize,
        );
        if length > MAX_NAME {
            return Ok(DAMAGED);
        }
        self.take(length)?;
        if let Some(event) = std::str::from_utf8(&self.payload)
            .ok()
            .and_then(|name| self.qemu.named(name))
        {
            self.ids.insert(number, event);
        }
        Ok(DecoderStep::Nothing)
    }

    fn event(&mut self, counts: &mut Counts) -> io::Result<DecoderStep> {
        let (number, ticks) = (file::u64(&mut self.from)?, file::u64(&mut self.from)?);
        let (length, pid) = (
            file::u32(&mut self.from)? as usize,
            file::u32(&mut self.from)? as i32,
        );
        if !(EVENT_HEADER..=MAX_RECORD).contains(&length) {
            return Ok(DAMAGED);
        }
        self.take(length - EVENT_HEADER)?;
        if number == DROPPED {
            let dropped = self.payload.first_chunk().map(|n| u64::from_le_bytes(*n));
            return Ok(dropped.map_or(DAMAGED, |n| DecoderStep::Lost {
                ticks: Some(ticks),
                cpu: None,
                events: Some(n),
            }));
        }
        let Some(&(id, event)) = self.ids.get(&number) else {
            counts.unknown += 1;
            return Ok(DecoderStep::Nothing);
        };
        self.record.begin(id, pid, event.arguments.len());
        if arguments(event, &self.payload, &mut self.record).is_none() {
            counts.short += 1;
            return Ok(DecoderStep::Nothing);
        }
        Ok(DecoderStep::Event { ticks, cpu: 0 })
    }

    fn take(&mut self, length: usize) -> io::Result<()> {
        self.payload.resize(length, 0);
        self.from.read_exact(&mut self.payload)
    }
}

/// The arguments as the record has them; `None` when they are not those of this event.
fn arguments(event: &Declaration, mut payload: &[u8], record: &mut Record) -> Option<()> {
    for (n, argument) in event.arguments.iter().enumerate() {
        if argument.kind == ArgumentKind::Text {
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

/// The events of one log.
struct Log<'q> {
    qemu: &'q QemuEvents,
    lines: Lines<Box<dyn Read + 'q>>,
    path: PathBuf,
    record: Record,
}

impl Decoder for Log<'_> {
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError> {
        let read = self.lines.read();
        match read.map_err(|source| unreadable(&self.path, source))? {
            LineRead::Whole => {}
            LineRead::TooLong => return Ok(DecoderStep::Damaged { ends: false }),
            LineRead::End => return Ok(DecoderStep::End { lost: None }),
        }
        let text = self.lines.text();
        let Some((pid, ticks, rest)) = stamped(&text) else {
            let first = text.split(' ').next();
            let named = first.is_some_and(|word| self.qemu.named(word).is_some());
            // Behind events with a time it can only be the rest of a line that another cut in two.
            if named && counts.events == 0 {
                let reason = "its events have no timestamps: start QEMU with -msg timestamp=on";
                return Err(damaged(&self.path, reason));
            }
            counts.unknown += 1;
            return Ok(DecoderStep::Nothing);
        };
        let (name, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
        let Some((id, event)) = self.qemu.named(name) else {
            counts.unknown += 1;
            return Ok(DecoderStep::Nothing);
        };
        self.record.begin(id, pid, event.arguments.len());
        if event.template.read(arguments, &mut self.record).is_none() {
            counts.short += 1;
            return Ok(DecoderStep::Nothing);
        }
        Ok(DecoderStep::Event { ticks, cpu: 0 })
    }

    fn record(&self) -> &[u8] {
        self.record.bytes()
    }
}

/// Thread, time in nanoseconds, and what stands behind.
fn stamped(line: &str) -> Option<(i32, u64, &str)> {
    let (pid, rest) = line.split_once('@')?;
    let (time, rest) = rest.split_once(':')?;
    let (seconds, micros) = time.split_once('.')?;
    let nanos = micros.parse::<u64>().ok().filter(|_| micros.len() == 6)? * 1000;
    Some((
        pid.parse().ok()?,
        seconds
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000_000)?
            .checked_add(nanos)?,
        rest,
    ))
}
