//! From made-up trials to findings.

use vmtax_analysis::{distributions, findings};
use vmtax_findings::*;
use vmtax_model::testing::{self, host};
use vmtax_model::*;

fn plan(rounds: u32, workloads: &[WorkloadName]) -> Plan {
    let workloads = workloads.iter().map(|w| WorkloadSpec::new(*w)).collect();
    Plan {
        seed: 1,
        ..Plan::new(
            "test",
            rounds,
            vec![Machine::NATIVE, Machine::TCG],
            workloads,
        )
    }
}

/// A trial that gave one value, with ten operations of 100 + round nanoseconds.
fn trial(machine: Machine, round: u32, metric: Metric, value: f64) -> TrialRecord {
    let mut latency = Latency::new();
    for _ in 0..10 {
        latency.record(100 + u64::from(round));
    }
    let name = metric.operation().unwrap_or("other").to_owned();
    let result = TrialResult {
        measures: vec![Measure { metric, value }],
        operations: vec![Operation { name, latency }],
        ..testing::result(WorkloadSpec::new(metric.workload()))
    };
    TrialRecord {
        number: round,
        round,
        ..testing::done(machine, result)
    }
}

fn result(record: &mut TrialRecord) -> &mut TrialResult {
    match &mut record.outcome {
        Outcome::Done { result } => result,
        _ => panic!("no result"),
    }
}

/// Both machines over the rounds, tcg `overhead` times as slow, with a little noise that is not the same on both.
fn pairs(rounds: u32, metric: Metric, native: f64, overhead: f64) -> Vec<TrialRecord> {
    let noise = |i: u32| 1.0 + 0.01 * f64::from(i * 7 % 5);
    let slower = if metric.better() == Better::Higher {
        1.0 / overhead
    } else {
        overhead
    };
    (0..rounds)
        .flat_map(|r| {
            [
                trial(Machine::NATIVE, r, metric, native * noise(r)),
                trial(Machine::TCG, r, metric, native * slower * noise(r + 3)),
            ]
        })
        .collect()
}

fn overhead_of(found: &Findings, metric: Metric) -> &Comparison {
    let row = found.rows.iter().find(|r| r.metric == metric).unwrap();
    row.machines[1].overhead.as_ref().unwrap()
}

#[test]
fn a_planted_overhead_is_found_whichever_way_the_metric_counts() {
    for metric in [
        Metric::CpuEvents,
        Metric::SyscallGetpid,
        Metric::MutexTime,
        Metric::DiskRate,
    ] {
        let plan = plan(9, &[metric.workload()]);
        let found = findings(
            &plan,
            &host(KvmClass::Absent),
            &pairs(9, metric, 200.0, 12.5),
        );
        let overhead = overhead_of(&found, metric);
        let i = overhead.ratio.interval.unwrap();
        assert!(
            i.low <= 12.5 && 12.5 <= i.high && i.high / i.low < 1.1,
            "{metric}: {i:?}"
        );
        assert!(
            (overhead.ratio.median / 12.5 - 1.0).abs() < 0.03,
            "{metric}: {overhead:?}"
        );
        assert_eq!((overhead.verdict, overhead.rounds), (Verdict::Slower, 9));
        assert_eq!((found.rounds_complete, found.rounds_planned), (9, 9));
        assert!(
            found.rows[0].machines[0].overhead.is_none(),
            "native pays no overhead"
        );
        assert!(
            found.method.contains("96.1 % coverage at 9 rounds"),
            "{}",
            found.method
        );
        assert_eq!(found.warnings, []);
    }
}

