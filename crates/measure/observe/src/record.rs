//! Traces for a time, and hands out pages while it does.

use crate::trace_sink::Sink;
use crate::{ProbeError, Tracer};
use std::cell::Cell;
use std::time::{Duration, Instant};
use vmtax_clock::beat;

/// Interval at which the kernel's buffers are emptied.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);

/// Time of the recorded events, without what was in flight at either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// When every event was recorded from, ticks of this machine.
    pub begin: u64,
    /// Until when, ticks.
    pub end: u64,
    /// True if it ended because of the maximum number of bytes.
    pub full: bool,
}

/// The size of each CPU's buffer, KiB, with so much for all together.
pub fn cpu_buffer_kib(all: usize, each: std::ops::RangeInclusive<usize>) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (all / cpus).clamp(*each.start(), *each.end()) as u32
}

impl Tracer {
    /// Records until the time has passed, `is_over` says so, or `max_bytes` were handed out; the names are those of
    /// [`Tracer::save`].
    ///
    /// # Errors
    /// As [`Tracer::save`].
    pub fn record(
        &self,
        time: Duration,
        max_bytes: u64,
        is_over: &dyn Fn() -> bool,
        sink: Sink<'_>,
    ) -> Result<Recorded, ProbeError> {
        let kept = Cell::new(0_u64);
        let mut keep = |name: &str, bytes: &[u8]| {
            kept.set(kept.get() + bytes.len() as u64);
            sink(name, bytes)
        };
        self.layouts(&mut keep)?;
        self.on()?;
        let (begun, begin) = (Instant::now(), beat().ticks);
        let mut full = false;
        while begun.elapsed() < time && !is_over() && !full {
            std::thread::sleep(DRAIN_INTERVAL.min(time.saturating_sub(begun.elapsed())));
            self.drain(&mut keep)?;
            full = kept.get() >= max_bytes;
        }
        let end = beat().ticks;
        self.off()?;
        self.drain(&mut keep)?;
        self.stats(&mut keep)?;
        Ok(Recorded { begin, end, full })
    }
}
