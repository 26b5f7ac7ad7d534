//! Findings of `layers` that look like real ones, made up around figures measured by hand: one 4 KiB read of a Linux guest
//! under TCG, of the micro-guest under KVM, and of the bare host.

use super::{host, recording};
use vmtax_findings::*;
use vmtax_model::*;
use vmtax_recording::Recording;

type Stretch = (Checkpoint, Checkpoint, Layer, State, &'static str, f64, f64);

fn label(s: &Stretch) -> String {
    format!("{} to {}", s.0.label(), s.1.label())
}

/// From, to, layer, state, thread, median µs, share of the requests that have it.
const TCG: &[Stretch] = {
    use {Checkpoint::*, Layer::*, State::*};
    &[
        (
            Begin,
            GuestCall,
            GuestApplication,
            Running,
            "guest",
            0.9,
            1.0,
        ),
        (
            GuestCall,
            GuestIssue,
            GuestKernel,
            Running,
            "guest",
            19.8,
            1.0,
        ),
        (
            GuestCall,
            GuestIssue,
            GuestKernel,
            State::GuestRunnable,
            "guest",
            4.0,
            0.92,
        ),
        (
            GuestIssue,
            GuestNotify,
            GuestKernel,
            Running,
            "guest",
            4.3,
            1.0,
        ),
        (GuestNotify, KvmNotify, Notify, Running, "vCPU 0", 0.1, 1.0),
        (KvmNotify, QemuWake, Notify, Waiting, "main loop", 24.1, 1.0),
        (
            KvmNotify,
            QemuWake,
            Notify,
            Runnable,
            "main loop",
            11.6,
            0.83,
        ),
        (QemuWake, QemuPop, Qemu, Running, "main loop", 8.9, 1.0),
        (QemuWake, QemuPop, Qemu, Lock, "main loop", 2.2, 0.31),
        (QemuPop, QemuSubmit, Qemu, Running, "main loop", 18.6, 1.0),
        (QemuSubmit, HostCall, Qemu, Running, "main loop", 5.5, 1.0),
        (
            HostCall,
            HostIssue,
            HostKernel,
            Running,
            "main loop",
            5.5,
            1.0,
        ),
        (
            HostIssue,
            HostComplete,
            Device,
            Running,
            "host kernel",
            47.0,
            1.0,
        ),
        (
            HostComplete,
            QemuReap,
            HostKernel,
            Running,
            "main loop",
            7.4,
            1.0,
        ),
        (
            HostComplete,
            QemuReap,
            HostKernel,
            Runnable,
            "main loop",
            3.3,
            0.71,
        ),
        (QemuReap, QemuPush, Qemu, Running, "main loop", 9.0, 1.0),
        (QemuPush, QemuNotify, Qemu, Running, "main loop", 1.8, 1.0),
        (
            QemuNotify,
            Inject,
            Interrupt,
            Running,
            "main loop",
            12.4,
            1.0,
        ),
        (
            Inject,
            GuestInterrupt,
            Interrupt,
            Waiting,
            "vCPU 0",
            19.7,
            1.0,
        ),
        (
            GuestInterrupt,
            GuestComplete,
            GuestKernel,
            Running,
            "vCPU 0",
            11.4,
            1.0,
        ),
        (
            GuestComplete,
            GuestReturn,
            GuestKernel,
            Running,
            "guest",
            12.0,
            1.0,
        ),
        (
            GuestComplete,
            GuestReturn,
            GuestKernel,
            State::GuestRunnable,
            "guest",
            6.9,
            1.0,
        ),
        (
            GuestReturn,
            End,
            GuestApplication,
            Running,
            "guest",
            0.8,
            1.0,
        ),
    ]
};

/// The micro-guest has no system calls, no block layer and no handler.
const MICRO: &[Stretch] = {
    use {Checkpoint::*, Layer::*, State::*};
    &[
        (Begin, GuestNotify, GuestKernel, Running, "guest", 0.3, 1.0),
        (GuestNotify, KvmNotify, Kvm, Running, "vCPU 0", 2.7, 1.0),
        (KvmNotify, QemuWake, Notify, Waiting, "main loop", 5.1, 1.0),
        (QemuWake, QemuPop, Qemu, Running, "main loop", 2.4, 1.0),
        (QemuPop, QemuSubmit, Qemu, Running, "main loop", 3.9, 1.0),
        (
            HostCall,
            HostIssue,
            HostKernel,
            Running,
            "main loop",
            3.8,
            1.0,
        ),
        (
            HostIssue,
            HostComplete,
            Device,
            Running,
            "host kernel",
            22.6,
            1.0,
        ),
        (
            HostComplete,
            QemuReap,
            HostKernel,
            Running,
            "main loop",
            7.0,
            1.0,
        ),
        (QemuReap, QemuPush, Qemu, Running, "main loop", 6.9, 1.0),
        (QemuPush, End, Interrupt, Waiting, "vCPU 0", 0.9, 1.0),
    ]
};

fn figure(p50_us: f64) -> Summary {
    let ns = p50_us * 1e3;
    Summary {
        n: 10_000,
        min_ns: ns * 0.5,
        mean_ns: ns * 1.06,
        p50_ns: ns,
        p90_ns: ns * 1.3,
        p99_ns: ns * 2.4,
        max_ns: ns * 14.0,
    }
}

fn estimate(median: f64, relative: f64, rounds: u32) -> Estimate {
    let (low, high) = (median * (1.0 - relative), median * (1.0 + relative));
    Estimate {
        median,
        interval: (rounds >= 6).then_some(Interval {
            low,
            high,
            coverage: 0.969,
        }),
    }
}

fn call(name: &str, count: u64, mean_ns: f64) -> CallRow {
    CallRow {
        name: name.into(),
        count,
        mean_ns,
        stddev_ns: mean_ns * 0.7,
        min_ns: mean_ns * 0.3,
        max_ns: mean_ns * 40.0,
        total_ns: mean_ns * count as f64,
    }
}

fn heat(median_ns: f64) -> HeatMap {
    let mut random = fastrand::Rng::with_seed(11);
    let (lowest_ns, row_factor) = (median_ns * 0.5, 1.15);
    let columns = (0..80).map(|column| {
        let mut counts = vec![0; 24];
        for _ in 0..125 {
            let normal = (0..4).map(|_| random.f64()).sum::<f64>() - 2.0;
            let burst = if (40..44).contains(&column) { 1.5 } else { 1.0 };
            let tail = if random.f64() < 0.02 {
                1.5 + 6.0 * random.f64()
            } else {
                1.0
            };
            let ns = median_ns * (normal * 0.16).exp() * burst * tail;
            let row = ((ns / lowest_ns).ln() / f64::ln(row_factor)).clamp(0.0, 23.0) as usize;
            counts[row] += 1;
        }
        counts
    });
    HeatMap {
        column_ns: 30e6,
        lowest_ns,
        row_factor,
        counts: columns.collect(),
    }
}

/// `device_us` in place of the disk's time, so that variants differ.
pub fn column(machine: Machine, variant: &str, rounds: u32, device_us: f64) -> LayerColumn {
    let stretches = if machine.has_kernel() { TCG } else { MICRO };
    let us = |s: &Stretch| if s.2 == Layer::Device { device_us } else { s.5 };
    let total: f64 = stretches.iter().map(|s| us(s) * s.6).sum();
    let mut traced = figure(total);
    let sum: f64 = stretches.iter().map(|s| figure(us(s)).mean_ns * s.6).sum();
    traced.mean_ns = sum + 310.0;
    let rows: Vec<Row> = stretches
        .iter()
        .map(|s| {
            let mut time = figure(us(s));
            time.mean_ns *= s.6;
            Row {
                from: s.0,
                to: s.1,
                layer: s.2,
                state: s.3,
                label: label(s),
                time,
                mean: estimate(time.mean_ns, 0.04, rounds),
                percent: time.mean_ns / traced.mean_ns * 100.0,
                count: (9_994.0 * s.6) as u64,
                events: None,
                corrected_ns: None,
                below_bound: us(s) < 0.2,
            }
        })
        .collect();
    let waterfall = |which: &str, factor: f64| {
        let mut at = 0.0;
        let spans = stretches.iter().map(|s| {
            let begin_ns = at;
            // What makes the slow one slow: it waits for a CPU.
            at += us(s)
                * 1e3
                * if s.3 == State::Runnable {
                    factor * factor
                } else {
                    1.0 + (factor - 1.0) / 4.0
                };
            Span {
                layer: s.2,
                state: s.3,
                label: label(s),
                thread: s.4.into(),
                begin_ns,
                end_ns: at,
            }
        });
        let spans: Vec<Span> = spans.collect();
        Waterfall {
            which: which.into(),
            total_ns: at + 310.0,
            spans,
        }
    };
    let waterfalls = vec![waterfall("median", 1.0), waterfall("p99", 3.4)];
    let control = Summary {
        mean_ns: traced.mean_ns / 1.041,
        p50_ns: traced.p50_ns / 1.04,
        ..figure(total / 1.04)
    };
    let nested = [
        ("guest benchmark", 1.0),
        ("guest virtio", 0.87),
        ("QEMU virtio", 0.55),
        ("QEMU AIO", 0.34),
        ("host disk", 0.2),
    ];
    let inner = |i: usize| nested.get(i + 1).map_or(0.0, |n: &(&str, f64)| n.1);
    LayerColumn {
        machine,
        variant: variant.into(),
        from_host: false,
        is_accelerator_unknown: false,
        rounds,
        matched: Matched {
            operations: 10_000,
            joined: 9_994,
            rejected: vec![
                ("events were lost while it was in flight".into(), 4),
                ("missing event: QEMU takes request".into(), 2),
            ],
            lost_events: 17,
        },
        clock: ClockFinding {
            bound_ns: 180.0,
            source: if machine.has_kernel() {
                "timestamps exchanged through shared memory"
            } else {
                "same counter"
            }
            .into(),
            drift_ns: 0.0,
            violations: 0,
        },
        traced,
        control: Some(control),
        control_median: Some(estimate(control.p50_ns, 0.02, rounds)),
        observer: Some(Estimate {
            median: 1.041,
            ..estimate(1.041, 0.011, rounds)
        }),
        rows,
        corrected: None,
        unexplained_ns: 310.0,
        nested: nested
            .iter()
            .enumerate()
            .map(|(i, (label, share))| Nested {
                label: (*label).into(),
                cumulative: figure(total * share),
                delta_ns: traced.mean_ns * (share - inner(i)),
                percent: (share - inner(i)) * 100.0,
            })
            .collect(),
        lifecycle: stretches
            .iter()
            .map(|s| Step {
                label: s.1.label().into(),
                since_previous_ns: us(s) * 1e3,
                thread: s.4.into(),
            })
            .collect(),
        calls: vec![
            ThreadCalls {
                role: Role::Main,
                calls: vec![
                    call("ppoll", 20_480, 271_000.0),
                    call("ppoll_post", 20_479, 9_000.0),
                    call("io_submit", 10_000, 16_100.0),
                    call("io_submit_post", 10_000, 1_600.0),
                    call("futex", 412, 2_900.0),
                ],
                locks: Some(call("futex", 412, 2_900.0)),
            },
            ThreadCalls {
                role: Role::Vcpu(0),
                calls: vec![call("ioctl(KVM_RUN)", 22_793, 224_000.0)],
                locks: None,
            },
        ],
        tail: stretches
            .iter()
            .map(|s| TailRow {
                label: label(s),
                median_ns: us(s) * 1e3,
                slowest_ns: us(s) * if s.3 == State::Runnable { 31e3 } else { 1.5e3 },
            })
            .collect(),
        waterfalls,
        heat: heat(total * 1e3),
        packets: None,
        fio_requests: None,
        missing: if !machine.has_kernel() {
            vec![]
        } else {
            vec![Missing {
                what: "C-state exits of the host".into(),
                why: "this host is a VM".into(),
                fix: "run vmtax on bare metal".into(),
            }]
        },
    }
}

fn difference(variant: &str, low: f64, median: f64, high: f64, rounds: u32) -> Difference {
    let interval = (rounds >= 6).then_some((low, high));
    let estimate = |of: fn(f64) -> f64| Estimate {
        median: of(median),
        interval: interval.map(|(l, h)| Interval {
            low: of(l),
            high: of(h),
            coverage: 0.969,
        }),
    };
    let ratio = estimate(|r| r);
    Difference {
        machine: Machine::TCG,
        base: "aio=threads".into(),
        variant: variant.into(),
        comparison: Comparison {
            ratio,
            difference: Some(estimate(|r| (r - 1.0) * 240e3)),
            rounds,
            p: None,
            verdict: Verdict::by_interval(&ratio, 1.0),
        },
    }
}

/// Three ways of asynchronous I/O under TCG, the micro-guest under KVM, the bare host.
pub fn varied(rounds: u32) -> LayerFindings {
    let tcg = |variant: &str, device| column(Machine::TCG, variant, rounds, device);
    LayerFindings {
        schema: SCHEMA,
        rounds_planned: rounds,
        host: Some(figure(28.0)),
        columns: vec![
            tcg("aio=threads", 47.0),
            tcg("aio=native", 46.2),
            tcg("aio=io_uring", 31.0),
            column(Machine::MICRO_KVM, "aio=threads", rounds, 22.6),
        ],
        differences: vec![
            difference("aio=native", 0.97, 0.995, 1.02, rounds),
            difference("aio=io_uring", 0.91, 0.936, 0.96, rounds),
        ],
        method: "Rows are means over matched requests; intervals span order statistics of the rounds' means.".into(),
        warnings: vec![Warning::StolenTime { percent: 3 }],
        advice: vec![Advice {
 finding: "Each request waits 10.2 µs (mean) for a host CPU before QEMU's main loop runs: give QEMU a CPU of its own, or try `--vary iothread=off,on`.".into(), ..Advice::default() }],
    }
}

/// One Linux guest and its floor.
pub fn plain(rounds: u32) -> LayerFindings {
    let mut findings = varied(rounds);
    findings.columns.retain(|c| c.variant == "aio=threads");
    findings.columns.iter_mut().for_each(|c| c.variant.clear());
    findings.differences.clear();
    findings
}

/// Findings whose events' cost is known: a tenth of each row; over the untraced control it is `ratio`.
pub fn corrected(ratio: Option<Estimate>) -> LayerFindings {
    let mut findings = plain(6);
    let column = &mut findings.columns[0];
    for row in &mut column.rows {
        (row.events, row.corrected_ns) = (Some(1.5), Some(row.time.mean_ns * 0.9));
    }
    let estimate = |median: f64| Estimate {
        median,
        interval: None,
    };
    column.corrected = Some(Corrected {
        total: Summary {
            mean_ns: column.traced.mean_ns * 0.9,
            p50_ns: 201_000.0,
            ..column.traced
        },
        unexplained_ns: column.unexplained_ns * 0.9,
        median: estimate(201_000.0),
        ratio,
        events: 31.0,
        costs: vec![CalibratedCost {
            side: "host".to_owned(),
            kind: EventKind::Uprobe,
            repetitions: 36,
            first_ns: estimate(1_850.0),
            again_ns: estimate(640.0),
        }],
    });
    findings
}

/// A recording for them; its trials are not checked.
pub fn layers_recording(rounds: u32) -> Recording {
    let mut r = recording(&[], rounds);
    r.plan.name = "layers".into();
    r.plan.machines = vec![Machine::NATIVE, Machine::TCG, Machine::MICRO_KVM];
    r.plan.workloads = vec![
        WorkloadSpec::new(WorkloadName::Disk)
            .with("block-size", "4K")
            .with("count", 10_000),
    ];
    r.manifest.command = ["vmtax", "layers", "--vary", "aio=threads,native,io_uring"]
        .map(Into::into)
        .to_vec();
    r.folder = "runs/20261120T140211Z-layers".into();
    r.host = host();
    r
}
