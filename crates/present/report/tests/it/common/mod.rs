//! Recordings that look like real ones, made up around published figures (sysbench on native, KVM and TCG).

pub mod layers;
pub mod many_runs;
pub mod studies;
pub mod traced;

use std::path::PathBuf;
use vmtax_findings::*;
use vmtax_model::*;
use vmtax_recording::{Manifest, Recording};

/// The machines that `run` compares.
pub const THREE: &[Machine] = &[Machine::NATIVE, Machine::KVM, Machine::TCG];

/// Native figure, and the cost on KVM and TCG over it.
const FIGURES: &[(Metric, f64, f64, f64)] = &[
    (Metric::CpuEvents, 13_401.2, 1.277, 33.5),
    (Metric::ThreadsEvents, 18_770.0, 3.83, 106.0),
    (Metric::MutexTime, 0.0255, 4.88, 38.7),
    (Metric::MemoryBandwidth, 12_569.2, 1.815, 17.7),
    (Metric::MemoryOperations, 1_608_862.0, 1.815, 17.7),
    (Metric::FileioPrepare, 113.5, 2.29, 7.08),
    (Metric::FileioReads, 32_091.7, 35.7, 466.0),
    (Metric::FileioWrites, 21_395.3, 35.7, 456.0),
    (Metric::FileioFsyncs, 68_461.0, 31.8, 228.0),
    (Metric::FileioReadBandwidth, 501.4, 35.7, 464.0),
    (Metric::FileioWriteBandwidth, 334.3, 35.7, 457.0),
    (Metric::SyscallGetpid, 49.2, 1.01, 14.2),
    (Metric::SyscallReadNull, 88.0, 1.12, 19.0),
    (Metric::SyscallWriteNull, 86.0, 1.13, 19.4),
    (Metric::SyscallPipe, 3_710.0, 2.2, 24.0),
    (Metric::SyscallStat, 412.0, 0.93, 21.0),
    (Metric::SyscallOpenClose, 801.0, 0.96, 22.0),
    (Metric::SyscallFork, 61_000.0, 2.9, 31.0),
    (Metric::SyscallExec, 282_000.0, 2.6, 28.0),
    (Metric::SyscallClockVdso, 21.0, 1.0, 9.3),
    (Metric::SyscallClockRaw, 63.0, 1.02, 15.0),
    (Metric::SyscallMmap, 1_090.0, 3.3, 26.0),
    (Metric::SyscallContextSwitch, 1_420.0, 1.9, 21.0),
    (Metric::SyscallPageFault, 391.0, 3.1, 25.0),
    (Metric::SyscallSignal, 655.0, 1.2, 18.0),
    (Metric::SyscallFutex, 4_120.0, 3.4, 16.0),
    (Metric::DiskMedian, 11_800.0, 3.9, 9.2),
    (Metric::DiskTail, 31_200.0, 3.1, 8.0),
    (Metric::DiskRate, 78_900.0, 3.8, 9.0),
];

/// Returns the workloads of `vmtax run`.
pub fn workloads() -> impl Iterator<Item = WorkloadName> {
    WorkloadName::usual()
}

/// The workload's operations with a typical native time, ns.
fn operations(workload: WorkloadName) -> Vec<(String, f64)> {
    match workload {
        WorkloadName::Cpu => vec![("event".into(), 74_000.0)],
        WorkloadName::Threads => vec![("event".into(), 26_600_000.0)],
        WorkloadName::Mutex => vec![("event".into(), 21_770_000.0)],
        WorkloadName::Memory => vec![("event".into(), 502.0)],
        WorkloadName::Fileio => {
            vec![
                ("read".into(), 9_100.0),
                ("write".into(), 14_000.0),
                ("fsync".into(), 210_000.0),
            ]
        }
        WorkloadName::Disk => vec![("read".into(), 11_800.0)],
        WorkloadName::Syscalls => FIGURES
            .iter()
            .filter(|f| f.0.workload() == workload)
            .map(|f| (f.0.operation().unwrap().to_owned(), f.1))
            .collect(),
        _ => vec![],
    }
}

fn latency(random: &mut fastrand::Rng, typical: f64, n: u32) -> Latency {
    let mut l = Latency::new();
    for _ in 0..n {
        let normal: f64 = ((0..4).map(|_| random.f64()).sum::<f64>() - 2.0) * 1.7;
        let tail = if random.f64() < 0.02 {
            1.0 + 6.0 * random.f64()
        } else {
            1.0
        };
        l.record((typical * (normal * 0.12).exp() * tail) as u64);
    }
    l
}

pub fn kernel(release: &str) -> KernelIdentity {
    KernelIdentity {
        system: "Linux".into(),
        release: release.into(),
        version: match release {
            "6.18.0" => "#1 SMP PREEMPT_DYNAMIC 2026-11-02",
            _ => "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)",
        }
        .into(),
    }
}

