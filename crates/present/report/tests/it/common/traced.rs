//! Findings of single traced runs, and of tunings, read from their JSON.

use super::layers::{column, plain};
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

/// Findings with a column of one traced run for each of these.
fn of_run(machine: Machine, names: &[&str], from_host: bool) -> LayerFindings {
    let short = |name: &&str| {
        let mut column = column(machine, name, 1, 40.0);
        column.rows.truncate(4);
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

fn traced(layers: &LayerFindings, requests: &Value, packets: &Value) -> VmLayers {
    let mut found = json!({
        "vm": super::vm(7, "web01", &[]), "seconds": 10.0, "ended": true, "requests": requests, "idle": ["spare0", "spare1"],
        "missing": [{"what": "kicks", "why": "no QMP.", "fix": "give QEMU one"}], "layers": layers,
    });
    if !packets.is_null() {
        found["packets"] = packets.clone();
    }
    read(found)
}

/// A running VM's requests: the host's device shows, or not; none of one disk is followed.
pub fn vm_requests(from_host: bool) -> VmLayers {
    let layers = of_run(Machine::KVM, &["vda, reads", "vdb, flushes"], from_host);
    let requests = json!([
        {"disk": "vda", "file": "/img/a.qcow2", "format": "qcow2", "thread": "iothread io0", "kind": "read", "requests": 4_321, "followed": 4_000,
         "per_s": 432.1, "in_flight": 1.75, "gavg": summary(412.0), "kavg": summary(162.0), "davg": summary(250.0)},
        {"disk": "vdb", "file": null, "format": null, "thread": "", "kind": "flush", "requests": 9, "followed": 0,
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
    let packets = |tap: &str, kind: &str, followed: u64, batching: Value| {
        json!({"tap": tap, "queues": 2, "thread": if followed == 0 { "" } else { "main loop" }, "kind": kind, "packets": 12_345, "followed": followed,
               "per_s": 1234.5, "time": summary(62.0), "batching": batching})
    };
    let batching = json!([{"kind": "doorbell", "packets": 30, "batches": 12}, {"kind": "write", "packets": 30, "batches": 30}]);
    let packets = json!([
        packets("vnet0", "transmit", 12_000, batching),
        packets("vnet0", "receive", 11_000, json!([])),
        packets("vnet1", "receive", 0, json!([])),
    ]);
    traced(&of_run(Machine::KVM, &names, true), &json!([]), &packets)
}

/// The question to a VM that has nothing to follow.
pub fn vm_idle() -> VmLayers {
    let layers = of_run(Machine::KVM, &[], true);
    traced(&layers, &json!([]), &Value::Null)
}

/// A command's requests and packets under TCG; another guest uses neither device.
pub fn command_traced() -> CommandLayers {
    let requests = json!([
        {"kind": "write", "requests": 3, "followed": 2, "bytes": 12_288, "sizes": [[4096, 1], [8192, 2]], "time": summary(88.0)},
        {"kind": "flush", "requests": 1, "followed": 1, "bytes": 0, "sizes": [[0, 1]], "time": summary(800.0)},
    ]);
    let batching = json!([{"kind": "interrupt", "packets": 30, "batches": 12}]);
    let packets = json!([
        {"kind": "transmit", "packets": 40, "followed": 39, "bytes": 9_000, "time": summary(40.0), "batching": []},
        {"kind": "receive", "packets": 30, "followed": 30, "bytes": 44_000, "time": summary(70.0), "batching": batching},
    ]);
    let device = |machine: Machine, field: &str, kinds: &Value| {
        let mut device =
            json!({"machine": machine, "wall_s": 7.5, "observed_s": 6.0, "under_way_s": 0.75});
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
        "layers": of_run(Machine::TCG, &["flushes", "writes"], false),
        "packets": {
            "nics": devices("directions", &packets),
            "layers": of_run(Machine::TCG, &["transmitted packets", "received packets"], false),
        },
    }))
}

fn ratio(median: f64, verdict: &str) -> Value {
    json!({"ratio": {"median": median, "interval": {"low": median * 0.9, "high": median * 1.1, "coverage": 0.97}}, "difference": null,
           "rounds": 11, "p": null, "verdict": verdict})
}

fn moved() -> Value {
    json!([
        {"name": "latency of disk requests (BLKAVG)", "unit": "ns", "before": 46e6, "after": 881e3, "comparison": ratio(0.02, "faster")},
        {"name": "p99 request latency", "unit": "ns", "before": 1e6, "after": 2e6, "comparison": ratio(2.0, "slower")},
        {"name": "disk requests", "unit": "per second", "before": 0.0, "after": 12.0, "comparison": null},
    ])
}

fn not_tried() -> Value {
    json!([{"action": "Use raw images", "line": "qemu-img convert", "why": "needs a restart of the VM"}, {"action": "Pin", "line": "", "why": "needs your decision"}])
}

/// A tuning of a running VM.
pub fn tuned(applied: bool) -> TuneFindings {
    let candidate = |action: &str,
                     ceiling: f64,
                     verdict: &str,
                     why: Value,
                     screening: Value,
                     confirmation: Value| {
        json!({"rule": "disk-limits", "finding": "Requests wait for limits.", "ceiling": ceiling,
               "change": {"action": action, "cost": "live", "metric": "latency", "disk": null, "settings": [
                   {"setting": {"kind": "disk-limits", "device": "d0"}, "value": "{}"}, {"setting": {"kind": "affinity", "tid": 9}, "value": "0-3"}]},
               "verdict": verdict, "why": why, "screening": screening, "confirmation": confirmation})
    };
    let (faster, none) = (ratio(0.5, "faster"), Value::Null);
    let candidates = json!([
        candidate(
            "Remove the I/O limits of disk0",
            0.9,
            "keep",
            none.clone(),
            faster.clone(),
            faster
        ),
        candidate(
            "Unpin",
            0.0,
            "refused",
            json!("no such thread"),
            none.clone(),
            none
        ),
    ]);
    read(json!({
        "vm": super::vm(7, "web01", &[]), "applied": applied, "metric": "latency of disk requests (BLKAVG)",
        "total": if applied { ratio(0.02, "faster") } else { Value::Null }, "moved": if applied { moved() } else { json!([]) },
        "candidates": candidates, "is_on": applied, "not_tried": not_tried(), "ended": "the VM ended", "seconds": 30.0,
    }))
}

/// A tuning of a guest that was booted for it.
pub fn guest_tuned(kept: bool) -> GuestTuneFindings {
    let candidate = |name: &str, verdict: &str, why: Value, beside: Value| {
        json!({"name": name, "set": {"aio": "native"}, "trap": "", "source": "QEMU's manual", "cost": "vm-restart",
               "verdict": verdict, "why": why, "beside": beside, "screening": ratio(0.7, "faster"),
               "confirmation": if verdict == "keep" { ratio(0.6, "faster") } else { Value::Null }})
    };
    let keep = if kept { "keep" } else { "reject" };
    let candidates = json!([
        candidate("aio=native", keep, Value::Null, Value::Null),
        candidate("without limits", keep, Value::Null, json!("aio=native")),
        candidate(
            "cache=none",
            "inconclusive",
            json!("it is not faster"),
            json!("aio=native")
        ),
    ]);
    read(json!({
        "metric": "disk.latency-p50", "total": if kept { ratio(0.4, "faster") } else { Value::Null },
        "before": 90_000.0, "after": 36_000.0, "guards": if kept { moved() } else { json!([]) }, "candidates": candidates,
        "second_screening": {"beside": "aio=native", "candidates": ["cache=none"], "kept": [], "boots": 8},
        "baseline": {"aio": "threads"}, "tuned": {"aio": "native"}, "at_most": if kept { Value::Null } else { json!(0.12) },
        "not_tried": not_tried(), "job_notes": ["ramp_time is ignored"], "like": null, "ended": "time limit reached",
        "rounds": 30, "boots": 120, "seconds": 600.0,
    }))
}
