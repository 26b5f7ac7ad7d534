//! Both ways to look at a process, at the same time.

use super::code;
use super::exits::{Counted, Exits};
use super::inside::SeenInside;
use crate::fault::Fault;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vmtax_model::samples::{OnCpu, ScheduleFacts, WallClock};
use vmtax_model::{Missing, ProfileFindings};
use vmtax_observe::{ProbeError, StackSampling, on_cpu, schedule, wall_clock};
use vmtax_profile::schedule::Schedule;
use vmtax_profile::{summary, waits};

/// What was seen, and what it says.
pub struct Taken {
    pub on_cpu: OnCpu,
    pub wall: Option<WallClock>,
    pub findings: ProfileFindings,
    /// The exits of its guest, to which [`Taken::name_exits`] gives names.
    pub counted: Option<Counted>,
    /// What its guest saw of itself; its findings are among the others.
    pub inside: SeenInside,
}

impl Taken {
    /// Takes in what its guest saw of itself.
    pub fn add_inside(&mut self, mut inside: SeenInside) {
        self.findings.guest = inside.findings.take();
        self.findings.missing.append(&mut inside.missing);
        self.inside = inside;
    }

    /// Says what the exits say. `tree`: QEMU's memory tree, where that is at hand.
    pub fn name_exits(&mut self, tree: Option<&str>) {
        if let Some(counted) = self.counted.take() {
            let (exits, missing) = counted.findings(tree);
            self.findings.exits = exits;
            self.findings.missing.extend(missing);
        }
    }
}

/// The ways to look at a process beside sampling it on CPU.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// Looks a second by the clock; 0 for none.
    pub wall_hz: u32,
    /// How long the scheduler's events are traced, at most.
    pub events: Duration,
    /// Whether its guest's processors may be asked where they are: as often as there are looks by the clock.
    pub processors: bool,
}

/// Looks at a process on CPU, through its scheduler's events, and then by the clock, whose looks stop threads, as the events
/// would show; the processors of a guest of KVM are looked at with those. What one way cannot see is said beside what the
/// others saw. The exits of a guest are counted meanwhile. It ends when `stopped` becomes true.
pub fn take(settings: &StackSampling, ways: Ways, exits: Option<Exits>, stopped: &AtomicBool) -> Result<Taken, Fault> {
    let pid = settings.pid;
    let program = program(pid);
    let stop = || stopped.load(Ordering::Relaxed);
    // Some time is left for looks by the clock.
    let tracing = ways.events.min(settings.time / 2);
    let looking = StackSampling { time: settings.time - tracing, hz: ways.wall_hz, ..settings.clone() };
    let monitor = exits.as_ref().and_then(Exits::monitor);
    let asks = ways.wall_hz > 0 && exits.is_some();
    let processors = || {
        wait(tracing, &stop);
        asks.then(|| code::executed(monitor.as_ref(), ways.processors, ways.wall_hz, looking.time, &stop))
    };
    let in_turn = || {
        let events = (!tracing.is_zero()).then(|| traced(pid, tracing, &stop));
        (events, (ways.wall_hz > 0).then(|| wall_clock(&looking, &stop)))
    };
    let (seen, (events, by_clock), counted, code) = std::thread::scope(|scope| {
        let counting = exits.map(|exits| scope.spawn(|| exits.follow(settings.time, &stop)));
        let clock = scope.spawn(in_turn);
        let code = scope.spawn(processors);
        let seen = on_cpu(settings, &stop);
        if matches!(seen, Err(ProbeError::Stacks(_))) {
            stopped.store(true, Ordering::Relaxed); // a wrong build is told at once
        }
        // A panic there is a bug here.
        let by_clock = clock.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let code = code.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let counted = counting.map(|count| count.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (seen, by_clock, counted, code)
    });
    let mut missing: Vec<Missing> = Vec::new();
    let code = code.and_then(|code| code.map_err(|why| missing.push(why)).ok());
    let events = match events {
        Some(Err(why)) => {
            missing.push(Missing::for_error("the scheduler's events and system calls", &why));
            None
        }
        Some(Ok((folder, facts, lacking))) => {
            missing.extend(lacking);
            Some(Schedule::read(folder.path(), facts)?)
        }
        None => None,
    };
    let wall = match by_clock {
        Some(Ok(wall)) => (wall.profile.total() > 0).then_some(wall),
        Some(Err(why)) => {
            missing.push(Missing::for_error("where threads wait", &why));
            None
        }
        None => None,
    };
    let on_cpu = match seen {
        Ok(seen) => seen,
        Err(why) if wall.is_some() && !matches!(why, ProbeError::Stacks(_)) => {
            missing.push(Missing::for_error("what runs on CPU", &why));
            OnCpu { hz: settings.hz, ..OnCpu::default() }
        }
        Err(why) => return Err(why.into()),
    };
    if on_cpu.profile.total() == 0 && wall.is_none() {
        return Err(ProbeError::Idle { pid, seconds: on_cpu.seconds }.into());
    }
    let mut findings = summary::of(&on_cpu, pid, &program);
    findings.wall = wall.as_ref().map(waits::of);
    findings.schedule = events.map(|events| vmtax_profile::schedule::of(&events, wall.as_ref()));
    findings.code = code;
    findings.missing = missing;
    Ok(Taken { on_cpu, wall, findings, counted, inside: SeenInside::default() })
}

/// Traces into a folder that goes away with it.
fn traced(
    pid: i32,
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<(TempDir, ScheduleFacts, Vec<Missing>), ProbeError> {
    let failed = |source| ProbeError::System { what: "writing what the kernel traced".to_owned(), source };
    let folder = tempfile::tempdir().map_err(failed)?;
    let (facts, missing) = schedule(pid, time, stop, &mut |name, bytes| {
        let path = folder.path().join(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(bytes)
    })?;
    Ok((folder, facts, missing))
}

/// Waits, unless it is to stop.
fn wait(time: Duration, stop: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop() {
        std::thread::sleep(Duration::from_millis(20).min(time));
    }
}

/// The program's name, as its file has it: longer than the 15 bytes that the kernel keeps.
pub fn program(pid: i32) -> String {
    // QEMU may be run through a loader of its own, which then is what the process runs.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.starts_with("qemu-system"));
    if let Some(name) = mapped {
        return name.trim_end_matches(" (deleted)").to_owned();
    }
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = exe.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.trim_end_matches(" (deleted)").to_owned();
    if name.is_empty() { "process".to_owned() } else { name }
}

/// Becomes true with Ctrl-C and its like: what was seen until then is shown.
pub fn stopped() -> Result<Arc<AtomicBool>, Fault> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).map_err(|e| Fault::file("catching signals", e))?;
    }
    Ok(stopped)
}
