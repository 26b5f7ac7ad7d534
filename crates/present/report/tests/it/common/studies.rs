//! Recordings of studies with known costs, each round of another drift and with a little noise.

use super::{THREE, host, kernel, recording};
use vmtax_findings::*;
use vmtax_model::*;
use vmtax_recording::Recording;

/// Returns the factor by which a round changes a figure, besides its cost.
fn drift(round: u32, of: u32) -> f64 {
    1.0 + 0.3 * f64::from((round * 7 + of) % 5)
}

fn noise(round: u32, of: u32) -> f64 {
    1.0 + 0.01 * f64::from((round * 3 + of) % 4)
}

/// The trial's figures, so many times the cost.
fn costing(trial: &TrialRecord, variant: &str, cost: f64) -> TrialRecord {
    let mut trial = trial.clone();
    variant.clone_into(&mut trial.variant);
    if let Outcome::Done { result } = &mut trial.outcome {
        for (i, measure) in result.measures.iter_mut().enumerate() {
            let i = i as u32;
            let noise = if cost == 1.0 {
                1.0
            } else {
                noise(trial.round, variant.len() as u32 + i)
            };
            let cost = drift(trial.round, i) * cost * noise;
            let is_rate = measure.metric.better() == Better::Higher;
            measure.value = if is_rate {
                measure.value / cost
            } else {
                measure.value * cost
            };
        }
    }
    trial
}

/// Variants, each of so many times the first one's cost.
fn with_variants(mut recording: Recording, costs: &[f64]) -> Recording {
    let base = std::mem::take(&mut recording.trials);
    let costs = [&[1.0], costs].concat();
    let named = costs
        .iter()
        .enumerate()
        .map(|(i, cost)| (format!("v{i}"), *cost));
    for (name, cost) in named {
        let guests = base.iter().filter(|trial| trial.machine.is_guest());
        recording
            .trials
            .extend(guests.map(|trial| costing(trial, &name, cost)));
        recording.plan.variants.push(Variant {
            name,
            ..Variant::default()
        });
    }
    recording
        .trials
        .extend(base.into_iter().filter(|trial| !trial.machine.is_guest()));
    recording
}

/// Names the command of a recording, and its folder.
fn made_by(recording: &mut Recording, study: &str, words: &[&str]) {
    let words = [&["vmtax", study], words].concat();
    recording.manifest.command = words.into_iter().map(Into::into).collect();
    recording.folder = format!("runs/20261120T140211Z-{study}").into();
}

/// Returns a recording of a comparison.
pub fn compared(rounds: u32, costs: &[f64]) -> Recording {
    let mut recording = recording(&[Machine::TCG], rounds);
    let qemus = [
        "--qemu", "v0", "--qemu", "v1", "--qemu", "v2", "--qemu", "v3",
    ];
    made_by(&mut recording, "compare", &qemus);
    let settings = Compare {
        min_effect: 0.02,
        budget_s: None,
        one_boot: false,
    };
    recording.plan.study = Study::Compare(WithCommand {
        settings,
        command: None,
    });
    recording.plan.variants.clear();
    with_variants(recording, costs)
}

/// Share methods, beside the host's own folder.
pub fn shared(rounds: u32, costs: &[f64]) -> Recording {
    let mut recording = recording(&[Machine::NATIVE, Machine::TCG], rounds);
    made_by(&mut recording, "share", &[]);
    recording.plan.study = Study::Share;
    recording.plan.variants.clear();
    let mut recording = with_variants(recording, costs);
    for (variant, method) in recording
        .plan
        .variants
        .iter_mut()
        .zip(["9p", "virtiofs", "erofs", "squashfs"])
    {
        variant.set.insert("share".to_owned(), method.to_owned());
    }
    for trial in recording
        .trials
        .iter_mut()
        .filter(|trial| trial.machine.is_guest())
    {
        let round = f64::from(trial.round) * 0.01;
        let [guest, qemu] = [1.0, 0.3].map(|s| s + round);
        trial.cpu_seconds = Some(CpuSeconds {
            guest,
            qemu,
            ready: 0.1,
            server: Some(0.4),
        });
    }
    recording
}

