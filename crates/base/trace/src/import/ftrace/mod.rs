//! Events as text: tracefs's `trace` and `trace_pipe`, what `trace-cmd report` and `perf script` print.
//!
//! Source: `kernel/trace/trace_output.c` and `include/trace/events` of Linux, libtraceevent and its plugins.

mod tracepoints;

#[cfg(test)]
mod tests;

use crate::events::{Decoder, DecoderStep};
use crate::file::{LineRead, Lines, damaged, failed, open, unreadable};
use crate::format::{Symbols, SymbolsCondition};
use crate::import::{
    MAX_THREADS, Record, TracedThread, TracedThreads, argument_field, record_format,
};
use crate::kernel::{NAMED_IN_TEXT, exit_reason_named, foreign_kvm_line};
use crate::{Counts, EventId, Events, Formats, TraceError};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tracepoints::{TRACEPOINTS, Tracepoint, Value, told, unnamed};

/// CPUs have a hundred exit reasons.
const MAX_NAMES: usize = 4096;
/// Names without a number get one from here, which no CPU has as a reason.
const FIRST_NAME: u64 = 1 << 20;

/// A trace as text. Of the tracepoints those are read that the analyses need; lines of others are counted as unknown.
/// Times are nanoseconds, whatever their digits.
#[derive(Debug)]
pub struct TraceText {
    path: PathBuf,
    has_ticks: bool,
    formats: Formats,
    /// Of `kvm_exit`: the number of each reason.
    reasons: BTreeMap<String, u64>,
    /// Of `kvm_userspace_exit`: the name of each number.
    told: BTreeMap<u64, String>,
    threads: TracedThreads,
    foreign_kvm: Option<&'static str>,
}

impl TraceText {
    /// Reads a file once, for its threads and names.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read or holds no line of an event.
    pub fn open(path: &Path) -> Result<TraceText, TraceError> {
        TraceText::read(open(path)?, path)
    }

    /// Reads text from elsewhere as [`TraceText::open`] reads a file; `path` is for messages, and for
    /// [`TraceText::events`].
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read or holds no line of an event.
    pub fn read(from: impl Read, path: &Path) -> Result<TraceText, TraceError> {
        let mut text = TraceText {
            path: path.to_owned(),
            has_ticks: false,
            formats: Formats::default(),
            reasons: BTreeMap::new(),
            told: BTreeMap::new(),
            threads: TracedThreads::new(),
            foreign_kvm: None,
        };
        let mut lines = Lines::new(from);
        let mut any = false;
        while next(&mut lines).map_err(|source| unreadable(path, source))? {
            let line = lines.text();
            let Some(line) = event(&line) else {
                continue;
            };
            any = true;
            text.has_ticks |= matches!(line.time, Time::Ticks(_));
            let foreign = || foreign_kvm_line(line.name, line.arguments);
            text.foreign_kvm = text.foreign_kvm.or_else(foreign);
            text.note(&line);
        }
        if !any {
            let reason =
                "it has no line of an event, as tracefs, trace-cmd report or perf script print it";
            return Err(damaged(path, reason));
        }
        match text.add_formats() {
            Ok(()) => Ok(text),
            Err(reason) => Err(damaged(path, reason)),
        }
    }

    /// Remembers a line's thread and name of a number.
    fn note(&mut self, line: &Line<'_>) {
        if self.threads.len() < MAX_THREADS || self.threads.contains_key(&line.tid) {
            let thread = self.threads.entry(line.tid).or_default();
            if thread.process.is_none() || thread.name.is_empty() {
                *thread = TracedThread {
                    process: thread.process.or(line.process),
                    name: line.comm.to_owned(),
                };
            }
        }
        if let Some((name, number)) =
            told(line.arguments).filter(|_| line.name == "kvm_userspace_exit")
        {
            if name.starts_with("KVM_EXIT_") && self.told.len() < MAX_NAMES {
                self.told.entry(number).or_insert_with(|| name.to_owned());
            }
        }
        let values = tracepoint(line.name).and_then(|(_, known)| known.values(line.arguments));
        for value in values.into_iter().flatten() {
            if let Value::Name(name) = value {
                if self.reasons.len() < MAX_NAMES && !self.reasons.contains_key(name) {
                    let known = exit_reason_named(name)
                        .map(|(_, number)| number)
                        .or_else(|| unnamed(name));
                    let number = known.unwrap_or(FIRST_NAME + self.reasons.len() as u64);
                    self.reasons.insert(name.to_owned(), number);
                }
            }
        }
    }