#[test]
fn rows_come_in_the_order_of_metrics_with_their_distributions() {
    // cpu and threads both call their operation "event".
    let metrics = [
        Metric::SyscallPipe,
        Metric::ThreadsEvents,
        Metric::CpuEvents,
        Metric::FileioReads,
    ];
    let plan = plan(
        6,
        &[
            WorkloadName::Syscalls,
            WorkloadName::Threads,
            WorkloadName::Cpu,
            WorkloadName::Fileio,
        ],
    );
    let trials: Vec<_> = metrics
        .iter()
        .flat_map(|m| pairs(6, *m, 100.0, 2.0))
        .collect();
    let found = findings(&plan, &host(KvmClass::Absent), &trials);
    let order: Vec<_> = found.rows.iter().map(|r| r.metric).collect();
    assert_eq!(
        order,
        [
            Metric::CpuEvents,
            Metric::ThreadsEvents,
            Metric::FileioReads,
            Metric::SyscallPipe
        ]
    );
    for row in &found.rows {
        let spread = row.machines[1].spread.as_ref().unwrap();
        assert_eq!((spread.n, spread.values.len()), (6, 6));
        let latency = spread.latency.unwrap();
        assert_eq!(
            (latency.count, latency.min_ns, latency.max_ns),
            (60, 100, 105)
        );
        assert_eq!(
            distributions(&trials, row.metric, Machine::TCG)
                .unwrap()
                .summary(),
            Some(latency)
        );
    }
    assert!(distributions(&trials, Metric::FileioPrepare, Machine::TCG).is_none());
    assert!(distributions(&trials, Metric::CpuEvents, Machine::KVM).is_none());
    assert!(
        distributions(&trials, Metric::FileioWrites, Machine::TCG).is_none(),
        "only reads were made"
    );
}

#[test]
fn below_six_rounds_there_is_no_interval_and_no_winner() {
    let plan = plan(5, &[WorkloadName::Cpu]);
    let found = findings(
        &plan,
        &host(KvmClass::Absent),
        &pairs(5, Metric::CpuEvents, 100.0, 30.0),
    );
    let overhead = overhead_of(&found, Metric::CpuEvents);
    assert_eq!(
        (
            overhead.ratio.interval,
            overhead.difference.unwrap().interval,
            overhead.verdict
        ),
        (None, None, Verdict::TooFewRounds)
    );
    assert_eq!(
        found.warnings,
        [Warning::TooFewRounds {
            rounds: 5,
            needed: 6
        }]
    );
    assert!(
        found.method.contains("A 95 % CI needs at least 6 rounds"),
        "{}",
        found.method
    );
    assert_eq!(found.advice, [], "nothing shown, nothing to advise");
}

#[test]
fn nothing_in_gives_nothing_out() {
    let found = findings(&plan(6, &[WorkloadName::Cpu]), &host(KvmClass::Absent), &[]);
    assert!(found.rows.is_empty() && found.kernels.is_empty() && found.advice.is_empty());
    assert_eq!(found.rounds_complete, 0);
    assert!(matches!(
        &found.warnings[0],
        Warning::TrialsMissing {
            machine: Machine::NATIVE,
            missing: 6,
            planned: 6,
            ..
        }
    ));
    // What the plan does not mean is passed over.
    let mut strangers = pairs(6, Metric::MutexTime, 1.0, 2.0);
    strangers.push(trial(Machine::KVM, 0, Metric::CpuEvents, 1.0));
    strangers.push(trial(Machine::NATIVE, 6, Metric::CpuEvents, 1.0));
    assert!(
        findings(
            &plan(6, &[WorkloadName::Cpu]),
            &host(KvmClass::Absent),
            &strangers
        )
        .rows
        .is_empty()
    );
}

#[test]
fn values_that_are_no_measurements_count_as_missing() {
    let plan = plan(7, &[WorkloadName::Cpu]);
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let mut trials = pairs(7, Metric::CpuEvents, 100.0, 2.0);
        result(&mut trials[3]).measures[0].value = bad;
        let found = findings(&plan, &host(KvmClass::Absent), &trials);
        let overhead = overhead_of(&found, Metric::CpuEvents);
        assert_eq!(
            (overhead.rounds, overhead.verdict),
            (6, Verdict::Slower),
            "{bad}"
        );
        assert_eq!(found.rows[0].machines[1].spread.as_ref().unwrap().n, 6);
    }
    let mut trials = pairs(7, Metric::CpuEvents, 100.0, 2.0);
    result(&mut trials[3]).measures[0].value = 0.0;
    let found = findings(&plan, &host(KvmClass::Absent), &trials);
    assert_eq!(
        found.rows[0].machines[1].overhead, None,
        "a standstill has no ratio"
    );
    assert_eq!(found.rows[0].machines[1].spread.as_ref().unwrap().min, 0.0);
}

