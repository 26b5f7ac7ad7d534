//! Round trips over the network, followed through a real guest, QEMU, a tap and the host's stack.

use crate::common::{Place, Signal, json, kernel, packet_delaying_qemu};
use serde_json::Value;
use std::fs;

/// Round trips of a trial.
const COUNT: u64 = 300;
/// What the shim adds to each write of a packet to the tap.
const DELAY_NS: f64 = 200_000.0;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no figure: {value}"))
}

fn column<'a>(report: &'a Value, variant: &str) -> &'a Value {
    let columns = report["findings"]["columns"].as_array().unwrap();
    columns.iter().find(|c| c["variant"] == variant).unwrap_or_else(|| panic!("no column {variant}"))
}

/// A row's figure, ns; of one row for each state.
fn row(column: &Value, to: &str, measure: &str) -> f64 {
    let rows = column["rows"].as_array().unwrap().iter().filter(|row| row["to"] == to);
    rows.map(|row| number(&row["time"][measure])).sum()
}

/// Nearly all are followed, in the order of cause and effect, and each nanosecond is in one row or unexplained.
fn is_whole(column: &Value, operations: u64) {
    let matched = &column["matched"];
    assert_eq!(matched["operations"], operations);
    assert!(number(&matched["joined"]) >= 0.999 * operations as f64, "{matched}");
    assert_eq!(column["clock"]["violations"], 0);
    let sum: f64 = column["rows"].as_array().unwrap().iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let (traced, unexplained) = (number(&column["traced"]["mean_ns"]), number(&column["unexplained_ns"]));
    assert!((sum + unexplained - traced).abs() < 0.002 * traced, "{sum} + {unexplained} of {traced}");
}

/// The network namespaces that processes are in.
fn namespaces() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut all: Vec<_> = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok()).collect();
    all.sort();
    all.dedup();
    all.len()
}

#[test]
#[ignore = "needs root"]
fn a_delay_in_qemus_way_to_the_tap_is_found_there_and_each_round_trip_is_followed() {
    kernel();
    let place = Place::new();
    let before = namespaces();
    let plan = format!(
        "study = 'layers'\nrounds = 1\nmachines = ['native', 'tcg']\nprobes = ['none', 'network']\n[[workload]]\nname = 'net-rr'\n\
         options = {{ count = {COUNT}, time = 0 }}\n[[variant]]\nname = 'plain'\n[[variant]]\nname = 'late'\n\
         set = {{ qemu = '{}' }}\n",
        packet_delaying_qemu(&place, DELAY_NS as u64).display()
    );
    let plan = place.put("plan.toml", plan);
    let run = place.vmtax("layers --json --dir").arg(place.runs()).arg(plan);
    let report = json(&run.start(180).outcome().exits(0).stdout);
    let [plain, late] = ["plain", "late"].map(|variant| column(&report, variant));
    is_whole(plain, COUNT);
    is_whole(late, COUNT);
    // Natively it crosses no virtqueue.
    assert!(number(&report["findings"]["host"]["p50_ns"]) < number(&plain["control"]["p50_ns"]));
    let grown = |to| row(late, to, "p50_ns") - row(plain, to, "p50_ns");
    let there = grown("net-tap-write");
    assert!((there - DELAY_NS).abs() < DELAY_NS / 10.0, "{there} ns of {DELAY_NS} before the write to the tap");
    let both_ways = ["net-guest-queue", "net-tap-receive", "net-host-queue", "net-tap-read", "net-guest-receive"];
    for to in both_ways {
        assert!(row(plain, to, "mean_ns") > 0.0 && grown(to).abs() < DELAY_NS / 10.0, "{to}: {} ns more", grown(to));
    }
    let text = place.vmtax("report").arg(place.recording()).succeeds().stdout;
    assert!(text.contains("write to the tap") && text.contains("unexplained"), "{text}");
    let parquet = place.path("requests.parquet");
    place.vmtax("export").arg(place.recording()).arg("--parquet").arg(&parquet).succeeds();
    assert_eq!(namespaces(), before);
}

#[test]
#[ignore = "needs root"]
fn a_killed_run_leaves_no_namespace_and_no_process() {
    kernel();
    let place = Place::new();
    let before = namespaces();
    for machine in ["native", "tcg"] {
        let words = format!("run net-rr time=60 --rounds 1 --machine {machine} --dir");
        let mut run = place.vmtax(&words).arg(place.runs()).start(60);
        run.until("the echo server", |place| {
            place.processes().iter().any(|process| process.command.contains("agent echo")).then_some(())
        });
        run.settled();
        run.signal(Signal::KILL);
        drop(run);
        place.nothing_is_left();
        assert_eq!(namespaces(), before, "{machine}");
    }
}

#[test]
fn without_rights_it_is_said_what_is_missing() {
    let place = Place::new();
    let run = place.vmtax_as_ordinary_user("run net-rr time=0.1 --rounds 1 --machine native --dir");
    let said = run.arg(place.runs()).env("HOME", place.path("home")).outcome().stderr;
    assert!(said.contains("run vmtax as root") && said.contains("slirp"), "{said}");
}