/// A size of three steps; one more costs every metric a hundredth.
pub fn grown(rounds: u32) -> (Recording, GrowthFindings) {
    let mut recording = recording(&[Machine::NATIVE, Machine::TCG], rounds);
    made_by(
        &mut recording,
        "scale",
        &["--range", "threads.threads=1,30,900"],
    );
    recording.plan.study = Study::Scale(SizeRange::new("threads.threads", vec![1, 30, 900]));
    let flat = std::mem::take(&mut recording.trials);
    for step in [1, 30, 900] {
        for mut trial in flat.clone() {
            trial.step = Some(step);
            if let Outcome::Done { result } = &mut trial.outcome {
                for measure in &mut result.measures {
                    let times = 1.0 + step as f64 / 100.0;
                    measure.value = match measure.metric.better() {
                        Better::Higher => measure.value / times,
                        Better::Lower => measure.value * times,
                    };
                }
            }
            recording.trials.push(trial);
        }
    }
    let findings = vmtax_analysis::growth(&recording.plan, &recording.trials);
    (recording, findings)
}

/// A command natively and under TCG, which prints a rate; how often it writes is not known in the guest.
pub fn command(rounds: u32) -> (Recording, ExecFindings) {
    let mut recording = recording(&[], rounds);
    recording.plan = Plan::new("exec", rounds, vec![Machine::NATIVE, Machine::TCG], vec![]);
    recording.plan.workloads = vec![WorkloadSpec::new(WorkloadName::Exec)];
    recording.plan.study = Study::Exec(Box::new(CommandSpec::new(vec!["make".into()], "/".into())));
    made_by(&mut recording, "exec", &["--", "make"]);
    for round in 0..rounds {
        for machine in [Machine::NATIVE, Machine::TCG] {
            let guest = machine.is_guest();
            let times = if guest {
                [6.1, 3.3, 4.7]
            } else {
                [1.0, 1.0, 1.0]
            };
            let seconds = [1.31, 0.62, 0.29].into_iter().zip(times).enumerate();
            let own = round * 2 + u32::from(guest);
            let seconds: Vec<f64> = seconds
                .map(|(i, (s, times))| s * times * drift(round, 0) * noise(own, i as u32))
                .collect();
            let metrics = [Metric::ExecWall, Metric::ExecUser, Metric::ExecSystem];
            let measures = metrics
                .into_iter()
                .zip(&seconds)
                .map(|(metric, s)| Measure { metric, value: *s });
            let result = testing::result(WorkloadSpec::new(WorkloadName::Exec));
            let result = TrialResult {
                measures: measures.collect(),
                total_s: seconds[0],
                kernel: kernel("6.18.0"),
                ..result
            };
            let rate = Printed {
                of: "make".into(),
                name: "rate".into(),
                unit: Unit::PerSecond,
                better: Some(Better::Higher),
                value: 1000.0 / seconds[0],
            };
            let execution = Execution {
                status: 0,
                left: 0,
                window_s: guest.then_some(seconds[0] + 0.01),
                busy_s: guest.then_some(seconds[1] + seconds[2] + 0.2),
                waited_s: None,
                stolen_s: guest.then_some(0.0),
                printed: vec![rate],
            };
            let cpu = CpuSeconds {
                guest: 3.9,
                qemu: 0.4,
                ready: 1.0,
                server: Some(0.3),
            };
            recording.trials.push(TrialRecord {
                number: own,
                round,
                wall_s: seconds[0] + 0.5,
                cpu_seconds: guest.then_some(cpu),
                execution: Some(execution),
                ..testing::done(machine, result)
            });
        }
    }
    let findings = vmtax_analysis::exec(&recording.plan, &host(), &recording.trials);
    (recording, findings)
}

