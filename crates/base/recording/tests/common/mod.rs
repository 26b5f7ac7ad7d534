//! A made-up run: none of its figures was measured.

use std::path::{Path, PathBuf};
use vmtax_model::*;

pub fn folder_of(runs: &Path) -> vmtax_recording::RecordingsFolder {
    vmtax_recording::RecordingsFolder::create(runs).unwrap()
}

pub fn plan() -> Plan {
    Plan {
        schema: SCHEMA,
        name: "golden".into(),
        study: vmtax_model::Study::Overhead,
        rounds: 6,
        seed: 1,
        timeout_s: 600,
        machines: vec![Machine::NATIVE, Machine::TCG],
        probes: vec![vmtax_model::Probes::None],
        tree: None,
        variants: vec![vmtax_model::Variant::default()],
        not_measured: Vec::new(),
        reproduces: None,
        guest: Guest::default(),
        workloads: vec![
            WorkloadSpec::new(WorkloadName::Cpu)
                .with("max-prime", 2000)
                .with("time", 1),
            WorkloadSpec::new(WorkloadName::Syscalls).with("time", 0.1),
        ],
    }
}

pub fn host() -> HostFacts {
    HostFacts {
        schema: SCHEMA,
        identity: HostIdentity::default(),
        kernel: "6.1.0-made-up".into(),
        distribution: "Made-up GNU/Linux 1".into(),
        cpu: CpuFacts {
            model: "made-up CPU".into(),
            microcode: None,
            online: 2,
            threads_per_core: 1,
            virtualisation: None,
            hypervisor: Some("kvm".into()),
            invariant_tsc: true,
            clocksource: "tsc".into(),
            governor: None,
            steal: 0.001,
        },
        memory_mib: 4096,
        transparent_hugepage: None,
        halt_poll_ns: None,
        settings: Default::default(),
        kvm: KvmFacts {
            class: KvmClass::Absent,
            evidence: "made up".into(),
        },
        qemu: vec![],
        kernels: vec![],
        checks: vec![Check {
            id: "kvm".into(),
            subject: "KVM".into(),
            state: Readiness::Missing,
            found: "no /dev/kvm".into(),
            why: "guests run by translation only".into(),
            problem: None,
            remedies: vec![Remedy::instruction("load kvm_intel or kvm_amd".into())],
        }],
    }
}

/// A distribution around `typical` with a tail, a little different for each seed.
pub fn latency(typical: f64, seed: u64) -> Latency {
    let mut latency = Latency::new();
    for i in 0..400_u64 {
        // A low-discrepancy sequence in place of a random one.
        let u = ((i + 7 * seed) as f64 * 0.618_033_988_749_895).fract();
        latency.record((typical * (0.9 + 0.2 * u + if u > 0.99 { 3.0 } else { 0.0 })) as u64);
    }
    latency
}

fn result(plan: &Plan, machine: Machine, workload: usize, round: u32) -> TrialResult {
    let slow = if machine == Machine::NATIVE {
        1.0
    } else {
        20.0
    };
    let noise = 1.0 + 0.01 * f64::from((round * 5 + 3) % 7);
    let operation = |name: &str, ns: f64| Operation {
        name: name.into(),
        latency: latency(ns, round.into()),
    };
    let measure = |metric, value| Measure { metric, value };
    let spec = plan.workloads[workload].clone();
    let is_cpu = spec.name == WorkloadName::Cpu;
    TrialResult {
        workload: spec,
        measures: if is_cpu {
            vec![measure(Metric::CpuEvents, 13_000.0 / slow / noise)]
        } else {
            vec![
                measure(Metric::SyscallGetpid, 60.0 * slow * noise),
                measure(Metric::SyscallFork, 9e4 * slow * noise),
            ]
        },
        exits: Vec::new(),
        output: None,
        operations: if is_cpu {
            vec![operation("event", 77_000.0 * slow)]
        } else {
            vec![
                operation("getpid", 60.0 * slow),
                operation("fork", 9e4 * slow),
            ]
        },
        kept: vec![],
        notes: vec![],
        unsupported: if is_cpu {
            vec![]
        } else {
            vec![Unsupported {
                metric: Metric::SyscallFutex,
                reason: "ENOSYS: futex (made up)".into(),
            }]
        },
        unanswered: None,
        fairness: is_cpu.then_some(Fairness {
            threads: 1,
            events_mean: 400.0,
            events_stddev: 0.0,
            time_mean_s: 1.0 / 3.0,
            time_stddev_s: 0.0,
        }),
        total_s: 1.0,
        timer: Timer {
            source: TimerSource::Tsc,
            mhz: 2596.1,
            error: 1e-6,
            pair_ns: 20.0,
            reason: None,
        },
        kernel: KernelIdentity {
            system: "Linux".into(),
            release: "6.1.0-made-up".into(),
            version: "#1 SMP made up".into(),
        },
    }
}

pub fn trials() -> Vec<TrialRecord> {
    let plan = plan();
    let mut trials = Vec::new();
    for slot in plan.schedule() {
        for (i, workload) in plan.workloads.iter().enumerate() {
            let number = trials.len() as u32;
            let last = number == 23;
            trials.push(TrialRecord {
                schema: SCHEMA,
                number,
                round: slot.round,
                machine: slot.machine,
                variant: String::new(),
                step: None,
                turn: None,
                probes: vmtax_model::Probes::None,
                workload: workload.clone(),
                started: format!("2026-11-20T12:00:{number:02}Z"),
                wall_s: 1.25,
                outcome: if last {
                    Outcome::Failed {
                        error: "the guest went silent (made up): see console.log".into(),
                    }
                } else {
                    Outcome::Done {
                        result: Box::new(result(&plan, slot.machine, i, slot.round)),
                    }
                },
                share: None,
                cpu_seconds: None,
                control_s: None,
                pinned: None,
                execution: None,
                warnings: if last {
                    vec![Warning::StolenTime { percent: 3 }]
                } else {
                    vec![]
                },
            });
        }
    }
    trials
}

/// Writes the made-up run whole and gives its folder.
pub fn write_run(runs: &Path) -> PathBuf {
    let command = ["vmtax", "run", "golden.toml"].map(str::to_owned);
    let writer =
        vmtax_recording::Writer::create(&folder_of(runs), &plan(), &host(), &command, "0.1.0")
            .unwrap();
    for record in trials() {
        writer.write(&record).unwrap();
    }
    let folder = writer.folder().to_owned();
    writer.finish().unwrap();
    folder
}

/// Copies a folder of files and folders.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
