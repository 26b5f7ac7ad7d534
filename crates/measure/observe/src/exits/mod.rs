//! The VM exits of a guest of KVM, from KVM's tracepoints: by reason and address, counted as they come.

mod count;
mod counter;
mod event;
#[cfg(test)]
mod tests;
mod ticks;

pub use counter::ExitCounter;

use crate::process::{has_ended, processes};
use crate::{ProbeError, ProbeSet, Tracer};
use count::Counts;
use counter::Names;
use event::ThreadEvent;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::{Duration, Instant};
use vmtax_model::QemuThread;
use vmtax_model::samples::TracedExits;
use vmtax_trace::{Entry, Events, Formats, Input, KernelDecoder, PageLayout, cpu_stats};

/// Each CPU's trace: some 40,000 events, and it is emptied forty times a second.
const BUFFER_KIB: u32 = 4096;
const DRAIN_INTERVAL: Duration = Duration::from_millis(25);

/// A guest whose VM exits are being traced.
#[derive(Debug)]
pub struct ExitTracer {
    pid: i32,
    tracer: Tracer,
    formats: Formats,
    layout: PageLayout,
    threads: Vec<QemuThread>,
    begun: Instant,
}

impl ExitTracer {
    /// Starts to record the exits of a process with these threads.
    ///
    /// # Errors
    /// [`ProbeError`] where KVM's tracepoints may not be read.
    pub fn start(pid: i32, threads: Vec<QemuThread>) -> Result<ExitTracer, ProbeError> {
        let watched: Vec<i32> = threads
            .iter()
            .map(|thread| thread.tid)
            .chain(pit(pid))
            .collect();
        let tracer = Tracer::start(&ProbeSet::exits(&watched), BUFFER_KIB)?;
        let mut formats = Formats::default();
        let (mut layout, mut wrong) = (None, None);
        tracer.layouts(&mut |name, bytes| {
            let text = String::from_utf8_lossy(bytes);
            match name
                .strip_prefix("formats/")
                .and_then(|event| event.split_once('.'))
            {
                Some((system, _)) => wrong = formats.add(system, &text).err().or(wrong.take()),
                None if name == "header_page" => layout = PageLayout::parse(&text).ok(),
                None => {}
            }
            Ok(())
        })?;
        let layout = layout.ok_or_else(|| "its pages have an unknown layout".to_owned());
        let layout = layout
            .and_then(|layout| wrong.map_or(Ok(layout), Err))
            .map_err(ProbeError::Trace)?;
        tracer.on()?;
        Ok(ExitTracer {
            pid,
            tracer,
            formats,
            layout,
            threads,
            begun: Instant::now(),
        })
    }

    /// Records until the timeout, the process ends, or `stop` says so; also gives how long that was.
    ///
    /// # Errors
    /// [`ProbeError`] when the trace cannot be read.
    pub fn follow(
        self,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<(TracedExits, Duration), ProbeError> {
        let decoder = KernelDecoder::new(&self.formats);
        let (mut counts, mut waiting) = (Counts::default(), Waiting::default());
        while self.begun.elapsed() < time && !stop() && !has_ended(self.pid) {
            std::thread::sleep(DRAIN_INTERVAL.min(time.saturating_sub(self.begun.elapsed())));
            self.drain(&decoder, &mut waiting)?;
            waiting.hand_out(false, &mut counts);
        }
        self.tracer.off()?;
        let span = self.begun.elapsed();
        self.drain(&decoder, &mut waiting)?;
        waiting.hand_out(true, &mut counts);
        counts.end();
        let mut stats = Vec::new();
        self.tracer.stats(&mut |_, bytes| {
            stats.extend_from_slice(bytes);
            Ok(())
        })?;
        let dropped = cpu_stats(&String::from_utf8_lossy(&stats))
            .iter()
            .map(|cpu| cpu.dropped + cpu.overrun)
            .sum::<u64>();
        let lost = waiting.lost + dropped;
        let rows = Names::of(&self.formats).rows(
            &counts,
            self.threads.clone(),
            vmtax_clock::host_mhz(),
            lost,
        );
        Ok((rows, span))
    }

    /// Reads what was recorded since the last time.
    fn drain(&self, decoder: &KernelDecoder, waiting: &mut Waiting) -> Result<(), ProbeError> {
        let mut pages: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        self.tracer.drain(&mut |name, bytes| {
            pages
                .entry(name.to_owned())
                .or_default()
                .extend_from_slice(bytes);
            Ok(())
        })?;
        let inputs = pages.into_iter().map(|(name, pages)| Input {
            path: name.into(),
            cpu: 0,
            layout: self.layout,
            pages: Box::new(Cursor::new(pages)),
        });
        let unreadable = |e: vmtax_trace::TraceError| ProbeError::Trace(e.to_string());
        let mut events = Events::pages(&self.formats, inputs.collect()).map_err(unreadable)?;
        while let Some(entry) = events.next().map_err(unreadable)? {
            match entry {
                Entry::Event(event) => waiting.events.extend(ThreadEvent::read(decoder, &event)),
                Entry::Lost(lost) => {
                    waiting.lost += lost.events.unwrap_or(1);
                    waiting.events.push(ThreadEvent::lost(&lost));
                }
            }
        }
        Ok(())
    }
}

/// Events that were read, and may not be all of their time.
#[derive(Debug, Default)]
struct Waiting {
    events: Vec<ThreadEvent>,
    /// The latest time that the reading before saw: all events until then are here by now.
    until: u64,
    lost: u64,
}

impl Waiting {
    /// Hands the events out in order, those that others may still come before only when it is the `last` time.
    fn hand_out(&mut self, last: bool, counts: &mut Counts) {
        self.events.sort_by_key(|event| event.at);
        let ready = if last {
            self.events.len()
        } else {
            self.events.partition_point(|e| e.at <= self.until)
        };
        self.until = self.events.last().map_or(self.until, |event| event.at);
        self.events
            .drain(..ready)
            .for_each(|event| counts.take(&event));
    }
}

/// The kernel's thread that ticks for a QEMU's timer chip (PIT).
fn pit(pid: i32) -> Option<i32> {
    let name = format!("kvm-pit/{pid}");
    processes()
        .find(|thread| thread.comm == name)
        .map(|thread| thread.pid)
}