#[test]
fn what_a_system_lacks_is_said_with_its_reason() {
    let plan = plan(6, &[WorkloadName::Syscalls]);
    let mut trials = pairs(6, Metric::SyscallGetpid, 60.0, 20.0);
    for record in trials.iter_mut().filter(|t| t.machine == Machine::TCG) {
        let reason = "ENOSYS: futex".to_owned();
        result(record).unsupported.push(Unsupported {
            metric: Metric::SyscallFutex,
            reason,
        });
    }
    let found = findings(&plan, &host(KvmClass::Absent), &trials);
    let row = found
        .rows
        .iter()
        .find(|r| r.metric == Metric::SyscallFutex)
        .unwrap();
    assert_eq!(
        row.machines[1].unsupported.as_deref(),
        Some("ENOSYS: futex")
    );
    assert!(
        row.machines
            .iter()
            .all(|m| m.spread.is_none() && m.overhead.is_none())
    );
}

#[test]
fn warnings_say_what_weakens_the_figures() {
    let mut plan = plan(6, &[WorkloadName::Cpu]);
    plan.workloads[0] = plan.workloads[0].clone().with("time", "0.5");
    let mut trials = pairs(6, Metric::CpuEvents, 100.0, 2.0);
    for (i, record) in trials.iter_mut().enumerate() {
        if record.machine == Machine::TCG {
            result(record).kernel.release = "6.12".into();
            result(record).timer.source = TimerSource::ClockGettime;
            result(record).timer.reason = Some("no invariant TSC".into());
        }
        result(record).workload = plan.workloads[0].clone();
        record.warnings.push(Warning::StolenTime {
            percent: (i as u32 * 5) % 12,
        });
        record.cpu_seconds = (record.machine == Machine::TCG).then_some(CpuSeconds {
            guest: 0.6,
            qemu: 0.1,
            ready: 0.4,
            server: None,
        });
        record.warnings.push(Warning::NoMemoryLimit {
            reason: "no cgroup".into(),
        });
    }
    trials[5].outcome = Outcome::Failed {
        error: "the guest panicked".into(),
    };
    trials[7].outcome = Outcome::Interrupted;
    let found = findings(&plan, &host(KvmClass::Absent), &trials);
    assert_eq!(
        found.warnings,
        [
            Warning::TrialsMissing {
                machine: Machine::TCG,
                missing: 2,
                planned: 6,
                reason: "the guest panicked".into()
            },
            Warning::TooFewRounds {
                rounds: 4,
                needed: 6
            },
            Warning::KernelsDiffer {
                host: "6.1".into(),
                machine: Machine::TCG,
                guest: "6.12".into()
            },
            Warning::NoTsc {
                machine: Machine::TCG,
                reason: "no invariant TSC".into()
            },
            Warning::SmallerThanReference {
                what: "cpu with time=0.5 (--full: 10)".into()
            },
            Warning::BusyHost {
                machine: Machine::TCG,
                percent: 40
            },
            Warning::StolenTime { percent: 11 },
            Warning::NoMemoryLimit {
                reason: "no cgroup".into()
            },
        ]
    );
    assert_eq!(found.rounds_complete, 4);
    assert_eq!(
        found
            .kernels
            .iter()
            .map(|(m, k)| (*m, k.release.as_str()))
            .collect::<Vec<_>>(),
        [(Machine::NATIVE, "6.1"), (Machine::TCG, "6.12")]
    );
}

/// Each finding with what to do, and the lines to copy.
fn texts(findings: &Findings) -> Vec<String> {
    let remedies = |a: &Advice| {
        a.remedies
            .iter()
            .map(|r| format!(" {}: {}", r.action, r.line))
            .collect::<Vec<_>>()
            .join(";")
    };
    findings
        .advice
        .iter()
        .map(|a| a.finding.clone() + &remedies(a))
        .collect()
}

