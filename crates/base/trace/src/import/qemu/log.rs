//! The lines of QEMU's `log` backend: `4711@1700000000.123456:virtio_queue_notify vdev 0x55… n 0 vq 0x7f…`.

use super::QemuEvents;
use crate::events::{Decoder, DecoderStep};
use crate::file::unreadable;
use crate::import::record::Record;
use crate::{Counts, Events, TraceError};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// No event is so long; a line that is, is left out.
const MAX_LINE: u64 = 64 << 10;

impl QemuEvents {
    /// The events of a log that QEMU's `log` backend wrote with `-msg timestamp=on`, as Debian's QEMU does.
    /// [`crate::Event::ticks`] are nanoseconds since 1970, full microseconds; [`crate::Event::pid`] is the thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read.
    pub fn log(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        Ok(self.log_from(
            File::open(path).map_err(|source| unreadable(path, source))?,
            path,
        ))
    }

    /// Returns the events of a log that is read from elsewhere, as [`QemuEvents::log`] does; `path` is for messages.
    pub fn log_from<'q>(&'q self, from: impl Read + 'q, path: &Path) -> Events<'q> {
        Events::of(Log::new(self, Box::new(from), path))
    }
}

/// The events of one log.
struct Log<'q> {
    qemu: &'q QemuEvents,
    from: BufReader<Box<dyn Read + 'q>>,
    path: PathBuf,
    line: Vec<u8>,
    record: Record,
}

impl<'q> Log<'q> {
    fn new(qemu: &'q QemuEvents, from: Box<dyn Read + 'q>, path: &Path) -> Log<'q> {
        Log {
            qemu,
            from: BufReader::with_capacity(64 << 10, from),
            path: path.to_owned(),
            line: Vec::new(),
            record: Record::default(),
        }
    }
}

impl Decoder for Log<'_> {
    fn step(&mut self, counts: &mut Counts) -> Result<DecoderStep, TraceError> {
        if !self.read_line()? {
            return Ok(DecoderStep::End { lost: None });
        }
        if self.line.len() as u64 == MAX_LINE && !self.line.ends_with(b"\n") {
            self.skip_line()?;
            return Ok(DecoderStep::Damaged { ends: false });
        }
        let text = String::from_utf8_lossy(self.line.trim_ascii_end());
        let Some((pid, ticks, rest)) = stamped(&text) else {
            let named = text
                .split(' ')
                .next()
                .is_some_and(|word| self.qemu.named(word).is_some());
            // Behind events with a time it can only be the rest of a line that another cut in two.
            if named && counts.events == 0 {
                let reason =
                    "its events have no timestamps: start QEMU with -msg timestamp=on".to_owned();
                return Err(TraceError::Damaged {
                    path: self.path.clone(),
                    reason,
                });
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
        Ok(DecoderStep::Event {
            ticks,
            cpu: 0,
            id,
            pid,
        })
    }

    fn record(&self) -> &[u8] {
        self.record.bytes()
    }
}

impl Log<'_> {
    /// Reads what is left of a line, at most [`MAX_LINE`]; `false` at the end.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let read = (&mut self.from)
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.line);
        Ok(read.map_err(|source| unreadable(&self.path, source))? > 0)
    }

    fn skip_line(&mut self) -> Result<(), TraceError> {
        while self.read_line()? && !self.line.ends_with(b"\n") {}
        Ok(())
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