/// Antipatterns of guest kernels: each takes a few times its fix; of one the fix has no figure.
pub fn antipatterns(rounds: u32) -> (Recording, AntipatternFindings) {
    let mut recording = recording(&[], rounds);
    made_by(
        &mut recording,
        "run",
        &["--machine", "micro-tcg", "guest-antipatterns"],
    );
    recording.plan.machines = vec![Machine::MICRO_TCG];
    recording.plan.study = Study::GuestAntipatterns;
    for round in 0..rounds {
        let mut result = testing::result(WorkloadSpec::new(WorkloadName::GuestAntipatterns));
        for (i, (antipattern, fixed)) in Antipattern::forms().enumerate() {
            if antipattern == Antipattern::HpetClock && fixed {
                continue;
            }
            let ns =
                90_000.0 * drift(round, 0) * noise(round, i as u32) / if fixed { 3.7 } else { 1.0 };
            let mut latency = Latency::new();
            (0..9).for_each(|_| latency.record(ns as u64));
            result.operations.push(Operation {
                name: antipattern.label(fixed).to_owned(),
                latency,
            });
        }
        recording.trials.push(TrialRecord {
            number: round,
            round,
            ..testing::done(Machine::MICRO_TCG, result)
        });
    }
    let findings = vmtax_analysis::antipatterns(&recording.plan, &host(), &recording.trials);
    (recording, findings)
}

/// A baseline and a later recording, in which some workloads are worse.
pub fn regressed() -> [Recording; 2] {
    let [baseline, mut worse] = [8, 7].map(|rounds| recording(THREE, rounds));
    let costs = [1.5, 1.02, 0.7, 1.2];
    for trial in &mut worse.trials {
        if let Outcome::Done { result } = &mut trial.outcome {
            let cost = costs[trial.workload.name as usize % costs.len()];
            result
                .measures
                .iter_mut()
                .for_each(|measure| measure.value *= cost);
        }
    }
    [baseline, worse]
}

/// A published result of three claims, as if [`grown`] reproduced it.
pub fn reproduced() -> ReproductionFindings {
    let interval = Some(Interval {
        low: 9.0,
        high: 12.0,
        coverage: 0.97,
    });
    let row = |unit, verdict| ClaimRow {
        what: "ten <times>".into(),
        published: "×10".into(),
        measured: Some(Estimate {
            median: 10.5,
            interval,
        }),
        unit,
        verdict,
        why: "at least ×2".into(),
        rounds_needed: (verdict == ClaimVerdict::Inconclusive).then_some(3),
        metric: None,
    };
    ReproductionFindings {
        schema: 1,
        name: "a-case".into(),
        title: "A title".into(),
        source: "a report".into(),
        claim: "It grows ×10.".into(),
        verdict: ClaimVerdict::NotReproduced,
        rows: vec![
            row(ClaimUnit::Ratio, ClaimVerdict::Reproduced),
            row(ClaimUnit::Percent, ClaimVerdict::NotReproduced),
            row(ClaimUnit::Exponent, ClaimVerdict::Inconclusive),
            row(ClaimUnit::Ratio, ClaimVerdict::NotTestable),
        ],
    }
}

/// 40 parts of the time: it runs or is runnable for this fraction of them, then waits for this reason.
fn slices(active: f64, reason: WaitFor) -> Vec<TimeSlice> {
    let slice = |i: u32| TimeSlice {
        samples: 5,
        waits: match f64::from(i) < 40.0 * active {
            true => [].into(),
            false => [(reason, 5)].into(),
        },
    };
    (0..40).map(slice).collect()
}

/// A profile of two vCPUs, of which each is halted for the rest of its time.
pub fn states() -> ProfileFindings {
    vcpu_states(&[[0.9, 0.06], [0.3, 0.6]])
}

/// A profile of vCPUs that run and are runnable for these parts of the time, and are halted for the rest.
pub fn vcpu_states(vcpus: &[[f64; 2]]) -> ProfileFindings {
    let thread = |(number, [running, runnable]): (u32, &[f64; 2])| ThreadStates {
        tid: 101 + number as i32,
        name: format!("vCPU {number}"),
        role: Some(Role::Vcpu(number)),
        running: *running,
        runnable: Some(*runnable),
        waits: vec![StateWait {
            reason: WaitFor::Guest,
            call: "ioctl".into(),
            below: String::new(),
            fraction: 1.0 - running - runnable,
        }],
        slices: slices(running + runnable, WaitFor::Guest),
    };
    let states = StateFindings {
        source: StateSource::SchedulerEvents,
        seconds: 1.0,
        sliced_s: 0.98,
        threads: (0..).zip(vcpus).map(thread).collect(),
        ..StateFindings::default()
    };
    ProfileFindings {
        samples: 7,
        seconds: 1.0,
        states: Some(states),
        ..ProfileFindings::default()
    }
}

