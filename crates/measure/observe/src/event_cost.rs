//! Cost of a recorded event for the thread that passes it: timed with events of our own, in the kernel that is traced,
//! with the events recorded and without.

use crate::function_probes::{arguments, moved};
use crate::probe_set::ALL_CALLS;
use crate::uprobe_offset::Code;
use crate::{ProbeError, ProbeSet, TracedEvent, Tracer, Uprobe};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getppid, getuid};
use rustix::thread::{CpuSet, gettid, sched_getcpu, sched_setaffinity, set_name};
use std::ffi::CStr;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vmtax_model::{EventCost, EventKind, Side};

/// Name of the missing measurement where the costs of events cannot be measured.
pub const COST_OF_EVENTS: &str = "what recording an event costs";
const REPETITIONS: u32 = 3;
/// Number of hits of a repetition, without the events and with them.
const ITERATIONS: usize = 40;
/// About as long as a thread of QEMU waits for the disk.
const SLEEP: Duration = Duration::from_micros(50);
const BUFFER_KIB: u32 = 256;
const PROBE: &str = "calibrate";
/// Fields that the probe reads: as many as QEMU's probe points read.
const FIELDS: &str = "vq=%di:x64 elem=%si:x64 sector=+56(%si):u64";
/// [`probed`] is shorter, bytes.
const MAX_FUNCTION: usize = 256;
const PROGRAM: &str = "/proc/self/exe";
const NAME: &CStr = c"vmtax-calibrate";

/// Measures what each kind of event takes in this kernel, in some tenths of a second: an entry for each kind and repetition.
///
/// # Errors
/// As [`Tracer::start`], and where there are too many threads or descriptors.
pub fn event_costs(side: Side) -> Result<Vec<EventCost>, ProbeError> {
    // In a thread of its own, which binds itself to a CPU and takes a name.
    let calibration =
        std::thread::Builder::new().spawn(move || Calibration::start(side)?.repetitions());
    let ended = calibration.map_err(failed)?.join();
    ended.unwrap_or_else(|_| Err(failed(io::Error::other("its thread ended early"))))
}

fn failed(source: io::Error) -> ProbeError {
    ProbeError::system("calibrating trace events", source)
}

/// The set of events, and what passes them.
struct Calibration {
    set: ProbeSet,
    partner: Partner,
    element: [u64; 8],
}

/// Times of one hit, in ns: the first after a sleep, and the next.
type Times = [f64; 2];

impl Calibration {
    fn start(side: Side) -> Result<Calibration, ProbeError> {
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu());
        sched_setaffinity(None, &cpu).map_err(|e| failed(e.into()))?;
        set_name(NAME).map_err(|e| failed(e.into()))?;
        // It inherits the CPU: a wake-up is a switch.
        let partner = Partner::start().map_err(failed)?;
        let event = |system, names| TracedEvent {
            system,
            names,
            filter: None,
        };
        let mut events = vec![
            event("sched", &["sched_switch"]),
            event("sched", &["sched_waking"]),
            event("task", &["task_rename"]),
        ];
        let set = match side {
            Side::Host => ProbeSet {
                threads: vec![gettid().as_raw_nonzero().get(), partner.tid()],
                bound: events,
                calls: vec![
                    event("syscalls", &["sys_enter_getppid"]),
                    event("syscalls", &["sys_exit_getppid"]),
                ],
                uprobes: own_probe().into_iter().collect(),
                ..ProbeSet::default()
            },
            Side::Guest => {
                events.extend(ALL_CALLS.map(|names| event("raw_syscalls", names)));
                ProbeSet {
                    free: events,
                    notify: &["__x64_sys_getuid"],
                    alone: true,
                    ..ProbeSet::default()
                }
            }
        };
        Ok(Calibration {
            set,
            partner,
            element: [0; 8],
        })
    }

    fn repetitions(&self) -> Result<Vec<EventCost>, ProbeError> {
        // To start and to end a tracer takes longer than all of them.
        let without: Vec<_> = (0..REPETITIONS).map(|_| self.times()).collect();
        let tracer = Tracer::start(&self.set, BUFFER_KIB)?;
        tracer.on()?;
        let pairs = without.iter().map(|without| (without, self.times()));
        Ok(pairs
            .flat_map(|(without, with)| differences(&tracer, without, &with))
            .collect())
    }

    /// The median times of a hit of each kind.
    fn times(&self) -> [Times; EventKind::ALL.len()] {
        let mut all = EventKind::ALL.map(|_| [const { Vec::new() }; 2]);
        for _ in 0..ITERATIONS {
            std::thread::sleep(SLEEP);
            for kind in EventKind::ALL {
                for times in &mut all[kind as usize] {
                    let begin = Instant::now();
                    self.hit(kind);
                    times.push(begin.elapsed().as_nanos() as f64);
                }
            }
        }
        all.map(|of_kind| {
            of_kind.map(|mut times: Vec<f64>| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            })
        })
    }

    fn hit(&self, kind: EventKind) {
        match kind {
            EventKind::Call => _ = black_box(getppid()),
            EventKind::Schedule => self.partner.round_trip(),
            EventKind::Tracepoint => _ = set_name(NAME),
            EventKind::Uprobe => _ = black_box(probed(black_box(1), black_box(&self.element))),
            EventKind::Kprobe => _ = black_box(getuid()),
        }
    }
}