    fn add_formats(&mut self) -> Result<(), String> {
        for (n, tracepoint) in (0..).zip(TRACEPOINTS) {
            let fields = (0..).zip(tracepoint.fields);
            let fields =
                fields.map(|(n, (name, kind))| ((*name).to_owned(), argument_field(n, *kind)));
            let mut format = record_format(tracepoint.system, tracepoint.name, fields);
            match tracepoint.name {
                "kvm_exit" => {
                    let when = SymbolsCondition::Equal("isa".to_owned(), NAMED_IN_TEXT.into());
                    let reasons = self.reasons.iter();
                    let names = reasons.map(|(name, number)| (*number, name.clone()));
                    let names = names.collect();
                    format.names.push(Symbols { when, names });
                }
                "kvm_userspace_exit" => format.names.push(Symbols {
                    when: SymbolsCondition::Always,
                    names: self.told.clone(),
                }),
                _ => {}
            }
            self.formats.insert(EventId(n), format)?;
        }
        Ok(())
    }

    /// Returns true if the times are printed without a point, so they may be ticks of a counter.
    pub fn has_ticks(&self) -> bool {
        self.has_ticks
    }

    /// Returns the architecture of a KVM that is not x86-64's.
    pub fn foreign_kvm(&self) -> Option<&'static str> {
        self.foreign_kvm
    }

    /// The kinds of events that are read.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The threads that it names.
    pub fn threads(&self) -> &TracedThreads {
        &self.threads
    }

    /// All events, from the first.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the file cannot be read.
    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        Ok(self.events_of(open(&self.path)?))
    }

    /// Returns all events of a text that is read from elsewhere, from the first.
    pub fn events_of<'t>(&'t self, from: impl Read + 't) -> Events<'t> {
        Events::decoded(Decoded {
            text: self,
            lines: Lines::new(Box::new(from)),
            record: Record::default(),
        })
    }
}

fn tracepoint(name: &str) -> Option<(EventId, &'static Tracepoint)> {
    (0..)
        .map(EventId)
        .zip(TRACEPOINTS)
        .find(|(_, tracepoint)| tracepoint.name == name)
}

/// The events of one file.
struct Decoded<'t> {
    text: &'t TraceText,
    lines: Lines<Box<dyn Read + 't>>,
    record: Record,
}

impl Decoder for Decoded<'_> {
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError> {
        if !next(&mut self.lines).map_err(|e| failed(&self.text.path, e))? {
            return Ok(DecoderStep::End { lost: None });
        }
        let text = self.lines.text();
        let Some(line) = event(&text) else {
            let lost = lost(text.trim()).map(|(cpu, events)| DecoderStep::Lost {
                ticks: None,
                cpu: Some(cpu),
                events: Some(events),
            });
            return Ok(lost.unwrap_or(DecoderStep::Nothing));
        };
        let Some((id, tracepoint)) = tracepoint(line.name) else {
            counts.unknown += 1;
            return Ok(DecoderStep::Nothing);
        };
        let Some(values) = tracepoint.values(line.arguments) else {
            counts.short += 1;
            return Ok(DecoderStep::Nothing);
        };
        self.record
            .begin(id, line.tid, tracepoint.fields.len().max(values.len()));
        self.record.flags(line.flags);
        for (n, value) in values.into_iter().enumerate() {
            match value {
                Value::Number(number) => self.record.number(n, number),
                Value::Name(name) => {
                    let number = self.text.reasons.get(name);
                    self.record.number(n, *number.unwrap_or(&FIRST_NAME));
                }
                Value::Text(text) => drop(self.record.text(n, text.as_bytes())),
            }
        }
        let (Time::Nanoseconds(ticks) | Time::Ticks(ticks)) = line.time;
        Ok(DecoderStep::Event {
            ticks,
            cpu: line.cpu,
        })
    }

    fn record(&self) -> &[u8] {
        self.record.bytes()
    }
}

/// Reads the next line; `false` at the end. A line that is too long is left out.
fn next(lines: &mut Lines<impl Read>) -> io::Result<bool> {
    loop {
        match lines.read()? {
            LineRead::Whole => return Ok(true),
            LineRead::TooLong => {}
            LineRead::End => return Ok(false),
        }
    }
}

/// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`, `TRACE_FLAG_NMI`.
const FLAGS: [u8; 3] = [0x08, 0x10, 0x40];

