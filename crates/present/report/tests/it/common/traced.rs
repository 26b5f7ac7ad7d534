//! Findings of single traced runs, and of tunings, read from their JSON.

use super::layers::{column, plain};
use super::studies::vcpu_states;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vmtax_findings::*;
use vmtax_model::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn summary(mean_us: f64) -> Value {
    let ns = mean_us * 1e3;
    json!({"n": 4_000, "min_ns": ns * 0.6, "p50_ns": ns * 0.9, "p90_ns": ns * 1.5, "p99_ns": ns * 3.0, "max_ns": ns * 9.0, "mean_ns": ns})
}

/// Findings with a column of one traced run for each of these: of disks' requests, or of packets.
fn of_run(machine: Machine, names: &[&str], from_host: bool) -> LayerFindings {
    let short = |name: &&str| {
        let mut column = column(machine, name, 1, 40.0);
        let rows: &[usize] = match (name.ends_with("packets"), from_host) {
            (true, true) => &[5, 6, 7, 17],
            (true, false) => &[3, 5, 6, 7],
            // From the kick to the interrupt.
            (false, true) => &[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
            (false, false) => &[0, 1, 2, 3, 5, 6, 7, 9, 12, 13, 15, 17, 18, 19],
        };
        column.rows = rows.iter().map(|row| column.rows[*row].clone()).collect();
        let sum: f64 = column.rows.iter().map(|row| row.time.mean_ns).sum();
        let times = (sum + column.unexplained_ns) / column.traced.mean_ns;
        let whole = &mut column.traced;
        for ns in [
            &mut whole.min_ns,
            &mut whole.p50_ns,
            &mut whole.p90_ns,
            &mut whole.p99_ns,
            &mut whole.max_ns,
            &mut whole.mean_ns,
        ] {
            *ns *= times;
        }
        column.rows.iter_mut().for_each(|row| row.percent /= times);
        column.tail.truncate(1);
        LayerColumn {
            from_host,
            rounds: 1,
            control: None,
            control_median: None,
            observer: None,
            lifecycle: Vec::new(),
            nested: Vec::new(),
            waterfalls: Vec::new(),
            heat: HeatMap::default(),
            calls: Vec::new(),
            ..column
        }
    };
    let columns = names.iter().map(short);
    LayerFindings {
        rounds_planned: 1,
        host: None,
        columns: columns.collect(),
        differences: Vec::new(),
        warnings: Vec::new(),
        ..plain(1)
    }
}

/// So many of a column's requests, all of them lost to events or matched.
fn matched(column: &mut LayerColumn, operations: u64, joined: u64) {
    let lost = operations - joined;
    let reason = "events were lost while it was in flight".to_owned();
    column.matched = Matched {
        operations,
        joined,
        rejected: (lost > 0).then_some((reason, lost)).into_iter().collect(),
        lost_events: lost,
    };
    column.traced.n = joined;
    column.rows.iter_mut().for_each(|row| row.count = joined);
    if joined == 0 {
        column.rows.clear();
        (column.traced, column.unexplained_ns) = (read(summary(0.0)), 0.0);
        column.traced.n = 0;
    }
}

/// The VM of these pages, under KVM.
fn web01() -> VmFacts {
    VmFacts {
        accelerator: Some(Accelerator::Kvm),
        ..super::vm(7, "web01", &[])
    }
}

fn traced(layers: &LayerFindings, requests: &Value, packets: &Value) -> VmLayers {
    let mut found = json!({
        "vm": web01(), "seconds": 10.0, "ended": true, "requests": requests, "idle": ["spare0", "spare1"],
        "missing": [{"what": "kicks", "why": "no QMP", "fix": "start QEMU with -qmp"}], "layers": layers,
    });
    if !packets.is_null() {
        found["packets"] = packets.clone();
    }
    read(found)
}

/// Counters of a VM with two vCPUs, each of which runs and waits for a host CPU for so many ms each second, after so many seconds.
fn vm_counters(s: u64, host_cpus: &str, [ran_ms, waited_ms]: [u64; 2]) -> VmCounters {
    let thread = |tid, role, ran_ms: u64, waited_ms: u64| ThreadCounters {
        tid,
        role,
        cpu_ns: s * ran_ms * 1_000_000,
        wait_ns: s * waited_ms * 1_000_000,
        turns: s * 100,
        throttled_ns: None,
    };
    let reads = RequestCounters {
        count: s * 120,
        bytes: s * 120 * 4096,
        total_ns: s * 120 * 310_000,
    };
    let none = RequestCounters::default();
    VmCounters {
        pid: 7,
        started: 1,
        at_ns: (s + 1) * 1_000_000_000,
        state: Some(RunState::Running),
        threads: vec![
            thread(101, Role::Vcpu(0), ran_ms, waited_ms),
            thread(102, Role::Vcpu(1), ran_ms, waited_ms),
            thread(7, Role::Main, 20, 2),
        ],
        disks: vec![DiskCounters {
            name: "vda".to_owned(),
            qemu: Some([reads, none, none]),
            ..DiskCounters::default()
        }],
        settings: VmSettings {
            host_cpus: host_cpus.to_owned(),
            ..VmSettings::default()
        },
        ..VmCounters::default()
    }
}

/// A diagnosis of a VM whose two vCPUs wait for a host CPU for half of the time, or next to never.
pub fn diagnosed(is_starved: bool) -> VmDiagnosis {
    let (cpus, times_ms) = match is_starved {
        true => ("0-1", [470, 520]),
        false => ("0-7", [120, 4]),
    };
    let samples = VmSamples {
        schema: SCHEMA,
        vm: web01(),
        before: vm_counters(0, cpus, times_ms),
        after: vm_counters(5, cpus, times_ms),
        host: HostActivity::default(),
        missing: Vec::new(),
    };
    let [ran, waited] = times_ms.map(|ms| ms as f64 / 1e3);
    let mut profile = vcpu_states(&[[ran, waited], [ran, waited]]);
    profile.states.iter_mut().for_each(|states| {
        states.contention = Some(CpuContention {
            cpus: cpus.to_owned(),
            threads: 2,
            waited: 2.0 * waited,
            ran: 2.0 * ran,
            own: [2.0 * ran; 2],
            other: [1.0; 2],
            throttled: Some(0.0),
        });
    });
    let mut host = super::host();
    host.cpu.online = 8;
    let layers = is_starved.then(|| vm_requests(true));
    vmtax_analysis::diagnosis(&samples, &host, Some(profile), layers).unwrap()
}

/// A running VM's requests: the host's device shows, or not; none of one disk is matched.
pub fn vm_requests(from_host: bool) -> VmLayers {
    let mut layers = of_run(Machine::KVM, &["vda, reads", "vdb, flushes"], from_host);
    matched(&mut layers.columns[0], 4_321, 4_315);
    matched(&mut layers.columns[1], 9, 0);
    layers.columns[1].missing.push(Missing {
        what: "the host's block device beneath vdb".to_owned(),
        why: "qcow2 puts the guest's bytes elsewhere in the file, so they cannot be found on the device".to_owned(),
        fix: "use a raw image on one disk".to_owned(),
    });
    let reads = &layers.columns[0];
    let gavg = reads.traced.mean_ns / 1e3;
    let of_device = reads.rows.iter().filter(|row| row.layer == Layer::Device);
    let davg = of_device.map(|row| row.time.mean_ns).sum::<f64>() / 1e3;
    let requests = json!([
        {"disk": "vda", "file": "/img/a.raw", "format": "raw", "thread": "iothread io0", "kind": "read", "requests": 4_321, "followed": 4_315,
         "per_s": 432.1, "in_flight": 432.1 * gavg / 1e6, "gavg": summary(gavg), "kavg": summary(gavg - davg), "davg": summary(davg)},
        {"disk": "vdb", "file": "/img/b.qcow2", "format": "qcow2", "thread": "", "kind": "flush", "requests": 9, "followed": 0,
         "per_s": 0.9, "in_flight": 0.0, "gavg": summary(90.0), "kavg": null, "davg": null},
    ]);
    traced(&layers, &requests, &Value::Null)
}

/// A running VM's packets, of two taps.
pub fn vm_packets() -> VmLayers {
    let names = [
        "vnet0, transmitted packets",
        "vnet0, received packets",
        "vnet1, received packets",
    ];
    let time = json!(of_run(Machine::KVM, &names[..1], true).columns[0].traced);
    let packets = |tap: &str, kind: &str, followed: u64, batching: Value| {
        json!({"tap": tap, "queues": 2, "thread": if followed == 0 { "" } else { "main loop" }, "kind": kind, "packets": 12_345, "followed": followed,
               "per_s": 1234.5, "time": time, "batching": batching})
    };
    let batching = json!([{"kind": "doorbell", "packets": 12_000, "batches": 4_800}, {"kind": "write", "packets": 12_000, "batches": 12_000}]);
    let packets = json!([
        packets("vnet0", "transmit", 12_000, batching),
        packets("vnet0", "receive", 11_000, json!([])),
        packets("vnet1", "receive", 0, json!([])),
    ]);
    let mut layers = of_run(Machine::KVM, &names, true);
    for (column, followed) in layers.columns.iter_mut().zip([12_000, 11_000, 0]) {
        matched(column, 12_345, followed);
    }
    traced(&layers, &json!([]), &packets)
}

/// The question to a VM that has nothing to follow.
pub fn vm_idle() -> VmLayers {
    let layers = of_run(Machine::KVM, &[], true);
    traced(&layers, &json!([]), &Value::Null)
}

/// A command's requests and packets under TCG; another guest uses neither device.
pub fn command_traced() -> CommandLayers {
    let mut of_disks = of_run(Machine::TCG, &["writes", "flushes"], false);
    let directions = ["transmitted packets", "received packets"];
    let mut of_nics = of_run(Machine::TCG, &directions, false);
    for (column, [all, followed]) in of_disks
        .columns
        .iter_mut()
        .zip([[3_000, 2_990], [100, 100]])
    {
        matched(column, all, followed);
    }
    for (column, [all, followed]) in of_nics.columns.iter_mut().zip([[40, 39], [30, 30]]) {
        matched(column, all, followed);
    }
    let [of_request, of_packet] = [&of_disks, &of_nics].map(|found| json!(found.columns[0].traced));
    let requests = json!([
        {"kind": "write", "requests": 3_000, "followed": 2_990, "bytes": 16_384_000, "sizes": [[4096, 2_000], [8192, 1_000]], "time": of_request},
        {"kind": "flush", "requests": 100, "followed": 100, "bytes": 0, "sizes": [[0, 100]], "time": of_request},
    ]);
    let batching = json!([{"kind": "interrupt", "packets": 30, "batches": 12}]);
    let packets = json!([
        {"kind": "transmit", "packets": 40, "followed": 39, "bytes": 9_000, "time": of_packet, "batching": []},
        {"kind": "receive", "packets": 30, "followed": 30, "bytes": 44_000, "time": of_packet, "batching": batching},
    ]);
    let device = |machine: Machine, field: &str, kinds: &Value| {
        let mut device =
            json!({"machine": machine, "wall_s": 13.5, "observed_s": 6.0, "under_way_s": 0.75});
        device[field] = kinds.clone();
        device
    };
    let devices = |field: &str, kinds: &Value| {
        json!([
            device(Machine::TCG, field, kinds),
            device(Machine::KVM, field, &json!([]))
        ])
    };
    read(json!({
        "disks": devices("kinds", &requests),
        "layers": of_disks,
        "packets": {
            "nics": devices("directions", &packets),
            "layers": of_nics,
        },
    }))
}

fn ratio(median: f64, verdict: &str) -> Value {
    json!({"ratio": {"median": median, "interval": {"low": median * 0.9, "high": median * 1.1, "coverage": 0.97}}, "difference": null,
           "rounds": 11, "p": null, "verdict": verdict})
}

fn moved() -> Value {
    json!([
        {"name": LiveMetric::Latency.label(), "unit": "ns", "before": 46e6, "after": 881e3, "comparison": ratio(0.02, "faster")},
        {"name": "p99 request latency", "unit": "ns", "before": 1e6, "after": 2e6, "comparison": ratio(2.0, "slower")},
        {"name": LiveMetric::Requests.label(), "unit": "per second", "before": 41.0, "after": 157.5, "comparison": ratio(3.84, "faster")},
        {"name": LiveMetric::Throughput.label(), "unit": "bytes per second", "before": 645e3, "after": 161e3, "comparison": ratio(0.25, "slower")},
        {"name": LiveMetric::Run.label(), "unit": "fraction", "before": 0.059, "after": 0.13, "comparison": ratio(2.2, "differs")},
        {"name": "run-queue wait of the vCPUs (%RDY)", "unit": "fraction", "before": 0.0, "after": 0.12, "comparison": null},
    ])
}

fn not_tried() -> Value {
    json!([{"finding": "qcow2 reads tables, too.", "action": "Use raw images", "line": "qemu-img convert", "why": "needs a restart of the VM"}, {"action": "Pin", "line": "", "why": "needs your decision"}])
}

/// A tuning of a running VM.
pub fn tuned(applied: bool) -> TuneFindings {
    let candidate = |action: &str,
                     finding: &str,
                     ceiling: f64,
                     verdict: &str,
                     why: Value,
                     found: &Value| {
        json!({"rule": "disk-limits", "finding": finding, "ceiling": ceiling,
               "change": {"action": action, "cost": "live", "metric": "latency", "disk": null, "settings": [
                   {"setting": {"kind": "disk-limits", "device": "d0"}, "value": "{}"}, {"setting": {"kind": "affinity", "tid": 9}, "value": "0-3"}]},
               "verdict": verdict, "why": why, "screening": found, "confirmation": found})
    };
    let (faster, none) = (ratio(0.021, "faster"), Value::Null);
    let unlimited = "Requests wait for limits.";
    let pinned = "The vCPUs wait for a host CPU 20 % of the time (%RDY).";
    let (limits, refused) = ("Remove the I/O limits of disk0", json!("no such thread"));
    let candidates = json!([
        candidate(limits, unlimited, 0.99, "keep", none.clone(), &faster),
        candidate("Unpin", pinned, 0.0, "refused", refused, &none),
    ]);
    read(json!({
        "vm": web01(), "applied": applied, "metric": LiveMetric::Latency.label(),
        "total": if applied { ratio(0.02, "faster") } else { Value::Null }, "moved": if applied { moved() } else { json!([]) },
        "candidates": candidates, "is_on": applied, "not_tried": not_tried(), "ended": "the VM exited", "seconds": 30.0,
    }))
}

/// A tuning of a guest that was booted for it.
pub fn guest_tuned(kept: bool) -> GuestTuneFindings {
    let candidate = |name: &str, verdict: &str, why: Value, beside: Value| {
        let screening = match verdict {
            "keep" => ratio(0.7, "faster"),
            _ => ratio(1.02, "inconclusive"),
        };
        json!({"name": name, "set": {"aio": "native"}, "trap": "", "source": "QEMU's manual", "cost": "vm-restart",
               "verdict": verdict, "why": why, "beside": beside, "screening": screening,
               "confirmation": if verdict == "keep" { ratio(0.6, "faster") } else { Value::Null }})
    };
    let keep = if kept { "keep" } else { "reject" };
    let base = if kept {
        json!("aio=native")
    } else {
        Value::Null
    };
    let candidates = json!([
        candidate("aio=native", keep, Value::Null, Value::Null),
        candidate("without limits", keep, Value::Null, base.clone()),
        candidate(
            "cache=none",
            "inconclusive",
            json!("it is not faster"),
            base
        ),
    ]);
    let guards = json!([
        {"name": "disk latency, p50", "unit": "ns", "before": 90e3, "after": 36e3, "comparison": ratio(0.4, "faster")},
        {"name": "disk latency, p99", "unit": "ns", "before": 1e6, "after": 2e6, "comparison": ratio(2.0, "slower")},
    ]);
    let second =
        json!({"beside": "aio=native", "candidates": ["cache=none"], "kept": [], "boots": 8});
    read(json!({
        "metric": "disk.latency-p50", "total": if kept { ratio(0.4, "faster") } else { Value::Null },
        "before": 90_000.0, "after": 36_000.0, "guards": if kept { guards } else { json!([]) }, "candidates": candidates,
        "second_screening": if kept { second } else { Value::Null },
        "baseline": {"aio": "threads"}, "tuned": {"aio": "native"}, "at_most": if kept { Value::Null } else { json!(0.12) },
        "not_tried": not_tried(), "job_notes": ["ramp_time is ignored"], "like": null, "ended": "time limit reached",
        "rounds": 30, "boots": 120, "seconds": 600.0,
    }))
}
