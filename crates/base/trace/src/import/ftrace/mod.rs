//! Events as text: tracefs's `trace` and `trace_pipe`, what `trace-cmd report` and `perf script` print.
//!
//! Source: `kernel/trace/trace_output.c` and `include/trace/events` of Linux, libtraceevent and its plugins.

mod arguments;
mod line;
mod tracepoints;

#[cfg(test)]
mod tests;

use crate::events::{Decoder, DecoderStep};
use crate::file::{failed, unreadable};
use crate::format::{Symbols, SymbolsCondition};
use crate::import::record::{self, Record};
use crate::import::{MAX_THREADS, TracedThread, TracedThreads};
use crate::kernel::{NAMED_IN_TEXT, exit_reason_named};
use crate::{Counts, EventId, Events, Formats, TraceError};
use line::{Line, Time};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use tracepoints::{TRACEPOINTS, Tracepoint, Value, told, unnamed};

/// No event is so long, bytes; a line that is, is left out.
const MAX_LINE: u64 = 64 << 10;
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
}

impl TraceText {
    /// Reads a file once, for its threads and names.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read or holds no line of an event.
    pub fn open(path: &Path) -> Result<TraceText, TraceError> {
        let file = File::open(path).map_err(|source| unreadable(path, source))?;
        TraceText::of(file, path)
    }

    /// Reads text from elsewhere as [`TraceText::open`] reads a file; `path` is for messages, and for
    /// [`TraceText::events`].
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read or holds no line of an event.
    pub fn of(from: impl Read, path: &Path) -> Result<TraceText, TraceError> {
        let mut text = TraceText {
            path: path.to_owned(),
            has_ticks: false,
            formats: Formats::default(),
            reasons: BTreeMap::new(),
            told: BTreeMap::new(),
            threads: TracedThreads::new(),
        };
        let mut lines = Lines::new(from);
        let mut any = false;
        while lines.next().map_err(|source| unreadable(path, source))? {
            let line = lines.text();
            let Some(line) = line::event(&line) else {
                continue;
            };
            any = true;
            text.has_ticks |= matches!(line.time, Time::Ticks(_));
            text.note(&line);
        }
        if !any {
            let reason =
                "it has no line of an event, as tracefs, trace-cmd report or perf script print it"
                    .to_owned();
            return Err(TraceError::Damaged {
                path: path.to_owned(),
                reason,
            });
        }
        text.add_formats().map_err(|reason| TraceError::Damaged {
            path: path.to_owned(),
            reason,
        })?;
        Ok(text)
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
        let values =
            tracepoint(line.name).and_then(|(_, tracepoint)| (tracepoint.read)(line.arguments));
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
        for (
            n,
            Tracepoint {
                system,
                name,
                fields,
                ..
            },
        ) in (0..).zip(TRACEPOINTS)
        {
            let fields = fields
                .iter()
                .enumerate()
                .map(|(n, (name, kind))| ((*name).to_owned(), record::field(n, *kind)));
            let mut format = record::format(system, name, fields);
            match *name {
                "kvm_exit" => {
                    let when = SymbolsCondition::Equal("isa".to_owned(), NAMED_IN_TEXT.into());
                    let names = self
                        .reasons
                        .iter()
                        .map(|(name, number)| (*number, name.clone()))
                        .collect();
                    format.names = vec![Symbols { when, names }];
                }
                "kvm_userspace_exit" => {
                    format.names = vec![Symbols {
                        when: SymbolsCondition::Always,
                        names: self.told.clone(),
                    }];
                }
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
        Ok(
            self.events_of(
                File::open(&self.path).map_err(|source| unreadable(&self.path, source))?,
            ),
        )
    }

    /// Returns all events of a text that is read from elsewhere, from the first.
    pub fn events_of<'t>(&'t self, from: impl Read + 't) -> Events<'t> {
        let lines = Lines::new(Box::new(from) as Box<dyn Read>);
        Events::of(Decoded {
            text: self,
            lines,
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
        if !self.lines.next().map_err(|e| failed(&self.text.path, e))? {
            return Ok(DecoderStep::End { lost: None });
        }
        let text = self.lines.text();
        let Some(line) = line::event(&text) else {
            let lost = line::lost(text.trim()).map(|events| DecoderStep::Lost {
                ticks: None,
                events: Some(events),
            });
            return Ok(lost.unwrap_or(DecoderStep::Nothing));
        };
        let Some((id, tracepoint)) = tracepoint(line.name) else {
            counts.unknown += 1;
            return Ok(DecoderStep::Nothing);
        };
        let Some(values) = (tracepoint.read)(line.arguments) else {
            counts.short += 1;
            return Ok(DecoderStep::Nothing);
        };
        self.record
            .begin(id, line.tid, tracepoint.fields.len().max(values.len()));
        self.record.flags(line.flags);
        for (n, value) in values.into_iter().enumerate() {
            match value {
                Value::Number(number) => self.record.number(n, number),
                Value::Name(name) => self.record.number(
                    n,
                    self.text.reasons.get(name).copied().unwrap_or(FIRST_NAME),
                ),
                Value::Text(text) => drop(self.record.text(n, text.as_bytes())),
            }
        }
        let (Time::Nanoseconds(ticks) | Time::Ticks(ticks)) = line.time;
        Ok(DecoderStep::Event {
            ticks,
            cpu: line.cpu,
            id,
            pid: line.tid,
        })
    }

    fn record(&self) -> &[u8] {
        self.record.bytes()
    }
}

/// The lines of a file, each of bounded length.
struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Lines<R> {
        Lines {
            from: BufReader::with_capacity(64 << 10, from),
            line: Vec::new(),
        }
    }

    /// Reads the next line; `false` at the end. What is too long is left out.
    fn next(&mut self) -> std::io::Result<bool> {
        loop {
            self.line.clear();
            let mut whole = true;
            loop {
                let read = (&mut self.from)
                    .take(MAX_LINE)
                    .read_until(b'\n', &mut self.line)?;
                if read == 0 && self.line.is_empty() && whole {
                    return Ok(false);
                }
                if read == 0 || self.line.ends_with(b"\n") {
                    break;
                }
                if self.line.len() as u64 >= MAX_LINE {
                    self.line.clear();
                    whole = false;
                }
            }
            if whole {
                return Ok(true);
            }
        }
    }

    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.line.trim_ascii_end())
    }
}
