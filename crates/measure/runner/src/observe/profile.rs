//! A process sampled, traced and counted from outside: a QEMU while its guest works, or any process for a time. Each
//! sampler runs in its own thread; what one of them cannot observe is recorded as missing.

use super::exits::Exits;
use super::observer::{Observer, failed};
use super::wait::{Stop, wait};
use std::cell::Cell;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use vmtax_model::number::{counted, nanoseconds};
use vmtax_model::samples::{CodeSamples, CpuUse, CpuUses, OnCpu, ProfileFacts};
use vmtax_model::{Missing, ProfileSettings, files};
use vmtax_observe::counters::{cpu_use, process_stop};
use vmtax_observe::{OnCpuSampler, ProbeError, StackSampling, StopTime, schedule, wall_clock};
use vmtax_recording::TrialFiles;
use vmtax_vm::{MachineError, Observed, RunningMachine, Vm};

use crate::RunError;

/// The longest profile.
const MAX_TIME: Duration = Duration::from_secs(86_400);
/// Reading a vCPU's registers takes 1 to 2 ms of QEMU's main loop.
const MAX_CODE_HZ: u32 = 50;

/// Observes a machine's QEMU.
pub(super) struct ProfileObserver {
    over: Arc<AtomicBool>,
    profiling: Option<JoinHandle<Result<(), RunError>>>,
}

impl ProfileObserver {
    /// Starts; from its return on no VM exit and no sample on CPU is missed. `no_breakpoints`: the guest makes none.
    pub fn start(
        vm: Vm,
        spec: &ProfileSettings,
        no_breakpoints: bool,
        files: TrialFiles,
    ) -> Result<ProfileObserver, ProbeError> {
        let over = Arc::new(AtomicBool::new(false));
        let (spec, told) = (spec.clone(), Arc::clone(&over));
        let (started, begun) = mpsc::channel();
        let profile = move || {
            let profiler = Profiler::start(vm, spec, no_breakpoints);
            drop(started);
            profiler.follow(&Mutex::new(files), &|| told.load(Ordering::Relaxed))
        };
        let profiling = Builder::new().spawn(profile).map_err(ProbeError::Thread)?;
        // Nothing is sent: the wait ends when the sender is gone.
        let _ = begun.recv() as Result<(), _>;
        Ok(ProfileObserver {
            over,
            profiling: Some(profiling),
        })
    }

    fn end(&mut self) -> Option<Result<(), RunError>> {
        self.over.store(true, Ordering::Relaxed);
        // A panic there is a bug here.
        self.profiling.take().map(joined)
    }
}

impl Observer for ProfileObserver {
    fn stop(
        mut self: Box<Self>,
        _: &mut dyn RunningMachine,
        _: Option<Observed>,
    ) -> Result<(), MachineError> {
        self.end().unwrap_or(Ok(())).map_err(|error| match error {
            RunError::Machine(error) => error,
            error => failed("profiling QEMU")(error),
        })
    }
}

impl Drop for ProfileObserver {
    fn drop(&mut self) {
        self.end();
    }
}

/// Profiles a process as the plan says, until the timeout, it ends, or `stop` says so. The artifacts go to `files`.
///
/// # Errors
/// [`RunError`] when it cannot be observed at all, or the files cannot be written.
pub(crate) fn profile(
    vm: &Vm,
    spec: &ProfileSettings,
    files: TrialFiles,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    Profiler::start(vm.clone(), spec.clone(), false).follow(&Mutex::new(files), stop)
}

/// Describes the expected cost of stopping a process's threads for samples, measured on a process of vmtax itself; `None`
/// where none is stopped.
pub(crate) fn expected_stops(vm: &Vm, spec: &ProfileSettings) -> Option<String> {
    let (pid, hz, limit) = (vm.pid(), spec.wall_hz, spec.stop_limit()?);
    let measure =
        || vmtax_observe::stop_time(Command::new("/proc/self/exe").args(["agent", "serve"]));
    let measured = Builder::new().spawn(measure).map(JoinHandle::join);
    let expected = match measured {
        Ok(Ok(Ok(StopTime { median, max }))) => format!(
            "{} a stop (median; longest {}) on this host now, at most {:.2} % of a thread's time",
            nanoseconds(median.as_nanos() as f64),
            nanoseconds(max.as_nanos() as f64),
            median.as_secs_f64() * f64::from(hz) * 100.0
        ),
        _ => "an unknown time a stop".to_owned(),
    };
    let threads = counted(vmtax_observe::thread_names(pid).len() as u64, "thread");
    Some(format!(
        "Wall-clock samples stop {threads} of process {pid} up to {hz} times a second: expected {expected}. A stop longer \
         than {} ends stopping.",
        nanoseconds(limit.as_nanos() as f64)
    ))
}

