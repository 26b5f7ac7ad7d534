//! A process sampled, traced and counted from outside: a QEMU while its guest works, or any process for a time. Each
//! sampler runs in its own thread; what one of them cannot observe is recorded as missing. VM exits are counted alone, too.

use super::observer::{Observer, PING, Stop, answered, failed, keep_in, wait};
use crate::RunError;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use vmtax_clock::beat;
use vmtax_configuration::configuration_of;
use vmtax_model::number::{counted, nanoseconds};
use vmtax_model::samples::{
    CodeSamples, CpuUse, CpuUses, ExitCounts, OnCpu, ProfileFacts, ScheduleFacts, WallClock,
};
use vmtax_model::{
    Accelerator, ClockReading, Inside, InsideFacts, Missing, ObservedVm, Ping, ProfileSettings,
    SCHEMA, files,
};
use vmtax_observe::counters::{cpu_use, process_stop};
use vmtax_observe::{
    ExitTracer, OnCpuSampler, ProbeError, StackSampling, StopTime, kvm_features, schedule,
    wall_clock,
};
use vmtax_recording::TrialFiles;
use vmtax_vm::{MachineError, Observed, RunningMachine};
use vmtax_vmm::{Monitor, Vm};

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
        let profiling = self.profiling.take();
        profiling.map(|profiling| result(profiling.join()))
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
    target: Target,
    on_cpu: Result<OnCpuSampler, ProbeError>,
    exits: Option<Exits>,
    cpu_use: Option<CpuUse>,
}

/// The process that is profiled, and how.
struct Target {
    vm: Vm,
    spec: ProfileSettings,
    sampling: StackSampling,
    /// True if reading a vCPU's registers is safe.
    may_ask: bool,
}

impl Profiler {
    fn start(vm: Vm, spec: ProfileSettings, no_breakpoints: bool) -> Profiler {
        let sampling = StackSampling {
            pid: vm.pid(),
            time: spec.time().unwrap_or(MAX_TIME),
            hz: spec.hz,
            stack: spec.stack,
            symbols: spec.symbols.clone(),
        };
        let exits = Exits::start(&vm);
        let may_ask = no_breakpoints || !vmtax_host::kvm_forgets_breakpoints();
        let on_cpu = OnCpuSampler::start(&sampling);
        let cpu_use = cpu_use(vm.pid());
        let target = Target {
            vm,
            spec,
            sampling,
            may_ask,
        };
        Profiler {
            target,
            on_cpu,
            exits,
            cpu_use,
        }
    }

