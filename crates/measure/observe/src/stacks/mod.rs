//! Stacks of a process's threads, sampled.

mod guest;
mod wall_clock;

pub use guest::GuestSampler;
pub use wall_clock::wall_clock;

use crate::clock::own_cpu_time;
use crate::process::{has_ended, thread_names};
use crate::{ProbeError, SampleSettings, Sampler, Trigger};
use linux_perf_event_reader::RawEventRecord;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_model::samples::OnCpu;
use vmtax_trace::stacks::{self, Kernel, Names, SampledStacks, Space};

/// Interval at which the rings are read.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// The process of which stacks are sampled, and how.
#[derive(Debug, Clone)]
pub struct StackSampling {
    /// ID of the process.
    pub pid: i32,
    /// Duration of the sampling.
    pub time: Duration,
    /// Samples per second: on CPU of each thread that runs, by the wall clock of every thread.
    pub hz: u32,
    /// Bytes copied of each stack.
    pub stack: u32,
    /// An unstripped build of the program.
    pub symbols: Option<PathBuf>,
}

/// Samples a process's threads on CPU; from [`OnCpuSampler::start`] on nothing is missed.
pub struct OnCpuSampler {
    settings: StackSampling,
    sampler: Sampler,
    space: Space,
    build: Option<stacks::Elf>,
    begin: Instant,
    /// CPU time of this program before.
    before: Duration,
}

impl OnCpuSampler {
    /// Starts to sample.
    ///
    /// # Errors
    /// [`ProbeError`] when it may not be sampled; [`ProbeError::Stacks`] when a given build is of another program.
    pub fn start(settings: &StackSampling) -> Result<OnCpuSampler, ProbeError> {
        let pid = settings.pid;
        // Before anything is sampled, so that a wrong build is told at once.
        let (space, build) = space_and_build(settings)?;
        let (begin, before) = (Instant::now(), own_cpu_time());
        let sampler = Sampler::start(
            pid,
            SampleSettings {
                hz: settings.hz,
                stack: settings.stack,
            },
        )?;
        Ok(OnCpuSampler {
            settings: settings.clone(),
            sampler,
            space,
            build,
            begin,
            before,
        })
    }

    /// Goes on until the timeout, the process ends, or `stop` says so.
    pub fn follow(self, stop: &dyn Fn() -> bool) -> OnCpu {
        let OnCpuSampler {
            settings,
            mut sampler,
            mut space,
            build,
            begin,
            before,
        } = self;
        let pid = settings.pid;
        let mut sampled = SampledStacks::default();
        let mut take = |record: RawEventRecord<'_>| {
            if let Ok(record) = record.parse() {
                stacks::take(&record, &mut space, &mut sampled);
            }
        };
        let mut ended = false;
        let mut threads: HashMap<i32, String> = thread_names(pid).into_iter().collect();
        while begin.elapsed() < settings.time && !ended && !stop() {
            let left = settings.time.saturating_sub(begin.elapsed());
            std::thread::sleep(DRAIN_INTERVAL.min(left));
            let _ = sampler.wait(Duration::ZERO);
            sampler.drain(&mut take);
            ended = has_ended(pid);
        }
        let time = begin.elapsed();
        sampler.stop();
        sampler.drain(&mut take);
        let own = own_cpu_time().saturating_sub(before);
        threads.extend(thread_names(pid));
        let kernel = Kernel::read();
        let tables = Names::find(&space, &kernel, build);
        OnCpu {
            profile: tables.profile(&sampled, |tid| threads.get(&tid).cloned()),
            hz: settings.hz,
            trigger: trigger(&sampler).to_owned(),
            kernel: sampler.sees_kernel(),
            unwound: sampled.unwound,
            lost: sampled.lost,
            seconds: time.as_secs_f64(),
            ended,
            unnamed: tables.unnamed(),
            own_s: own.as_secs_f64(),
        }
    }
}

/// Returns the name that findings give the trigger of the samples.
pub(crate) fn trigger(sampler: &Sampler) -> &'static str {
    match sampler.trigger() {
        Trigger::Cycles => "cycles",
        Trigger::CpuClock => "cpu-clock",
    }
}

/// The address space of the process, and the unstripped build of its program, if one was given.
fn space_and_build(
    settings: &StackSampling,
) -> Result<(Space, Option<stacks::Elf>), stacks::StackError> {
    let space = Space::of_process(settings.pid);
    let build = settings.symbols.as_deref();
    let build = build.map(|path| stacks::build(path, &space)).transpose()?;
    Ok((space, build))
}