/// A profile of a process whose two threads have one name.
pub fn worker_states() -> ProfileFindings {
    let mut found = states();
    for thread in found
        .states
        .iter_mut()
        .flat_map(|states| &mut states.threads)
    {
        (thread.name, thread.role) = ("worker".into(), None);
        thread.waits[0].reason = WaitFor::Io;
        thread.waits[0].call = "ppoll".into();
        let active = 1.0 - thread.waits[0].fraction;
        thread.slices = slices(active, WaitFor::Io);
    }
    found
}

fn exit_kind(label: &str, p50_ns: f64, emulated: bool, note: &str) -> ExitKind {
    ExitKind {
        label: label.into(),
        time: Summary {
            n: 20_000,
            min_ns: p50_ns * 0.9264,
            p50_ns,
            p90_ns: p50_ns * 1.05,
            p99_ns: p50_ns * 1.589,
            max_ns: p50_ns * 120.0,
            mean_ns: p50_ns * 1.0233,
        },
        emulated,
        without_exit: false,
        note: note.into(),
    }
}

/// Findings of `exits` that look like real ones.
pub fn exits() -> ExitFindings {
    // As analysis names them: TCG has no exits, and ends of their own.
    let kinds = |in_qemu: &str, in_kvm: &str, factor: f64| {
        let all = [
            (format!("port write{in_qemu}"), 25_800.0, false, ""),
            (format!("port read{in_qemu}"), 26_700.0, false, ""),
            (format!("MMIO write{in_qemu}"), 26_800.0, false, ""),
            (format!("MMIO read{in_kvm}"), 2_700.0, false, ""),
            ("cpuid".to_owned(), 4_000.0, false, ""),
            ("rdmsr, guest CPL 0".to_owned(), 3_400.0, true, ""),
            (
                "hlt and wake-up, guest CPL 0".to_owned(),
                8_000.0,
                true,
                "from timer expiry to the first instruction after",
            ),
        ];
        let is_kvm = factor == 1.0;
        let shown = all
            .into_iter()
            .filter(|(label, ..)| is_kvm || !label.starts_with("hlt"));
        shown
            .map(|(label, ns, emulated, note)| {
                exit_kind(&label, ns * factor, emulated && is_kvm, note)
            })
            .collect()
    };
    let machine = |machine, kinds, missing| MachineExits {
        machine,
        qemu: "QEMU 7.2.22".into(),
        stamp: exit_kind("no exit", 24.0, false, ""),
        kinds,
        missing,
    };
    let hlt = Missing {
        what: "hlt and wake-up".into(),
        why: "TCG has no such exit".into(),
        fix: String::new(),
    };
    ExitFindings {
        schema: SCHEMA,
        vmtax: "0.1.0".into(),
        command: vec!["vmtax".into(), "exits".into()],
        started: "2026-11-20T14:02:11Z".into(),
        cpu: "AMD EPYC 7763 64-Core Processor".into(),
        kernel: "6.18.0".into(),
        kvm: "KVM without hardware virtualization (PVM): guest CPL 3 runs natively, CPL 0 is emulated".into(),
        machines: vec![
            machine(Machine::MICRO_KVM, kinds(HANDLED_IN_QEMU, HANDLED_IN_KVM, 1.0), vec![]),
            machine(Machine::MICRO_TCG, kinds(NO_DEVICE, INTERRUPT_CONTROLLER, 0.25), vec![hlt]),
        ],
        method: "rdtsc before and after each exit, by the micro-guest; exits of a kind are pooled over all rounds.".into(),
        warnings: vec![Warning::StolenTime { percent: 2 }],
        advice: vec![Advice {
            finding: "Use ioeventfd: a notification costs 2.70 µs in the kernel, 25.8 µs through user space.".into(),
            ..Advice::default()
        }],
    }
}
