//! What a process's threads do while they are on a processor.

use crate::kernel::Kernel;
use crate::names::{self, Names};
use crate::profile::Profile;
use crate::seen::{Seen, Unwound};
use crate::space::Space;
use crate::{ProfileError, records};
use linux_perf_event_reader::RawEventRecord;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_observe::{Sampler, Sampling, Trigger};

/// How long the rings may fill before they are read.
const PACE: Duration = Duration::from_millis(50);

/// What to profile, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The process.
    pub pid: i32,
    /// How long.
    pub time: Duration,
    /// Samples a second of each running thread.
    pub hz: u32,
    /// Bytes copied of each stack.
    pub stack: u32,
    /// An unstripped build of the program.
    pub symbols: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug)]
pub struct OnCpu {
    /// Who was seen where.
    pub profile: Profile,
    /// What drove the samples: `cycles`, `cpu-clock`, or as a recording of others has it.
    pub trigger: String,
    /// Whether the kernel's part of the stacks was seen.
    pub kernel: bool,
    /// How well stacks unwound.
    pub unwound: Unwound,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// How long was sampled.
    pub time: Duration,
    /// Whether the process ended before the time was over.
    pub ended: bool,
    /// Programs and libraries whose functions are not all named, with why.
    pub unnamed: Vec<(String, String)>,
    /// Processor time that taking and unwinding the samples took, of this program.
    pub own: Duration,
}

/// Samples a process's threads until the time is over, the process ends, or `stop` says so.
///
/// # Errors
/// [`ProfileError`] when it may not be sampled, or a given build is of another program.
pub fn on_cpu(settings: &Settings, stop: &dyn Fn() -> bool) -> Result<OnCpu, ProfileError> {
    let pid = settings.pid;
    // Before anything is sampled, so that a wrong build is told at once.
    let mut space = Space::of(pid);
    let build = settings.symbols.as_deref().map(|path| names::build(path, &space)).transpose()?;
    let mut seen = Seen::default();
    let begin = Instant::now();
    let before = own_time();
    let mut sampler = Sampler::start(pid, Sampling { hz: settings.hz, stack: settings.stack })?;
    let mut take = |record: RawEventRecord<'_>| {
        if let Ok(record) = record.parse() {
            records::take(&record, &mut space, &mut seen);
        }
    };
    let mut ended = false;
    let mut threads = thread_names(pid);
    while begin.elapsed() < settings.time && !ended && !stop() {
        let left = settings.time.saturating_sub(begin.elapsed());
        std::thread::sleep(PACE.min(left));
        let _ = sampler.wait(Duration::ZERO);
        sampler.drain(&mut take);
        ended = is_gone(pid);
    }
    let time = begin.elapsed();
    sampler.stop();
    sampler.drain(&mut take);
    let own = own_time().saturating_sub(before);
    threads.extend(thread_names(pid));
    let kernel = Kernel::read();
    let tables = Names::of(&space, &kernel, build);
    let name = |tid| threads.iter().rev().find(|(t, _)| *t == tid).map(|(_, name)| name.clone());
    Ok(OnCpu {
        profile: tables.profile(&seen, name),
        trigger: trigger(&sampler).to_owned(),
        kernel: sampler.sees_kernel(),
        unwound: seen.unwound,
        lost: seen.lost,
        time,
        ended,
        unnamed: tables.unnamed(),
        own,
    })
}

/// What drives the samples, as findings name it.
pub(crate) fn trigger(sampler: &Sampler) -> &'static str {
    match sampler.trigger() {
        Trigger::Cycles => "cycles",
        Trigger::CpuClock => "cpu-clock",
    }
}

/// Whether the process ended; one that waits to be buried did.
pub(crate) fn is_gone(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // "123 (name with ) in it) Z ..."
    status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Names of the process's threads, by number.
pub(crate) fn thread_names(pid: i32) -> Vec<(i32, String)> {
    let name = |tid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        Some((tid, name.trim_end().to_owned()))
    };
    vmtax_observe::threads(pid).iter().filter_map(|thread| name(thread.tid)).collect()
}

/// Processor time of this program so far.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

impl OnCpu {
    /// Where nothing could be sampled.
    pub fn nothing() -> OnCpu {
        OnCpu {
            profile: Profile::default(),
            trigger: String::new(),
            kernel: false,
            unwound: Unwound::default(),
            lost: 0,
            time: Duration::ZERO,
            ended: false,
            unnamed: Vec::new(),
            own: Duration::ZERO,
        }
    }
}