    /// Samples, and stores what that gave and the facts of the process.
    fn follow(self, files: &Mutex<TrialFiles>, asked: &Stop<'_>) -> Result<(), RunError> {
        let Target { vm, spec, .. } = &self.target;
        let pid = vm.pid();
        // Now, since the process may end meanwhile.
        let (program, facts) = (vm.program(), vm.facts());
        let sampled = self.target.sample(self.on_cpu, self.exits, files, asked)?;
        let uses = self
            .cpu_use
            .zip(cpu_use(pid))
            .map(|(before, after)| CpuUses { before, after });
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = sampled.store(&mut files, pid, spec.hz, uses)?;
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

impl Target {
    /// Samples on CPU, traces the scheduler's events, and then samples by the wall clock, whose samples may stop threads, as the
    /// events would show; then the vCPUs of a guest of KVM are sampled, too. Its VM exits are counted meanwhile.
    fn sample(
        &self,
        on_cpu: Result<OnCpuSampler, ProbeError>,
        exits: Option<Exits>,
        files: &Mutex<TrialFiles>,
        asked: &Stop<'_>,
    ) -> Result<Sampled, ProbeError> {
        let (vm, spec, time) = (&self.vm, &self.spec, self.sampling.time);
        let failed = AtomicBool::new(false);
        let stop = || failed.load(Ordering::Relaxed) || asked();
        // Some time is left for samples by the wall clock.
        let tracing = spec.events().min(time / 2);
        let by_clock = StackSampling {
            time: time - tracing,
            hz: spec.wall_hz,
            ..self.sampling.clone()
        };
        // Reading its registers stops a vCPU, too.
        let asks = spec.stop_limit().filter(|_| exits.is_some());
        let sample_code = || {
            wait(tracing, &stop);
            asks.map(|limit| self.guest_code(&by_clock, limit, &stop))
        };
        let in_turn = || {
            let events = (!tracing.is_zero()).then(|| trace(vm.pid(), tracing, files, &stop));
            let wall = (spec.wall_hz > 0).then(|| wall_clock(&by_clock, spec.stop_limit(), &stop));
            (events, wall)
        };
        std::thread::scope(|scope| {
            let begin_all = || {
                let counting = exits.map(|exits| begin(scope, || exits.follow(vm, time, &stop)));
                let counting = counting.transpose()?;
                Ok((counting, begin(scope, in_turn)?, begin(scope, sample_code)?))
            };
            // Those that began must not go on for the whole time.
            let ending = |_: &ProbeError| failed.store(true, Ordering::Relaxed);
            let (counting, clock, code) = begin_all().inspect_err(ending)?;
            let on_cpu = on_cpu.map(|sampler| sampler.follow(&stop));
            let is_wrong_build = matches!(on_cpu, Err(ProbeError::Stacks(_)));
            failed.fetch_or(is_wrong_build, Ordering::Relaxed); // reported immediately
            let (events, wall) = result(clock.join());
            Ok(Sampled {
                on_cpu,
                events,
                wall,
                exits: counting.map(|counting| result(counting.join())),
                code: result(code.join()),
            })
        })
    }

    /// Samples the code that the guest's vCPUs execute, as often as the wall clock is sampled, or [`MAX_CODE_HZ`], until
    /// an answer takes longer than `limit`.
    fn guest_code(
        &self,
        sampling: &StackSampling,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<CodeSamples, Missing> {
        let missing = |why: &str, fix: &str| Missing {
            what: "vCPU registers".to_owned(),
            why: why.to_owned(),
            fix: fix.to_owned(),
        };
        if !self.may_ask {
            return Err(missing(
                "this host's KVM (kvm_pvm) loses a pending breakpoint exception when a vCPU's registers are read, which can \
                 crash a guest",
                "profile on a host with hardware virtualization",
            ));
        }
        let silent = "QEMU's monitor returned no registers of an x86 vCPU";
        let silent = || missing(silent, "sample longer");
        let no_monitor = || match self.vm.vmm().filter(|vmm| !vmm.is_qemu()) {
            Some(other) => format!("vmtax asks no monitor of {}", other.subject()),
            None => "QEMU has no QMP monitor".to_owned(),
        };
        let monitor = self
            .vm
            .monitor()
            .ok_or_else(|| missing(&no_monitor(), &self.vm.monitor_advice()))?;
        let vcpus = monitor.vcpus().map_err(|_| silent())?;
        let vcpus: Vec<u32> = vcpus.into_iter().map(|(number, _)| number).collect();
        let (hz, time) = (sampling.hz.min(MAX_CODE_HZ), sampling.time);
        let too_long = Cell::new(false);
        let mut ask = |vcpu, command: &str| {
            let asked = Instant::now();
            let answer = monitor.of_vcpu(vcpu, command).ok();
            too_long.set(too_long.get() || asked.elapsed() > limit);
            answer
        };
        let is_over = || stop() || too_long.get();
        let samples = vmtax_observe::guest_code(&vcpus, hz, time, &is_over, &mut ask);
        if samples.samples == 0 {
            Err(silent())
        } else {
            Ok(samples)
        }
    }
}

/// Traces the scheduler's events and the system calls of a process into the trial's files.
fn trace(
    pid: i32,
    time: Duration,
    files: &Mutex<TrialFiles>,
    stop: &dyn Fn() -> bool,
) -> Result<(ScheduleFacts, Vec<Missing>), ProbeError> {
    schedule(pid, time, stop, &mut |name, bytes| {
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        keep_in(files::SCHEDULE_TRACE, &mut files)(name, bytes)
    })
}

/// The results of the samplers of a profile, or why there are none.
struct Sampled {
    on_cpu: Result<OnCpu, ProbeError>,
    events: Option<Result<(ScheduleFacts, Vec<Missing>), ProbeError>>,
    wall: Option<Result<WallClock, ProbeError>>,
    /// The VM exits, with why they could not be traced.
    exits: Option<(ExitCounts, Option<ProbeError>)>,
    code: Option<Result<CodeSamples, Missing>>,
}

impl Sampled {
    /// Stores the samples; returns what is missing. An error where there are none on CPU and none by the wall clock.
    fn store(
        self,
        files: &mut TrialFiles,
        pid: i32,
        hz: u32,
        uses: Option<CpuUses>,
    ) -> Result<Vec<Missing>, RunError> {
        let mut missing: Vec<Missing> = Vec::new();
        let events = "the scheduler's events and system calls";
        if let Some((facts, lacking)) = given(self.events, events, &mut missing) {
            missing.extend(lacking);
            files.store(files::SCHEDULE, &facts)?;
        }
        let wall = given(self.wall, "where threads wait", &mut missing)
            .filter(|wall| wall.profile.total() > 0);
        let on_cpu = match self.on_cpu {
            Err(why) if wall.is_some() && !matches!(why, ProbeError::Stacks(_)) => {
                missing.push(Missing::for_error("what runs on CPU", &why));
                OnCpu {
                    hz,
                    ..OnCpu::default()
                }
            }
            sampled => sampled?,
        };
        if on_cpu.profile.total() == 0 && wall.is_none() {
            let seconds = on_cpu.seconds;
            return Err(ProbeError::Idle { pid, seconds }.into());
        }
        files.store(files::ON_CPU, &on_cpu)?;
        uses.map_or(Ok(()), |uses| files.store(files::CPU_USE, &uses))?;
        wall.map_or(Ok(()), |wall| files.store(files::WALL_CLOCK, &wall))?;
        if let Some((counts, why)) = self.exits {
            missing.extend(why.map(|why| Missing::for_error(EXITS, &why)));
            files.store(files::EXITS, &counts)?;
        }
        match self.code {
            Some(Ok(code)) => files.store(files::GUEST_CODE, &code)?,
            Some(Err(why)) => missing.push(why),
            None => {}
        }
        Ok(missing)
    }
}

/// Returns a sampler's result; where it failed, the reason is added to `missing`.
fn given<T>(
    done: Option<Result<T, ProbeError>>,
    what: &str,
    missing: &mut Vec<Missing>,
) -> Option<T> {
    let add = |why: &ProbeError| missing.push(Missing::for_error(what, why));
    done?.inspect_err(add).ok()
}

fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, ProbeError> {
    Builder::new()
        .spawn_scoped(scope, work)
        .map_err(ProbeError::Thread)
}

/// The result of a thread's work. A panic there is a bug here.
fn result<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Name of what tracing VM exits gives.
pub(super) const EXITS: &str = "VM exits by reason and device";

/// Counts the VM exits of a running VM, until the duration has passed, it ends, or `stop` says so. The counts go to `files`.
///
/// # Errors
/// [`RunError`] for a VM without exits, and when the files cannot be written.
pub(crate) fn vm_exits(
    vm: &Vm,
    spec: &ObservedVm,
    mut files: TrialFiles,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let pid = vm.pid();
    let (program, facts) = (vm.program(), vm.facts_among_all());
    let exits = Exits::start(vm).ok_or(RunError::NoExits { pid })?;
    let (counts, why) = exits.follow(vm, spec.time(), stop);
    if counts.traced.is_none() && counts.counters.is_empty() {
        return Err(why.map_or(RunError::NoExits { pid }, RunError::from));
    }
    files.store(files::EXITS, &counts)?;
    let facts = ProfileFacts {
        pid,
        program,
        vm: facts,
        missing: Vec::from_iter(why.map(|why| Missing::for_error(EXITS, &why))),
        ..ProfileFacts::default()
    };
    Ok(files.store(files::OBSERVED, &facts)?)
}

/// VM exits of a guest that KVM runs: traced where the kernel lets us, else by KVM's counters.
pub(super) struct Exits {
    tracer: Result<ExitTracer, ProbeError>,
    before: BTreeMap<String, u64>,
    begun: Instant,
}

impl Exits {
    /// `None` where the process has no guest of KVM's. From its return on no exit is missed.
    pub fn start(vm: &Vm) -> Option<Exits> {
        (vm.accelerator() == Some(Accelerator::Kvm)).then(|| Exits {
            before: counters(vm),
            tracer: ExitTracer::start(vm.pid(), vm.threads()),
            begun: Instant::now(),
        })
    }

    /// Counts until the timeout or `stop` says so; also gives why they could not be traced.
    pub fn follow(
        self,
        vm: &Vm,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> (ExitCounts, Option<ProbeError>) {
        let traced = self
            .tracer
            .and_then(|tracer| tracer.follow(time, stop))
            .inspect_err(|_| {
                wait(time.saturating_sub(self.begun.elapsed()), stop);
            });
        let span = traced
            .as_ref()
            .map_or_else(|_| self.begun.elapsed(), |(_, span)| *span);
        let mut counters = counters(vm);
        counters.iter_mut().for_each(|(name, value)| {
            *value = value.saturating_sub(self.before.get(name).copied().unwrap_or(0));
        });
        let memory_tree = vm.monitor().and_then(|monitor| monitor.memory_tree().ok());
        let (traced, why) = match traced {
            Ok((mut traced, _)) => {
                // Threads that began meanwhile have their roles by now.
                traced.threads.splice(0..0, vm.threads());
                (Some(traced), None)
            }
            Err(why) => (None, Some(why)),
        };
        let counts = ExitCounts {
            seconds: span.as_secs_f64(),
            traced,
            counters,
            memory_tree,
            monitor_advice: vm.monitor_advice(),
            apic: vm.apic_features(),
            kvm: kvm_features(),
            configuration: configuration_of(vm.pid()),
        };
        (counts, why)
    }
}

/// KVM's own: from debugfs, which disturbs no vCPU, or through QEMU, which takes no rights, where debugfs lacks those of vCPUs.
fn counters(vm: &Vm) -> BTreeMap<String, u64> {
    let read = vmtax_observe::kvm_counters(vm.pid());
    if read.contains_key("exits") {
        return read;
    }
    vm.monitor()
        .map(Monitor::kvm_counters)
        .filter(|counters| !counters.is_empty())
        .unwrap_or(read)
}

/// A guest sends names and numbers: more than this no guest sends that is sound, bytes.
const MAX_BYTES: usize = 256 << 20;

/// Has the guest sample and count itself.
pub(super) struct InsideObserver {
    vm: Option<Vm>,
    store: TrialFiles,
    pings: Vec<Result<Ping, MachineError>>,
    begun: ClockReading,
    timeout: Duration,
}

impl InsideObserver {
    pub fn start(
        vm: Option<Vm>,
        machine: &mut dyn RunningMachine,
        inside: Inside,
        timeout: Duration,
        store: TrialFiles,
    ) -> Result<InsideObserver, MachineError> {
        let pings = vec![machine.ping(PING)];
        let begun = beat();
        machine.start_sampling(inside)?;
        Ok(InsideObserver {
            vm,
            store,
            pings,
            begun,
            timeout,
        })
    }
}

impl Observer for InsideObserver {
    /// The guest's samples, and what brings them together with those of its QEMU, go to the trial's files.
    fn stop(
        self: Box<Self>,
        machine: &mut dyn RunningMachine,
        _: Option<Observed>,
    ) -> Result<(), MachineError> {
        let InsideObserver {
            vm,
            mut store,
            mut pings,
            begun,
            timeout,
        } = *self;
        let mut taken = 0;
        let mut missing = machine.stop_sampling(timeout, &mut |name, bytes| {
            let known = [files::GUEST_PROFILE, files::GUEST_CALLS].contains(&name);
            let name = known
                .then_some(name)
                .ok_or_else(|| format!("a file '{}'", name.escape_default()))?;
            taken += bytes.len();
            if taken > MAX_BYTES {
                return Err(format!("{} MiB and more of samples", MAX_BYTES >> 20));
            }
            store.append(name, bytes).map_err(|e| e.to_string())
        })?;
        let beats = [begun, beat()];
        pings.push(machine.ping(PING));
        let pings = answered(pings, &mut missing);
        let facts = InsideFacts {
            schema: SCHEMA,
            threads: vm.as_ref().map_or_else(Vec::new, Vm::threads),
            pings,
            kvm_offset: vm
                .as_ref()
                .and_then(|vm| vmtax_observe::kvm_offset(vm.pid())),
            beats,
            missing,
        };
        store
            .store(files::INSIDE, &facts)
            .map_err(failed("storing the guest's samples"))
    }
}
