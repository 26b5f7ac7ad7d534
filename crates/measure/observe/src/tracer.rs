//! A trace under way: made, switched on and off, saved, and gone without a trace; also that of a vmtax that was killed.

use crate::process::is_ending;
use crate::tracefs::{self, Instance, Sink};
use crate::uprobe::{self, Group, List};
use crate::{ProbeError, ProbeSet, TraceClock, TracedEvent, Uprobe, entries};
use std::cell::Cell;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vmtax_clock::beat;
use vmtax_model::Missing;

const AS_ROOT: &str = "run vmtax as root";
const OTHER_KERNEL: &str = "use a kernel that has it";
/// Name of the missing events where the guest's driver cannot be probed: KVM's events of the doorbell show the same
/// kick.
pub const VIRTQUEUE_KICKS: &str = "virtqueue kicks in the guest's driver";
/// The virtqueue, the first argument of each function that notifies.
const VQ: &str = "vq=%di:x64";

/// Events of up to two tracefs instances: *bound* ones, of given threads alone, and *free* ones. Dropping it removes both
/// instances and all uprobes that were defined for them.
#[derive(Debug)]
pub struct Tracer {
    // In this order: probes can be undefined once no instance listens to them.
    instances: Vec<(&'static str, Instance)>,
    group: Group,
    /// System and name of what is listened to.
    events: Vec<(String, String)>,
    missing: Vec<Missing>,
    clock: TraceClock,
    root: PathBuf,
}

impl Tracer {
    /// Sets everything up; nothing is recorded until [`Tracer::on`]. Each instance gets `buffer_kib` for each CPU;
    /// when that is full, later events are lost and counted.
    ///
    /// Events that this kernel does not have, or this user may not use, are left out and reported by
    /// [`Tracer::missing`].
    ///
    /// # Errors
    /// When there is no tracefs, no permission to make an instance, or no clock `x86-tsc`.
    pub fn start(set: &ProbeSet, buffer_kib: u32) -> Result<Tracer, ProbeError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (root, process) = (tracefs::tracefs()?, std::process::id());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut tracer = Tracer {
            instances: Vec::new(),
            group: Group::new(&root, format!("{}{process}_{number}", uprobe::PREFIX)),
            events: Vec::new(),
            missing: set.missing.clone(),
            clock: set.clock,
            root,
        };
        let wanted = [
            ("bound", !set.bound.is_empty() || !set.uprobes.is_empty()),
            ("free", !set.free.is_empty() || !set.notify.is_empty()),
        ];
        for (kind, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
            let name = format!("{}{process}-{number}-{kind}", tracefs::PREFIX);
            let instance = Instance::create(&tracer.root, &name, buffer_kib, set.alone, set.clock)?;
            match kind {
                "bound" => tracer.bind(&instance, set)?,
                _ => {
                    tracer.listen(&instance, &set.free);
                    tracer.notify(&instance, set.notify);
                }
            }
            tracer.instances.push((kind, instance));
        }
        Ok(tracer)
    }

    /// Begins to record.
    ///
    /// # Errors
    /// When tracefs refuses.
    pub fn on(&self) -> Result<(), ProbeError> {
        self.switch_to(true)
    }

    /// Ends recording.
    ///
    /// # Errors
    /// When tracefs refuses.
    pub fn off(&self) -> Result<(), ProbeError> {
        self.switch_to(false)
    }

    fn switch_to(&self, on: bool) -> Result<(), ProbeError> {
        self.instances
            .iter()
            .try_for_each(|(_, instance)| instance.switch_to(on))
    }

    /// Returns true if the tracer records an event of this name.
    pub(crate) fn records(&self, name: &str) -> bool {
        self.events.iter().any(|(_, event)| event == name)
    }

