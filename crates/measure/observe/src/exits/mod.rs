//! The VM exits of a running guest of KVM, from KVM's tracepoints: by reason and address, counted as they come.

mod count;
mod event;
#[cfg(test)]
mod tests;
mod ticks;

use crate::process::{has_ended, processes};
use crate::{ProbeError, ProbeSet, Tracer};
use count::{Counts, Reason};
use event::Event;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::{Duration, Instant};
use vmtax_model::samples::{ExitRow, TracedExits};
use vmtax_model::{AddressSpace, QemuThread};
use vmtax_trace::{Entry, Events, Formats, Input, KernelDecoder, PageLayout, cpu_stats, symbols};

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
    names: Names,
    threads: Vec<QemuThread>,
    begun: Instant,
}

/// The tables of names that the kernel's own formats hold.
#[derive(Debug, Default)]
struct Names {
    /// Of exit reasons: VMX's, SVM's.
    reasons: Vec<BTreeMap<u64, String>>,
    /// Of what QEMU is told.
    user: Vec<BTreeMap<u64, String>>,
}

impl ExitTracer {
    /// Starts to record the exits of a process with these threads.
    ///
    /// # Errors
    /// [`ProbeError`] where KVM's tracepoints may not be read.
    pub fn start(pid: i32, threads: Vec<QemuThread>) -> Result<ExitTracer, ProbeError> {
        let watched: Vec<i32> = threads.iter().map(|thread| thread.tid).chain(pit(pid)).collect();
        let tracer = Tracer::start(&ProbeSet::exits(&watched), BUFFER_KIB)?;
        let (mut formats, mut names) = (Formats::default(), Names::default());
        let (mut layout, mut wrong) = (None, None);
        tracer.layouts(&mut |name, bytes| {
            let text = String::from_utf8_lossy(bytes);
            match name.strip_prefix("formats/").and_then(|event| event.split_once('.')) {
                Some((system, event)) => {
                    wrong = formats.add(system, &text).err().or(wrong.take());
                    match event {
                        "kvm_exit" => names.reasons = symbols(&text),
                        "kvm_userspace_exit" => names.user = symbols(&text),
                        _ => {}
                    }
                }
                None if name == "header_page" => layout = PageLayout::parse(&text).ok(),
                None => {}
            }
            Ok(())
        })?;
        let layout = layout.ok_or_else(|| "its pages have an unknown layout".to_owned());
        let layout = layout.and_then(|layout| wrong.map_or(Ok(layout), Err)).map_err(ProbeError::Trace)?;
        tracer.on()?;
        Ok(ExitTracer { pid, tracer, formats, layout, names, threads, begun: Instant::now() })
    }

    /// Records until the timeout, the process ends, or `stop` says so.
    ///
    /// # Errors
    /// [`ProbeError`] when the trace cannot be read.
    pub fn follow(self, time: Duration, stop: &dyn Fn() -> bool) -> Result<TracedExits, ProbeError> {
        let decoder = KernelDecoder::new(&self.formats);
        let (mut counts, mut waiting) = (Counts::default(), Waiting::default());
        while self.begun.elapsed() < time && !stop() && !has_ended(self.pid) {
            std::thread::sleep(DRAIN_INTERVAL.min(time.saturating_sub(self.begun.elapsed())));
            self.drain(&decoder, &mut waiting)?;
            waiting.hand_out(false, &mut counts);
        }
        self.tracer.off()?;
        self.drain(&decoder, &mut waiting)?;
        waiting.hand_out(true, &mut counts);
        counts.end();
        let mut stats = Vec::new();
        self.tracer.stats(&mut |_, bytes| {
            stats.extend_from_slice(bytes);
            Ok(())
        })?;
        let dropped =
            cpu_stats(&String::from_utf8_lossy(&stats)).iter().map(|cpu| cpu.dropped + cpu.overrun).sum::<u64>();
        let lost = waiting.lost + dropped;
        Ok(self.names.rows(&counts, self.threads.clone(), vmtax_clock::host_mhz(), lost))
    }

    /// Reads what was recorded since the last time.
    fn drain(&self, decoder: &KernelDecoder, waiting: &mut Waiting) -> Result<(), ProbeError> {
        let mut pages: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        self.tracer.drain(&mut |name, bytes| {
            pages.entry(name.to_owned()).or_default().extend_from_slice(bytes);
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
                Entry::Event(event) => waiting.events.extend(Event::read(decoder, &event)),
                Entry::Lost(lost) => waiting.lost += lost.events.unwrap_or(1),
            }
        }
        Ok(())
    }
}

/// Events that were read, and may not be all of their time.
#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    /// The latest time that the reading before saw: all events until then are here by now.
    until: u64,
    lost: u64,
}

impl Waiting {
    /// Hands the events out in order, those that others may still come before only when it is the `last` time.
    fn hand_out(&mut self, last: bool, counts: &mut Counts) {
        self.events.sort_by_key(|event| event.at);
        let ready = if last { self.events.len() } else { self.events.partition_point(|e| e.at <= self.until) };
        self.until = self.events.last().map_or(self.until, |event| event.at);
        self.events.drain(..ready).for_each(|event| counts.take(&event));
    }
}

/// The kernel's thread that ticks for a QEMU's timer chip (PIT).
fn pit(pid: i32) -> Option<i32> {
    let name = format!("kvm-pit/{pid}");
    processes().find(|thread| thread.comm == name).map(|thread| thread.pid)
}

impl Names {
    /// What was counted, with KVM's names of the reasons.
    fn rows(&self, counts: &Counts, threads: Vec<QemuThread>, mhz: f64, lost: u64) -> TracedExits {
        let row = |(key, count): (&count::Key, &count::Count)| ExitRow {
            tid: key.tid,
            reason: self.reason(key.reason),
            access: key.access,
            count: count.count,
            user: count.user,
            timed: count.timed,
            ticks: count.ticks,
        };
        TracedExits {
            brackets: counts.told(),
            threads,
            rows: counts.counts.iter().map(row).collect(),
            regular: counts.interrupts.values().filter_map(|ticks| ticks.rate(mhz)).collect(),
            mhz,
            lost,
        }
    }

    /// A reason as KVM names it.
    fn reason(&self, reason: Reason) -> String {
        match reason {
            Reason::Hardware { isa, number } => {
                // 1 is VMX, 2 SVM; a KVM that is of one kind alone has one table.
                let table = self.reasons.get(if isa == 2 { 1 } else { 0 }).or(self.reasons.first());
                let named = table.and_then(|table| table.get(&number).or_else(|| table.get(&(number & 0xffff))));
                named.cloned().unwrap_or_else(|| format!("reason {number:#x}"))
            }
            Reason::Access(AddressSpace::Port) => "port I/O".to_owned(),
            Reason::Access(AddressSpace::Memory) => "MMIO".to_owned(),
            Reason::Access(AddressSpace::Msr) => "MSR".to_owned(),
            Reason::User(None) => "INTR (a signal to QEMU)".to_owned(),
            Reason::User(Some(number)) => {
                let named = self.user.first().and_then(|table| table.get(&number));
                named.cloned().unwrap_or_else(|| format!("KVM_EXIT {number}"))
            }
        }
    }
}