#[test]
fn advice_rests_on_evidence() {
    let plan = plan(
        6,
        &[
            WorkloadName::Cpu,
            WorkloadName::Syscalls,
            WorkloadName::Disk,
        ],
    );
    let mut trials = pairs(6, Metric::CpuEvents, 100.0, 10.0);
    trials.extend(pairs(6, Metric::SyscallGetpid, 60.0, 30.0));
    trials.extend(pairs(6, Metric::DiskMedian, 80_000.0, 1.5));
    let advice = |class| texts(&findings(&plan, &host(class), &trials));

    let with_kvm = advice(KvmClass::Hardware);
    assert!(
        with_kvm[0].ends_with("-accel kvm; Measure what is left: vmtax run --machine native,kvm")
            && with_kvm[0].contains("8e8/s"),
        "{with_kvm:#?}"
    );
    assert!(
        with_kvm[1].starts_with("On tcg, getpid has the largest overhead: "),
        "{with_kvm:#?}"
    );
    assert!(
        with_kvm[1].contains("getpid")
            && with_kvm[1].contains("vmtax run --machine native,tcg syscalls"),
        "{with_kvm:#?}"
    );
    let microseconds: f64 = with_kvm[2]
        .split(' ')
        .find_map(|word| word.parse().ok().filter(|x| *x > 30.0))
        .unwrap();
    assert!((microseconds - 40.0).abs() < 3.0, "{with_kvm:#?}");
    assert_eq!(with_kvm.len(), 3, "{with_kvm:#?}");

    let nested = advice(KvmClass::EmulatesKernels);
    assert!(
        nested[0].contains("nested virtualization") && nested[0].contains("bare metal"),
        "{nested:#?}"
    );
    // Without a remedy there is nothing to say about KVM.
    assert_eq!(advice(KvmClass::Absent).len(), 2);

    // A machine that is no slower gets none.
    let even = findings(
        &plan,
        &host(KvmClass::Hardware),
        &pairs(6, Metric::CpuEvents, 100.0, 1.0),
    );
    assert_eq!(even.advice, []);
}

#[test]
fn the_hosts_own_kernel_is_advised_only_where_it_can_be_had() {
    let plan = plan(6, &[WorkloadName::Syscalls]);
    let mut trials = pairs(6, Metric::SyscallGetpid, 60.0, 2.0);
    trials
        .iter_mut()
        .filter(|t| t.machine == Machine::TCG)
        .for_each(|t| result(t).kernel.release = "6.12".into());
    let mut host = host(KvmClass::Absent);
    let kernel = |release: &str, source| KernelFacts {
        image: format!("/boot/vmlinuz-{release}").into(),
        modules: None,
        release: release.into(),
        source,
    };
    host.kernels.push(kernel("6.12", SourceOfKernel::Cache));
    host.kernels.push(kernel("5.10", SourceOfKernel::Running));
    assert!(
        !texts(&findings(&plan, &host, &trials))
            .iter()
            .any(|a| a.contains("--kernel"))
    );
    host.kernels.push(kernel("6.1", SourceOfKernel::Running));
    assert!(
        texts(&findings(&plan, &host, &trials))
            .iter()
            .any(|a| a.contains("--kernel /boot/vmlinuz-6.1"))
    );
}

#[test]
fn there_are_never_more_than_five_sentences_of_advice() {
    let mut plan = plan(
        6,
        &[
            WorkloadName::Syscalls,
            WorkloadName::Disk,
            WorkloadName::Memory,
        ],
    );
    let mut trials = pairs(6, Metric::SyscallGetpid, 60.0, 2.0);
    trials.extend(pairs(6, Metric::DiskMedian, 8e4, 2.0));
    trials.extend((0..6).flat_map(|r| {
        let wild = if r % 2 == 0 { 3.0 } else { 0.3 };
        [
            trial(Machine::NATIVE, r, Metric::MemoryBandwidth, 10.0),
            trial(Machine::TCG, r, Metric::MemoryBandwidth, 10.0 * wild),
        ]
    }));
    trials
        .iter_mut()
        .filter(|t| t.machine == Machine::TCG)
        .for_each(|t| result(t).kernel.release = "6.12".into());
    let mut host = host(KvmClass::EmulatesKernels);
    host.cpu.governor = Some("powersave".into());
    host.kernels.push(KernelFacts {
        image: "/boot/vmlinuz-6.1".into(),
        modules: None,
        release: "6.1".into(),
        source: SourceOfKernel::Running,
    });
    plan.name = "all".into();
    let advice = texts(&findings(&plan, &host, &trials));
    assert_eq!(advice.len(), 5, "{advice:#?}");
    assert!(advice[4].contains("--rounds 12"), "{advice:#?}");
}