/// An event's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line<'a> {
    pub comm: &'a str,
    pub tid: i32,
    /// The thread group, where it is printed.
    pub process: Option<i32>,
    pub cpu: u32,
    /// `common_flags`, as far as they are printed.
    pub flags: u8,
    pub time: Time,
    /// Without its subsystem.
    pub name: &'a str,
    pub arguments: &'a str,
}

/// A time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    /// Printed as seconds.
    Nanoseconds(u64),
    /// Printed without a point: of a clock such as `x86-tsc`, or nanoseconds of `trace-cmd report -t`.
    Ticks(u64),
}

/// Cuts an event's line; `None` for any other.
fn event(line: &str) -> Option<Line<'_>> {
    // A thread's name may have brackets, too.
    line.match_indices(" [").find_map(|(at, _)| {
        let (left, right) = (&line[..at], &line[at + 2..]);
        let (cpu, right) = right.split_once("] ")?;
        let cpu = cpu.parse().ok()?;
        let (comm, tid, process) = thread(left)?;
        let (flags, time, right) = stamp(right.trim_start())?;
        let (name, arguments) = named(right)?;
        Some(Line {
            comm,
            tid,
            process,
            cpu,
            flags,
            time,
            name,
            arguments,
        })
    })
}

/// Returns the CPU and the number of its events that are missing at a line such as `CPU:1 [LOST 123 EVENTS]`; `None` for any
/// other.
fn lost(line: &str) -> Option<(u32, u64)> {
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once('[')?;
    let words = rest.strip_suffix(']')?;
    let number = words
        .strip_prefix("LOST ")
        .and_then(|w| w.strip_suffix(" EVENTS"));
    let number = number.or_else(|| words.strip_suffix(" EVENTS DROPPED"))?;
    Some((cpu.trim().parse().ok()?, number.trim().parse().ok()?))
}

/// `name-12`, `name-12 (  10)` of the kernel, `name 12`, `name 10/12` of perf: name, thread, process.
fn thread(text: &str) -> Option<(&str, i32, Option<i32>)> {
    let text = text.trim_end();
    let (text, process) = match text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once('('))
    {
        Some((text, process)) => (text.trim_end(), process.trim().parse().ok()),
        None => (text, None),
    };
    let (comm, tid) = text.rsplit_once(['-', ' '])?;
    let (process, tid) = match tid.split_once('/') {
        Some((process, tid)) => (process.parse().ok(), tid),
        None => (process, tid),
    };
    // trace-cmd puts the name of an instance or a file before it.
    let comm = comm
        .trim()
        .rsplit_once(": ")
        .map_or(comm, |(_, comm)| comm)
        .trim();
    Some((comm, tid.parse().ok()?, process))
}

/// Flags, where there are some, time, and what is behind.
fn stamp(text: &str) -> Option<(u8, Time, &str)> {
    let (word, rest) = text.split_once(' ')?;
    let (flags, word, rest) = match word.strip_suffix(':').and_then(time) {
        Some(time) => return Some((0, time, rest)),
        None => {
            let (next, rest) = rest.trim_start().split_once(' ')?;
            (flags(word), next, rest)
        }
    };
    Some((flags, time(word.strip_suffix(':')?)?, rest))
}

/// The third letter of `d.h1.`: in which kind of interrupt.
fn flags(word: &str) -> u8 {
    let [hard, soft, nmi] = FLAGS;
    match word.as_bytes().get(2) {
        Some(b'h') => hard,
        Some(b's') => soft,
        Some(b'H') => hard | soft,
        Some(b'z') => nmi,
        Some(b'Z') => nmi | hard,
        _ => 0,
    }
}

fn time(text: &str) -> Option<Time> {
    let number = |digits: &str| {
        digits
            .parse::<u64>()
            .ok()
            .filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let Some((seconds, fraction)) = text.split_once('.') else {
        return Some(Time::Ticks(number(text)?));
    };
    let scale = 9_u32
        .checked_sub(u32::try_from(fraction.len()).ok()?)
        .filter(|scale| *scale < 9)?;
    let nanos = number(fraction)? * 10_u64.pow(scale);
    Some(Time::Nanoseconds(
        number(seconds)?
            .checked_mul(1_000_000_000)?
            .checked_add(nanos)?,
    ))
}

/// The event's name and its arguments.
fn named(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    // perf may print the period before it.
    let (word, rest) = match word.bytes().all(|b| b.is_ascii_digit()) {
        true => rest.trim_start().split_once(' ')?,
        false => (word, rest),
    };
    let name = word.strip_suffix(':')?;
    let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| (name, rest.trim()))
}