/// Returns the records of a hit of a kind: the events by which it is recognized, the number of events of the kind, and
/// the number of system calls that it makes in addition.
fn recorded(kind: EventKind) -> (&'static [&'static str], f64, f64) {
    match kind {
        EventKind::Call => (&["sys_enter", "sys_enter_getppid"], 2.0, 0.0),
        EventKind::Schedule => (&["sched_switch"], 4.0, 4.0),
        EventKind::Tracepoint => (&["task_rename"], 1.0, 1.0),
        EventKind::Uprobe => (&[PROBE], 1.0, 0.0),
        EventKind::Kprobe => (&["notify"], 1.0, 1.0),
    }
}

/// The cost of an event of each kind that the tracer recorded. Where it records every system call, their part is taken off.
fn differences(tracer: &Tracer, without: &[Times], with: &[Times]) -> Vec<EventCost> {
    let more = |kind: EventKind, i: usize| with[kind as usize][i] - without[kind as usize][i];
    let every_call = if tracer.records("sys_enter") {
        more(EventKind::Call, 1)
    } else {
        0.0
    };
    let kinds = EventKind::ALL
        .into_iter()
        .filter(|kind| recorded(*kind).0.iter().any(|name| tracer.records(name)));
    let cost = |kind: EventKind| {
        let (_, events, calls) = recorded(kind);
        let each = |i: usize| (more(kind, i) - calls * every_call) / events;
        EventCost {
            kind,
            first_ns: each(0),
            again_ns: each(1),
        }
    };
    kinds.map(cost).collect()
}

/// A function that a probe can be put on, as on QEMU's.
#[inline(never)]
fn probed(queue: u64, element: &[u64; 8]) -> u64 {
    called(queue).wrapping_add(element[7])
}

/// A call is an instruction that the kernel emulates.
#[inline(never)]
fn called(number: u64) -> u64 {
    black_box(number)
}

/// A probe on [`probed`]; `None` where it would not be a cheap one.
fn own_probe() -> Option<Uprobe> {
    let address = probed as fn(u64, &[u64; 8]) -> u64 as usize as u64;
    let maps = procfs::process::Process::myself()
        .and_then(|process| process.maps())
        .ok()?;
    let map = maps
        .into_iter()
        .find(|map| (map.address.0..map.address.1).contains(&address))?;
    let offset = address - map.address.0 + map.offset;
    let mut bytes = [0; MAX_FUNCTION];
    let length = File::open(PROGRAM)
        .and_then(|file| file.read_at(&mut bytes, offset))
        .ok()?;
    let place = Code::new(&bytes[..length]).entry(&arguments(FIELDS));
    place.cheap.then(|| Uprobe {
        event: PROBE,
        binary: Path::new(PROGRAM).to_owned(),
        offset: offset + place.offset,
        fields: moved(FIELDS, &place),
        function: PROBE,
    })
}

/// A thread that answers: to wake it and to be woken by it takes two wake-ups and two switches.
///
/// Runs on the CPU of the thread that started it, if that one is bound to one. It ends when this is dropped.
struct Partner {
    question: OwnedFd,
    answer: OwnedFd,
    tid: i32,
}

impl Partner {
    /// # Errors
    /// When there are too many descriptors or threads.
    fn start() -> io::Result<Partner> {
        let (questions, question) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, answers) = pipe_with(PipeFlags::CLOEXEC)?;
        let (send, receive) = channel();
        std::thread::Builder::new().spawn(move || {
            let _ = send.send(gettid().as_raw_nonzero().get());
            while take(&questions) && put(&answers) {}
        })?;
        let tid = receive.recv().map_err(io::Error::other)?;
        Ok(Partner {
            question,
            answer,
            tid,
        })
    }

    /// Returns the thread's ID.
    fn tid(&self) -> i32 {
        self.tid
    }

    /// Wakes it, and sleeps until it answers.
    fn round_trip(&self) {
        let _ = put(&self.question) && take(&self.answer);
    }
}

fn put(end: &OwnedFd) -> bool {
    rustix::io::write(end, &[1]).is_ok()
}

/// Waits for a byte; returns true if there is one, false if the other end is closed.
fn take(end: &OwnedFd) -> bool {
    rustix::io::read(end, &mut [0]).is_ok_and(|read| read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cheap_instruction_of_this_program_can_be_probed() {
        let probe = own_probe().unwrap();
        assert!(
            probe.offset > 0 && probe.fields.starts_with("vq=%"),
            "{probe:?}"
        );
    }
}
