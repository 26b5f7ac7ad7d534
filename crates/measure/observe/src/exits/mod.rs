//! The VM exits of a guest of KVM, from KVM's tracepoints: by reason and address, counted as they come.

mod count;
#[cfg(test)]
mod tests;

use crate::process::{has_ended, processes};
use crate::{ProbeError, ProbeSet, Tracer};
use count::{Count, Counts, Key, Reason, ThreadEvent};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::{Duration, Instant};
use vmtax_model::samples::{ExitRow, TracedExits};
use vmtax_model::{AddressSpace, QemuThread, Role};
use vmtax_trace::{
    Entry, Events, ExitReasons, Formats, Input, KernelDecoder, PageLayout, Symbols,
    cpu_of_raw_file, cpu_stats,
};

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
            let event = name.strip_prefix("formats/");
            match event.and_then(|event| event.split_once('.')) {
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
        let stats = cpu_stats(&String::from_utf8_lossy(&stats));
        let dropped = stats.iter().map(|cpu| cpu.dropped + cpu.overrun);
        let lost = waiting.lost + dropped.sum::<u64>();
        let (names, mhz) = (Names::read(&self.formats), vmtax_clock::host_mhz());
        Ok((names.rows(&counts, self.threads, mhz, lost), span))
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
            cpu: cpu_of_raw_file(&name).unwrap_or(0),
            path: name.into(),
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
        if self.lost > 0 {
            counts.expect_losses();
        }
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

/// Counts the VM exits in a trace.
#[derive(Debug)]
pub struct ExitCounter {
    decoder: KernelDecoder,
    names: Names,
    counts: Counts,
}

impl ExitCounter {
    /// Makes one for a trace with these formats.
    pub fn new(formats: &Formats) -> ExitCounter {
        ExitCounter {
            decoder: KernelDecoder::new(formats),
            names: Names::read(formats),
            counts: Counts::default(),
        }
    }

    /// Takes the next event; those of one thread must come in the order of time.
    pub fn take(&mut self, event: &vmtax_trace::Event<'_>) {
        if let Some(event) = ThreadEvent::read(&self.decoder, event) {
            self.counts.take(&event);
        }
    }

    /// Says before the first event that the trace lost some somewhere: an exit that ends on another CPU has no time then.
    pub fn expect_losses(&mut self) {
        self.counts.expect_losses();
    }

    /// Takes a loss of events: of an exit that it may have cut the time is not known.
    pub fn lost(&mut self, lost: &vmtax_trace::Lost) {
        self.counts.take(&ThreadEvent::lost(lost));
    }

    /// Returns the counts. `mhz`: ticks of the trace per microsecond; `lost`: events that are missing.
    pub fn finish(mut self, threads: Vec<QemuThread>, mhz: f64, lost: u64) -> TracedExits {
        self.counts.end();
        self.names.rows(&self.counts, threads, mhz, lost)
    }
}

/// The tables of names that the kernel's own formats hold.
#[derive(Debug, Default)]
struct Names {
    /// Names of exit reasons, by instruction set.
    reasons: ExitReasons,
    /// Names of the reasons that QEMU is told.
    user: Vec<Symbols>,
}

impl Names {
    /// Reads the names in a trace's formats.
    fn read(formats: &Formats) -> Names {
        let names = |event| formats.event("kvm", event).and_then(|id| formats.get(id));
        let names = |event| names(event).map_or_else(Vec::new, |format| format.names.clone());
        Names {
            reasons: ExitReasons::from_tables(&names("kvm_exit")),
            user: names("kvm_userspace_exit"),
        }
    }

    /// Returns the counts, with KVM's names of the reasons.
    fn rows(&self, counts: &Counts, threads: Vec<QemuThread>, mhz: f64, lost: u64) -> TracedExits {
        let row = |(key, count): (&Key, &Count)| ExitRow {
            tid: key.tid,
            reason: self.reason(key.reason),
            access: key.access,
            count: count.count,
            user: count.user,
            timed: count.timed,
            ticks: count.ticks,
        };
        let is_main = |thread: &&QemuThread| thread.role == Role::Main;
        let main: Vec<i32> = threads
            .iter()
            .filter(is_main)
            .map(|thread| thread.tid)
            .collect();
        TracedExits {
            brackets: counts.told(),
            rows: counts.counts.iter().map(row).collect(),
            in_guest: counts.in_guest().collect(),
            regular: counts.regular(mhz, &main),
            timer_lines: counts.timer_lines(mhz, &main),
            threads,
            mhz,
            lost,
            user_unknown: false,
        }
    }

    /// A reason as KVM names it.
    fn reason(&self, reason: Reason) -> String {
        match reason {
            Reason::Hardware { isa, number } => self.reasons.name(isa, number),
            Reason::Access(AddressSpace::Port) => "port I/O".to_owned(),
            Reason::Access(AddressSpace::Memory) => "MMIO".to_owned(),
            Reason::Access(AddressSpace::Msr) => "MSR".to_owned(),
            Reason::User(None) => "signal pending (KVM_EXIT_INTR)".to_owned(),
            Reason::User(Some(number)) => {
                let named = self.user.first().and_then(|table| table.names.get(&number));
                named
                    .cloned()
                    .unwrap_or_else(|| format!("unknown (KVM_EXIT {number})"))
            }
        }
    }
}