struct Profiler {
    vm: Vm,
    spec: ProfileSettings,
    sampling: StackSampling,
    on_cpu: Result<OnCpuSampler, ProbeError>,
    exits: Option<Exits>,
    cpu_use: Option<CpuUse>,
    /// True if reading a vCPU's registers is safe.
    may_ask: bool,
}

impl Profiler {
    fn start(vm: Vm, spec: ProfileSettings, no_breakpoints: bool) -> Profiler {
        let time = spec.time().unwrap_or(MAX_TIME);
        let symbols = spec.symbols.clone();
        let sampling = StackSampling {
            pid: vm.pid(),
            time,
            hz: spec.hz,
            stack: spec.stack,
            symbols,
        };
        let exits = Exits::start(&vm);
        let may_ask = no_breakpoints || !vmtax_host::kvm_forgets_breakpoints();
        let on_cpu = OnCpuSampler::start(&sampling);
        let cpu_use = cpu_use(vm.pid());
        Profiler {
            vm,
            spec,
            sampling,
            on_cpu,
            exits,
            cpu_use,
            may_ask,
        }
    }

    /// Samples on CPU, traces the scheduler's events, and then samples by the wall clock, whose samples may stop threads, as the
    /// events would show; then the vCPUs of a guest of KVM are sampled, too. Its VM exits are counted meanwhile.
    fn follow(self, files: &Mutex<TrialFiles>, asked: &Stop<'_>) -> Result<(), RunError> {
        let Profiler {
            vm,
            spec,
            sampling,
            on_cpu,
            exits,
            cpu_use: before,
            may_ask,
        } = self;
        let pid = vm.pid();
        // Now, since the process may end meanwhile.
        let (program, facts) = (vm.program(), vm.facts());
        let failed = AtomicBool::new(false);
        let stop = || failed.load(Ordering::Relaxed) || asked();
        let time = sampling.time;
        // Some time is left for samples by the wall clock.
        let tracing = spec.events().min(time / 2);
        let by_clock = StackSampling {
            time: time - tracing,
            hz: spec.wall_hz,
            ..sampling.clone()
        };
        let stop_limit = spec.stop_limit();
        // Reading its registers stops a vCPU, too.
        let asks = stop_limit.filter(|_| exits.is_some());
        let vm = &vm;
        let sampled_code = || {
            wait(tracing, &stop);
            asks.map(|limit| guest_code(vm, may_ask, &by_clock, limit, &stop))
        };
        let trace = || {
            schedule(pid, tracing, &stop, &mut |name, bytes| {
                let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                files
                    .append(&format!("{}/{name}", files::SCHEDULE_TRACE), bytes)
                    .map_err(io::Error::other)
            })
        };
        let in_turn = || {
            let events = (!tracing.is_zero()).then(trace);
            (
                events,
                (spec.wall_hz > 0).then(|| wall_clock(&by_clock, stop_limit, &stop)),
            )
        };
        let (sampled, (events, wall), exits, code) = std::thread::scope(|scope| {
            let begin_all = || {
                let counting = exits
                    .map(|exits| begin(scope, || exits.follow(vm, time, &stop)))
                    .transpose()?;
                Ok((
                    counting,
                    begin(scope, in_turn)?,
                    begin(scope, sampled_code)?,
                ))
            };
            // Those that began must not go on for the whole time.
            let ending = |_: &ProbeError| failed.store(true, Ordering::Relaxed);
            let (counting, clock, code) = begin_all().inspect_err(ending)?;
            let sampled = on_cpu.map(|sampler| sampler.follow(&stop));
            if matches!(sampled, Err(ProbeError::Stacks(_))) {
                failed.store(true, Ordering::Relaxed); // report a wrong build immediately
            }
            Ok::<_, ProbeError>((
                sampled,
                joined_in(clock),
                counting.map(joined_in),
                joined_in(code),
            ))
        })?;

        let uses = before
            .zip(cpu_use(pid))
            .map(|(before, after)| CpuUses { before, after });
        let mut missing: Vec<Missing> = Vec::new();
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let files = &mut *files;
        match events {
            Some(Ok((facts, lacking))) => {
                missing.extend(lacking);
                files.store(files::SCHEDULE, &facts)?;
            }
            Some(Err(why)) => {
                missing.push(Missing::for_error(
                    "the scheduler's events and system calls",
                    &why,
                ));
            }
            None => {}
        }
        let wall = match wall {
            Some(Err(why)) => {
                missing.push(Missing::for_error("where threads wait", &why));
                None
            }
            wall => wall
                .transpose()
                .ok()
                .flatten()
                .filter(|wall| wall.profile.total() > 0),
        };
        let on_cpu = match sampled {
            Ok(sampled) => sampled,
            Err(why) if wall.is_some() && !matches!(why, ProbeError::Stacks(_)) => {
                missing.push(Missing::for_error("what runs on CPU", &why));
                OnCpu {
                    hz: spec.hz,
                    ..OnCpu::default()
                }
            }
            Err(why) => return Err(why.into()),
        };
        if on_cpu.profile.total() == 0 && wall.is_none() {
            return Err(ProbeError::Idle {
                pid,
                seconds: on_cpu.seconds,
            }
            .into());
        }
        files.store(files::ON_CPU, &on_cpu)?;
        uses.map_or(Ok(()), |uses| files.store(files::CPU_USE, &uses))?;
        wall.map_or(Ok(()), |wall| files.store(files::WALL_CLOCK, &wall))?;
        if let Some((counts, why)) = exits {
            missing
                .extend(why.map(|why| Missing::for_error("VM exits by reason and device", &why)));
            files.store(files::EXITS, &counts)?;
        }
        match code {
            Some(Ok(code)) => files.store(files::GUEST_CODE, &code)?,
            Some(Err(why)) => missing.push(why),
            None => {}
        }
        let (state, process_stop) = (vm.run_state(), process_stop(pid));
        let facts = ProfileFacts {
            pid,
            program,
            file: None,
            vm: facts,
            state,
            process_stop,
            missing,
        };
        Ok(files.store(files::OBSERVED, &facts)?)
    }
}