fn cost(figure: &(Metric, f64, f64, f64), machine: Machine) -> f64 {
    match machine {
        Machine::NATIVE => 1.0,
        Machine::KVM => figure.2,
        _ => figure.3,
    }
}

fn result(random: &mut fastrand::Rng, workload: WorkloadName, machine: Machine) -> TrialResult {
    let mut measures = Vec::new();
    let mut unsupported = Vec::new();
    let mut slower = 1.0;
    for f in FIGURES.iter().filter(|f| f.0.workload() == workload) {
        if machine == Machine::TCG && f.0 == Metric::SyscallFutex {
            unsupported.push(Unsupported {
                metric: f.0,
                reason: "ENOSYS: futex".into(),
            });
            continue;
        }
        let noise = (0..4).map(|_| random.f64() - 0.5).sum::<f64>() * 0.03 + 1.0;
        slower = cost(f, machine) * noise;
        let value = if f.0.better() == Better::Lower {
            f.1 * slower
        } else {
            f.1 / slower
        };
        measures.push(Measure { metric: f.0, value });
    }
    let n = if workload == WorkloadName::Mutex {
        4
    } else {
        400
    };
    let syscall_cost = |name: &str| {
        FIGURES
            .iter()
            .find(|f| f.0.id() == format!("syscalls.{name}"))
            .map(|f| cost(f, machine))
    };
    TrialResult {
        workload: WorkloadSpec::new(workload).with("time", 1),
        measures,
        exits: Vec::new(),
        output: None,
        operations: operations(workload)
            .into_iter()
            .map(|(name, ns)| {
                let typical = ns
                    * syscall_cost(&name)
                        .filter(|_| workload == WorkloadName::Syscalls)
                        .unwrap_or(slower);
                Operation {
                    latency: latency(random, typical, n),
                    name,
                }
            })
            .collect(),
        unsupported,
        kept: vec![],
        notes: vec![],
        unanswered: None,
        fairness: (!matches!(workload, WorkloadName::Syscalls | WorkloadName::Disk)).then_some(
            Fairness {
                threads: 4,
                events_mean: 376.458,
                events_stddev: 38.13,
                time_mean_s: 10.0144,
                time_stddev_s: 0.01,
            },
        ),
        total_s: 1.0004,
        timer: Timer {
            source: TimerSource::Tsc,
            mhz: 2596.1,
            error: 1e-6,
            pair_ns: 24.0,
            reason: None,
        },
        kernel: kernel(if machine == Machine::NATIVE {
            "6.18.0"
        } else {
            "6.1.0-37-amd64"
        }),
    }
}

pub fn host() -> HostFacts {
    let check = |id: &str, subject: &str, state, found: &str, why: &str, fix: Option<&str>| Check {
        id: id.into(),
        subject: subject.into(),
        state,
        found: found.into(),
        why: why.into(),
        problem: None,
        remedies: fix
            .map(|fix| Remedy::instruction(fix.into()))
            .into_iter()
            .collect(),
    };
    HostFacts {
        schema: SCHEMA,
        identity: HostIdentity::default(),
        kernel: "6.18.0".into(),
        distribution: "Debian GNU/Linux 12 (bookworm)".into(),
        cpu: CpuFacts {
            model: "AMD EPYC 7763 64-Core Processor".into(),
            microcode: None,
            online: 2,
            threads_per_core: 1,
            virtualisation: None,
            hypervisor: Some("kvm".into()),
            invariant_tsc: true,
            clocksource: "tsc".into(),
            governor: None,
            steal: 0.004,
        },
        memory_mib: 24_052,
        transparent_hugepage: None,
        halt_poll_ns: None,
        settings: Default::default(),
        kvm: KvmFacts {
            class: KvmClass::EmulatesKernels,
            evidence: "8.0e5 loops/s in kernel mode, 1.7e9 in user mode".into(),
        },
        qemu: vec![QemuFacts {
            path: PathBuf::from("/usr/bin/qemu-system-x86_64"),
            version: "7.2.22".into(),
            accelerators: vec!["kvm".into(), "tcg".into()],
            aio: vec!["threads".into(), "native".into(), "io_uring".into()],
            iothread: true,
            exported_functions: 9459,
            trace_backends: vec!["log".into()],
        }],
        kernels: vec![],
        checks: vec![
            check(
                "cpu",
                "CPU",
                Readiness::Ok,
                "AMD EPYC 7763, 2 online, invariant TSC",
                "Times come from the TSC.",
                None,
            ),
            check(
                "kvm",
                "KVM",
                Readiness::Limited,
                "runs user mode at full speed but emulates kernel mode: 8.0e5 loop iterations/s in kernel mode, 1.7e9 in user mode",
                "Linux would boot at a microsecond an instruction, so tcg is measured instead of kvm.",
                Some("Ask the provider for nested virtualization, or use bare metal"),
            ),
            check(
                "qemu",
                "QEMU",
                Readiness::Ok,
                "7.2.22 at /usr/bin/qemu-system-x86_64 (kvm, tcg; aio threads, native, io_uring)",
                "It runs the guests.",
                None,
            ),
            check(
                "guest-kernel",
                "guest kernel",
                Readiness::Missing,
                "none in /boot, none in the cache",
                "A guest needs a kernel to boot.",
                Some("vmtax get kernel"),
            ),
            check(
                "perf",
                "perf events",
                Readiness::Ok,
                "cpu-clock",
                "Profiles sample with it.",
                None,
            ),
        ],
    }
}