    /// Returns the events that could not be observed.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn bind(&mut self, instance: &Instance, set: &ProbeSet) -> Result<(), ProbeError> {
        let threads: Vec<String> = set.threads.iter().map(i32::to_string).collect();
        instance.write("options/event-fork", "1")?;
        instance.write("set_event_pid", &threads.join(" "))?;
        self.listen(instance, &set.bound);
        if !set.calls.is_empty() {
            self.single_calls(instance, &set.calls);
        }
        let mut defined: Vec<&Uprobe> = Vec::new();
        for probe in &set.uprobes {
            match self.group.user(probe) {
                Ok(()) if defined.iter().any(|other| other.event == probe.event) => {}
                Ok(()) => defined.push(probe),
                Err(e) => self
                    .missing
                    .push(refused(&format!("QEMU's {}", probe.function), &e)),
            }
        }
        let group = self.group.name().to_owned();
        for probe in defined {
            self.enable(instance, &group, probe.event, None);
        }
        Ok(())
    }

    fn listen(&mut self, instance: &Instance, events: &[TracedEvent]) {
        for event in events {
            let (system, names) = (event.system, event.names);
            match name_here(instance, event) {
                Some(name) => self.enable(instance, system, name, event.filter.as_deref()),
                None => self.missing.push(Missing {
                    what: format!("the event {system}:{}", names.first().unwrap_or(&"")),
                    why: "not in this kernel".into(),
                    fix: OTHER_KERNEL.into(),
                }),
            }
        }
    }

    fn single_calls(&mut self, instance: &Instance, calls: &[TracedEvent]) {
        let mut known = calls.to_vec();
        known.retain(|event| name_here(instance, event).is_some());
        if known.is_empty() {
            known = ProbeSet::calls(&[]).bound;
        }
        self.listen(instance, &known);
    }

    fn enable(&mut self, instance: &Instance, system: &str, name: &str, filter: Option<&str>) {
        let folder = format!("events/{system}/{name}");
        let filtered = filter.map_or(Ok(()), |filter| {
            instance.write(&format!("{folder}/filter"), filter)
        });
        match filtered.and_then(|()| instance.write(&format!("{folder}/enable"), "1")) {
            Ok(()) => self.events.push((system.into(), name.into())),
            Err(e) => self
                .missing
                .push(refused(&format!("the event {system}:{name}"), &e)),
        }
    }

    /// Has calls of the notify functions recorded, as far as they exist.
    fn notify(&mut self, instance: &Instance, functions: &[&str]) {
        let Some(first) = functions.first() else {
            return;
        };
        if !self.root.join("kprobe_events").exists() {
            self.missing.push(Missing {
                what: VIRTQUEUE_KICKS.into(),
                why: "this kernel has no kprobes".into(),
                fix: "use a guest kernel with CONFIG_KPROBE_EVENTS; without it, the kick is part of the next interval"
                    .into(),
            });
            return;
        }
        let mut why = None;
        let defined = functions.iter().filter(|f| {
            let defined = self.group.kernel("notify", f, VQ);
            defined.map_err(|e| why = Some(e)).is_ok()
        });
        match (defined.count(), why) {
            (0, Some(e)) => {
                let refused = refused(first, &e);
                self.missing.push(Missing {
                    what: VIRTQUEUE_KICKS.into(),
                    ..refused
                });
            }
            _ => {
                let group = self.group.name().to_owned();
                self.enable(instance, &group, "notify", None);
            }
        }
    }

    /// Hands out all that was recorded; switch it [`Tracer::off`] before. Names, of which one that is repeated goes on
    /// where it was:
    ///
    /// - `header_page`, `formats/SYSTEM.EVENT`: as in tracefs; `clock`: the clock's name;
    /// - `bound.cpuN.raw`, `free.cpuN.raw`: the ring buffer's pages, whole;
    /// - `stats`: a line `bound.cpuN` or `free.cpuN`, then that CPU's `stats`, taken after its pages.
    ///
    /// # Errors
    /// When tracefs refuses, or the sink does.
    pub fn save(&self, sink: Sink<'_>) -> Result<(), ProbeError> {
        self.layouts(sink)?;
        self.drain(sink)?;
        self.stats(sink)
    }

    /// The part of [`Tracer::save`] that says how pages and events are laid out.
    ///
    /// # Errors
    /// As [`Tracer::save`].
    pub fn layouts(&self, sink: Sink<'_>) -> Result<(), ProbeError> {
        tracefs::layouts(&self.root, &self.events, self.clock, sink)
    }

    /// The pages that are there by now, also while it records: none is handed out twice.
    ///
    /// # Errors
    /// As [`Tracer::save`].
    pub fn drain(&self, sink: Sink<'_>) -> Result<(), ProbeError> {
        self.instances
            .iter()
            .try_for_each(|(kind, instance)| tracefs::pages(kind, instance, sink))
    }

    /// Hands out the kernel's statistics of the buffers.
    ///
    /// # Errors
    /// As [`Tracer::save`].
    pub fn stats(&self, sink: Sink<'_>) -> Result<(), ProbeError> {
        self.instances
            .iter()
            .try_for_each(|(kind, instance)| tracefs::stats(kind, instance, sink))
    }
}

/// The name by which this kernel has an event.
fn name_here(instance: &Instance, event: &TracedEvent) -> Option<&'static str> {
    let mut names = event.names.iter().copied();
    names.find(|name| {
        let folder = format!("events/{}/{name}", event.system);
        instance.path(&folder).exists()
    })
}

fn refused(what: &str, why: &ProbeError) -> Missing {
    let fix = match why {
        ProbeError::NotPermitted { .. } => AS_ROOT,
        _ => OTHER_KERNEL,
    };
    Missing {
        what: what.into(),
        why: why.to_string(),
        fix: fix.into(),
    }
}

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

/// Removes the tracefs instances and probes of vmtax processes that are no more. Anything else, of a living vmtax or of
/// others, is left alone. Nothing to do where there is no tracefs or no permission.
pub fn remove_stale_traces() {
    if let Ok(root) = tracefs::tracefs() {
        sweep_in(&root);
    }
}

fn sweep_in(root: &Path) {
    let is_stale = |name: &str, prefix: &str| {
        let process = name.strip_prefix(prefix).and_then(process);
        process.is_some_and(is_gone)
    };
    let instances: Vec<DirEntry> = entries(root.join("instances")).collect();
    for instance in instances {
        let name = instance.file_name();
        if name
            .to_str()
            .is_some_and(|name| is_stale(name, tracefs::PREFIX))
        {
            tracefs::remove(&instance.path());
        }
    }
    // Those that an instance still listens to cannot be removed, so instances go first.
    for list in List::ALL {
        for group in list.groups(root) {
            if is_stale(&group, uprobe::PREFIX) {
                list.undefine(root, &group);
            }
        }
    }
}

/// The process at the beginning of the rest of a name: `123-0-bound`, `123_0`.
fn process(rest: &str) -> Option<i32> {
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[end..].starts_with(['-', '_']).then_some(())?;
    rest[..end].parse().ok()
}

fn is_gone(process: i32) -> bool {
    process > 0 && is_ending(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_a_process() {
        assert_eq!(process("123-0-bound"), Some(123));
        assert_eq!(process("123_0"), Some(123));
        for other in [
            "",
            "123",
            "-1-bound",
            "abc-1",
            "12x-0",
            "99999999999-0",
            "123/0",
        ] {
            assert_eq!(process(other), None, "{other}");
        }
        assert!(!is_gone(1) && !is_gone(std::process::id() as i32) && !is_gone(0));
        assert!(is_gone(i32::MAX));
    }
}
