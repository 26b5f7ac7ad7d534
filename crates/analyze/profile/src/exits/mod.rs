//! The VM exits of a running guest of KVM, from KVM's tracepoints: by reason, by address and device, by processor.

mod count;
mod devices;
mod event;
mod findings;
mod summary;
#[cfg(test)]
mod tests;
mod ticks;

pub use devices::Devices;
pub use summary::{counters_alone, summary};

use crate::ProfileError;
use crate::on_cpu::is_gone;
use count::Counts;
use event::{Event, Readers};
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::time::{Duration, Instant};
use vmtax_model::{QemuThread, Role};
use vmtax_observe::{ProbeSet, Tracer};
use vmtax_trace::{Entry, Events, Formats, Input, PageLayout, cpu_stats, symbols};

/// Each processor's trace: some 40,000 events, and it is emptied forty times a second.
const BUFFER_KIB: u32 = 4096;
const PACE: Duration = Duration::from_millis(25);

/// Whether KVM runs the process's guest: it then holds files of KVM's. `None` where they may not be seen.
pub fn has_kvm(pid: i32) -> Option<bool> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let mut names = files.filter_map(|file| fs::read_link(file.path()).ok());
    Some(names.any(|name| name.to_string_lossy().starts_with("anon_inode:kvm-vcpu")))
}

/// A guest whose exits are being recorded.
#[derive(Debug)]
pub struct Watching {
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
pub(crate) struct Names {
    /// Of exit reasons: VMX's, SVM's.
    reasons: Vec<BTreeMap<u64, String>>,
    /// Of what QEMU is told.
    user: Vec<BTreeMap<u64, String>>,
}

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    counts: Counts,
    names: Names,
    threads: Vec<QemuThread>,
    time: Duration,
    mhz: f64,
    lost: u64,
}

impl Watching {
    /// Begins to record.
    ///
    /// # Errors
    /// [`ProfileError::Probe`] where KVM's events may not be seen.
    pub fn start(pid: i32) -> Result<Watching, ProfileError> {
        let threads = vmtax_observe::threads(pid);
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
        let layout = layout.ok_or_else(|| "its pages are laid out unlike any that is known".to_owned());
        let layout = layout.and_then(|layout| wrong.map_or(Ok(layout), Err)).map_err(ProfileError::Trace)?;
        tracer.on()?;
        Ok(Watching { pid, tracer, formats, layout, names, threads, begun: Instant::now() })
    }

    /// Records until the time is over, the process ends, or `stop` says so.
    ///
    /// # Errors
    /// [`ProfileError`] when the trace cannot be read.
    pub fn follow(self, time: Duration, stop: &dyn Fn() -> bool) -> Result<Seen, ProfileError> {
        let readers = Readers::of(&self.formats);
        let (mut counts, mut waiting) = (Counts::default(), Waiting::default());
        while self.begun.elapsed() < time && !stop() && !is_gone(self.pid) {
            std::thread::sleep(PACE.min(time.saturating_sub(self.begun.elapsed())));
            self.drain(&readers, &mut waiting)?;
            waiting.hand_out(false, &mut counts);
        }
        let time = self.begun.elapsed();
        self.tracer.off()?;
        self.drain(&readers, &mut waiting)?;
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
        let mhz = vmtax_clock::host_mhz();
        // Threads that began meanwhile have their names by now.
        let mut threads = vmtax_observe::threads(self.pid);
        threads.extend(self.threads);
        Ok(Seen { counts, names: self.names, threads, time, mhz, lost })
    }

    /// Reads what was recorded since the last time.
    fn drain(&self, readers: &Readers, waiting: &mut Waiting) -> Result<(), ProfileError> {
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
        let unreadable = |e: vmtax_trace::TraceError| ProfileError::Trace(e.to_string());
        let mut events = Events::pages(&self.formats, inputs.collect()).map_err(unreadable)?;
        while let Some(entry) = events.next().map_err(unreadable)? {
            match entry {
                Entry::Event(event) => waiting.events.extend(readers.read(&event)),
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
    let name = format!("kvm-pit/{pid}\n");
    let all = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut threads = all.filter(|tid: &i32| fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|n| n == name));
    threads.next()
}

impl Seen {
    /// The number of a thread's virtual processor, where its name tells.
    fn vcpu(&self, tid: i32) -> Option<u32> {
        self.threads.iter().find(|thread| thread.tid == tid).and_then(|thread| match thread.role {
            Role::Vcpu(number) => Some(number),
            _ => None,
        })
    }
}