/// A whole run of these machines over this many rounds.
pub fn recording(machines: &[Machine], rounds: u32) -> Recording {
    let mut random = fastrand::Rng::with_seed(42);
    let mut trials = Vec::new();
    for round in 0..rounds {
        for &machine in machines {
            for workload in workloads() {
                trials.push(TrialRecord {
                    schema: SCHEMA,
                    number: trials.len() as u32,
                    round,
                    machine,
                    variant: String::new(),
                    step: None,
                    turn: None,
                    probes: vmtax_model::Probes::None,
                    workload: WorkloadSpec::new(workload),
                    started: "2026-11-20T14:02:11Z".into(),
                    wall_s: 1.2,
                    outcome: Outcome::Done {
                        result: Box::new(result(&mut random, workload, machine)),
                    },
                    share: None,
                    cpu_seconds: None,
                    control_s: None,
                    pinned: None,
                    execution: None,
                    warnings: vec![],
                });
            }
        }
    }
    Recording {
        folder: PathBuf::from("runs/20261120-140211-run"),
        manifest: Manifest {
            schema: SCHEMA,
            vmtax: "0.1.0".into(),
            command: ["vmtax", "run", "--rounds", "6"].map(Into::into).to_vec(),
            started: "2026-11-20T14:02:11Z".into(),
            ended: Some("2026-11-20T14:10:40Z".into()),
            kernels: Vec::new(),
        },
        plan: Plan {
            schema: SCHEMA,
            name: "run".into(),
            study: vmtax_model::Study::Overhead,
            rounds,
            seed: 7,
            timeout_s: 600,
            machines: machines.to_vec(),
            probes: vec![vmtax_model::Probes::None],
            tree: None,
            variants: vec![vmtax_model::Variant::default()],
            not_measured: Vec::new(),
            reproduces: None,
            guest: Guest::default(),
            workloads: workloads().map(WorkloadSpec::new).collect(),
        },
        host: host(),
        trials,
        damaged: vec![],
    }
}

/// Returns the recording with a few metrics only.
pub fn few(mut r: Recording) -> Recording {
    let metrics = [
        Metric::CpuEvents,
        Metric::SyscallFutex,
        Metric::SyscallGetpid,
        Metric::DiskMedian,
    ];
    let is_of = |workload| metrics.iter().any(|metric| metric.workload() == workload);
    r.plan.workloads.retain(|workload| is_of(workload.name));
    r.trials.retain(|trial| is_of(trial.workload.name));
    for trial in &mut r.trials {
        if let Outcome::Done { result } = &mut trial.outcome {
            result
                .measures
                .retain(|measure| metrics.contains(&measure.metric));
            let is_few = |name: &str| {
                metrics
                    .iter()
                    .any(|metric| metric.operation() == Some(name))
            };
            result
                .operations
                .retain(|o| trial.workload.name != WorkloadName::Syscalls || is_few(&o.name));
        }
    }
    r
}

/// A VM of libvirt's under TCG, of which this is not observable.
pub fn vm(pid: i32, name: &str, lacks: &[AbilityName]) -> VmFacts {
    let missing = || Missing {
        what: "it".into(),
        why: "not here".into(),
        fix: "run vmtax as root".into(),
    };
    let ability = |what: &AbilityName| Ability {
        what: *what,
        missing: Some(missing()),
    };
    VmFacts {
        name: Some(name.to_owned()),
        binary: Some(PathBuf::from("/usr/bin/qemu-system-x86_64")),
        managed: Some(Managed {
            manager: Manager::LibvirtSession,
            id: "1".into(),
        }),
        accelerator: Some(Accelerator::Tcg),
        vcpus: 2,
        memory: 1 << 30,
        abilities: lacks.iter().map(ability).collect(),
        ..VmFacts::unknown(pid)
    }
}

/// The trial of a round, to be spoiled.
pub fn trial_mut(
    r: &mut Recording,
    round: u32,
    machine: Machine,
    workload: WorkloadName,
) -> &mut TrialRecord {
    r.trials
        .iter_mut()
        .find(|t| t.round == round && t.machine == machine && t.workload.name == workload)
        .unwrap()
}

/// Findings as the analysis gives them.
pub fn findings(r: &Recording) -> Findings {
    vmtax_analysis::findings(&r.plan, &r.host, &r.trials)
}
