//! `vmtax profile -- WORKLOAD` from inside the guest: calls that are known in number, functions that are known by name.

use crate::common::{Place, files_below, json, kernel, known_program, qemu};
use crate::profile::{KNOWN, has_known_shares};
use serde_json::Value;
use std::fs;

const READS: u64 = 300;

fn profile(place: &Place, out: &str, words: &str) -> Value {
    let (guest, qemu) = (kernel().options(), qemu().display());
    let words =
        format!("profile --json --machine tcg --qemu {qemu} {guest} --output {out} {words}");
    json(&place.vmtax(&words).succeeds().stdout)
}

#[test]
fn each_system_call_of_the_guest_is_counted() {
    let place = Place::new();
    let words = format!("--syscalls=process -- disk disk.count={READS} disk.time=0");
    let found = profile(&place, "out", &words);
    let calls = found["guest"]["calls"].clone();
    let rows = calls["rows"].as_array().unwrap();
    let reads: Vec<&Value> = rows.iter().filter(|r| r["name"] == "pread64").collect();
    assert_eq!(reads.len(), 1, "{rows:#?}");
    // As many as the workload says it made, and no other process makes any.
    assert_eq!(reads[0]["calls"], READS, "{}", reads[0]);
    let ns = |name: &str| reads[0][name].as_f64().unwrap();
    assert!(
        ns("min_ns") > 1000.0 && ns("min_ns") <= ns("avg_ns") && ns("avg_ns") <= ns("max_ns"),
        "{}",
        reads[0]
    );
    assert!((ns("total_ns") / READS as f64 - ns("avg_ns")).abs() < 1.0);
    assert_eq!(calls["lost"], 0);
    // It was measured; what it is depends on the machine.
    assert!(
        calls["added_ns"].as_f64().is_some_and(|ns| ns < 1e6),
        "{}",
        calls["added_ns"]
    );
    // A line each, the same figures.
    let lines = fs::read_to_string(place.path("out/guest-syscalls.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(json).collect();
    assert_eq!(&lines, rows);
    place.nothing_is_left();
}

#[test]
fn both_sides_come_into_one_picture() {
    let place = Place::new();
    let found = profile(&place, "out", "-- cpu time=4");
    let guest = &found["guest"];
    let share = |f: &Value| f["self"]["share"].as_f64().unwrap();
    let first = &guest["functions"][0];
    // All that the workload does is look for primes.
    assert!(
        first["name"].as_str().unwrap().ends_with("cpu::primes") && share(first) > 0.5,
        "{first:#}"
    );
    assert_eq!(first["layer"], "guest-user");
    assert!(
        guest["threads"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == "cpu"),
        "{:#}",
        guest["threads"]
    );
    assert_eq!(guest["calls"], Value::Null);

    let joined = &guest["joined"];
    assert!(joined["in_guest"].as_u64().unwrap() > 20, "{joined}");
    assert!(
        joined["joined"]["share"].as_f64().unwrap() > 0.5,
        "{joined}"
    );
    let whole = fs::read_to_string(place.path("out/with-guest.folded")).unwrap();
    let (mut all, mut together) = (0, 0);
    for line in whole.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        all += count;
        let on_top = stack
            .split_once(";[translated code]_[j];task cpu_[g];")
            .map(|(_, guest)| guest);
        together += if on_top.is_some_and(|guest| guest.contains("cpu::primes_[g]")) {
            count
        } else {
            0
        };
    }
    assert_eq!(
        all, found["samples"],
        "no sample of QEMU's is lost or counted twice"
    );
    assert!(
        together as f64 > 0.3 * all as f64,
        "{together} of {all}: {whole}"
    );
    // What TCG's vCPU does adds up.
    let parts = found["tcg"].as_array().unwrap();
    let samples_of_part = |part: &str| {
        parts
            .iter()
            .find(|p| p["part"] == part)
            .map_or(0, |p| p["share"]["samples"].as_u64().unwrap())
    };
    let vcpu = found["threads"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["translated"] != 0)
        .unwrap();
    let sum: u64 = parts
        .iter()
        .map(|p| p["share"]["samples"].as_u64().unwrap())
        .sum();
    assert_eq!(vcpu["share"]["samples"], sum, "{parts:#?}");
    // The workload works in doubles, for which translated code calls helpers.
    assert!(
        (samples_of_part("translated") + samples_of_part("helpers")) * 2 > sum
            && samples_of_part("translated") == vcpu["translated"],
        "{parts:#?}"
    );
    assert!(place.path("out/profile.pb.gz").metadata().unwrap().len() > 1000);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("Flame graph, QEMU and its guest") && page.contains("cpu::primes"));
    let firefox = json(&fs::read_to_string(place.path("out/firefox.json")).unwrap());
    let processes: Vec<&str> = firefox["threads"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["processName"].as_str())
        .collect();
    assert!(
        processes.contains(&"guest") && processes.iter().any(|p| p.starts_with("qemu-system")),
        "{processes:?}"
    );
    place.nothing_is_left();
}

/// A command of one's own, whose program and libraries are the host's.
#[test]
fn known_shares_are_found_inside_a_guest() {
    let place = Place::new();
    let program = known_program(&place, "known");
    let (guest, qemu, runs) = (kernel().options(), qemu().display(), place.runs());
    let words = format!(
        "exec --profile --machine tcg --rounds 1 --qemu {qemu} {guest} --dir {} -- {} 4",
        runs.display(),
        program.display()
    );
    // It ends itself by a signal.
    place.vmtax(&words).outcome().exits(142);
    let written = files_below(&runs)
        .into_iter()
        .find(|file| file.ends_with("profile.json"))
        .unwrap();
    let found = json(&fs::read_to_string(written).unwrap());
    has_known_shares(&found["guest"], KNOWN.map(|(name, _)| name));
    let functions = found["guest"]["functions"].as_array().unwrap();
    let fifty = functions.iter().find(|f| f["name"] == "fifty").unwrap();
    assert!(
        fifty["module"].as_str().unwrap().ends_with("/known") && fifty["layer"] == "guest-user",
        "{fifty}"
    );
    assert!(
        found["guest"]["unwound"]["share"].as_f64().unwrap() > 0.8,
        "{:#}",
        found["guest"]["unwound"]
    );
    place.nothing_is_left();
}

#[test]
fn who_does_not_want_it_has_none_and_who_cannot_is_told() {
    let place = Place::new();
    let found = profile(&place, "out", "--guest-hz 0 -- cpu time=0.3");
    assert_eq!(found["guest"], Value::Null);
    assert!(!place.path("out/with-guest.svg").exists());
    place
        .vmtax("profile --machine micro-tcg --syscalls -- disk")
        .fails(&["micro-tcg has no system calls", "--machine"]);
    place
        .vmtax("profile --pid 1 --syscalls")
        .fails(&["--syscalls", "--pid"]);
}