/// Samples the code that the guest's vCPUs execute, as often as the wall clock is sampled, or [`MAX_CODE_HZ`], until
/// an answer takes longer than `limit`.
fn guest_code(
    vm: &Vm,
    may_ask: bool,
    sampling: &StackSampling,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<CodeSamples, Missing> {
    let missing = |why: &str, fix: &str| {
        let what = "vCPU registers".to_owned();
        Missing {
            what,
            why: why.to_owned(),
            fix: fix.to_owned(),
        }
    };
    if !may_ask {
        return Err(missing(
            "this host's KVM (kvm_pvm) loses a pending breakpoint exception when a vCPU's registers are read, which can \
             crash a guest",
            "profile on a host with hardware virtualization",
        ));
    }
    let silent = || {
        missing(
            "QEMU's monitor returned no registers of an x86 vCPU",
            "sample longer",
        )
    };
    let monitor = vm
        .monitor()
        .ok_or_else(|| missing("QEMU has no QMP monitor", &vm.monitor_advice()))?;
    let vcpus: Vec<u32> = monitor
        .vcpus()
        .map_err(|_| silent())?
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    let (hz, time) = (sampling.hz.min(MAX_CODE_HZ), sampling.time);
    let too_long = Cell::new(false);
    let mut ask = |vcpu, command: &str| {
        let asked = Instant::now();
        let answer = monitor.of_vcpu(vcpu, command).ok();
        too_long.set(too_long.get() || asked.elapsed() > limit);
        answer
    };
    let samples =
        vmtax_observe::guest_code(&vcpus, hz, time, &|| stop() || too_long.get(), &mut ask);
    if samples.samples == 0 {
        Err(silent())
    } else {
        Ok(samples)
    }
}

fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, ProbeError> {
    Builder::new()
        .spawn_scoped(scope, work)
        .map_err(ProbeError::Thread)
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn joined_in<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
