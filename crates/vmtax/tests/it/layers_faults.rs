//! Recordings of `vmtax layers` with damaged files: a clear error or a counted exclusion, never a panic.

use crate::common::{
    Outcome, Place, binary, copy, files_below, json, layers_plan, not_joined, shared_recording,
};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const REQUESTS: u64 = 60;
const PAGE: usize = 4096;
/// The page of the guest's trace that is damaged: some requests are before it, most after.
const DAMAGED: usize = 6;
const GUEST_PAGES: &str = "guest-trace/free.cpu0.raw";
const COMPLETE: &str = "guest-trace/formats/block.block_rq_complete";

/// A recording of one trial, of which all requests are followed.
fn recording() -> PathBuf {
    shared_recording("layers-faults", binary(), |folder| {
        let place = Place::new();
        let layers = place
            .vmtax("layers --json --dir")
            .arg(place.runs())
            .arg(layers_plan(&place, REQUESTS, ""));
        let report = json(&layers.start(300).outcome().exits(0).stdout);
        let matched = &report["findings"]["columns"][0]["matched"];
        let followed = (&matched["joined"], &matched["lost_events"]);
        assert_eq!(
            followed,
            (&Value::from(REQUESTS), &Value::from(0)),
            "{matched}"
        );
        copy(&place.recording(), folder);
    })
}

/// Returns the result of `vmtax report` on a copy of the recording whose trial was damaged by `damage`.
fn report(damage: impl FnOnce(&Trial)) -> Outcome {
    let place = Place::new();
    let folder = place.path("runs/copy");
    copy(&recording(), &folder);
    damage(&Trial(folder.join("trials/0000")));
    place.vmtax("report --json").arg(folder).outcome()
}

/// Returns the column of a damaged recording's report, which still succeeds and counts all requests.
fn column(damage: impl FnOnce(&Trial)) -> Value {
    let outcome = report(damage).exits(0);
    let column = json(&outcome.stdout)["findings"]["columns"][0].take();
    let matched = &column["matched"];
    assert_eq!(matched["operations"], REQUESTS);
    assert_eq!(
        matched["joined"].as_u64().unwrap() + not_joined(matched),
        REQUESTS,
        "{matched}"
    );
    column
}

/// The folder of a trial.
struct Trial(PathBuf);

impl Trial {
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }

    fn replace(&self, name: &str, from: &str, to: &str) {
        let text = String::from_utf8(self.read(name)).unwrap();
        assert!(text.contains(from), "no {from:?} in {text}");
        self.put(name, text.replacen(from, to, 1));
    }

    /// Changes a word of a page's head: 0 is its time, 8 its length.
    fn word(&self, name: &str, page: usize, at: usize, change: impl Fn(u64) -> u64) {
        let mut bytes = self.read(name);
        let word = &mut bytes[page * PAGE + at..][..8];
        let new = change(u64::from_le_bytes(word.try_into().unwrap()));
        word.copy_from_slice(&new.to_le_bytes());
        self.put(name, bytes);
    }

    fn pages(&self, name: &str) -> usize {
        self.read(name).len() / PAGE
    }
}

fn joined(column: &Value) -> u64 {
    column["matched"]["joined"].as_u64().unwrap()
}

/// Returns the number of requests that were left out for a reason that contains this text.
fn rejected(column: &Value, reason: &str) -> u64 {
    let reasons = column["matched"]["rejected"].as_array().unwrap();
    reasons
        .iter()
        .filter(|r| r[0].as_str().unwrap().contains(reason))
        .map(|r| r[1].as_u64().unwrap())
        .sum()
}

fn lacks(column: &Value, what: &str) -> bool {
    column["missing"]
        .as_array()
        .unwrap()
        .iter()
        .any(|m| m["what"].as_str().unwrap().contains(what))
}

#[test]
fn pages_that_are_cut_or_of_a_wrong_length_cost_the_requests_under_way() {
    let whole = column(|_| {});
    assert_eq!(
        (joined(&whole), &whole["matched"]["lost_events"]),
        (REQUESTS, &Value::from(0))
    );
    let cut = column(|t| t.put(GUEST_PAGES, &t.read(GUEST_PAGES)[..DAMAGED * PAGE + 100]));
    let long = column(|t| t.word(GUEST_PAGES, DAMAGED, 8, |_| 5000));
    let flagged = column(|t| t.word(GUEST_PAGES, DAMAGED, 8, |length| length | 1 << 31));
    for column in [&cut, &long, &flagged] {
        assert_eq!(
            rejected(column, "events were lost"),
            REQUESTS - joined(column),
            "{}",
            column["matched"]
        );
        assert!(
            (1..REQUESTS).contains(&joined(column)),
            "{}",
            column["matched"]
        );
        assert!(
            column["matched"]["lost_events"].as_u64() >= Some(1),
            "{}",
            column["matched"]
        );
    }
    assert!(
        joined(&cut) < joined(&long) && joined(&long) < joined(&flagged),
        "a cut costs all that came after"
    );
    let full = column(|t| {
        t.replace(
            "guest-trace/stats",
            "dropped events: 0",
            "dropped events: 7",
        )
    });
    assert_eq!(full["matched"]["lost_events"], 7);
}

#[test]
fn events_that_no_format_describes_are_counted() {
    let unknown = column(|t| t.remove(COMPLETE));
    let other_number = column(|t| t.replace(COMPLETE, "ID: ", "ID: 5"));
    let beyond_the_record =
        column(|t| t.replace(COMPLETE, "sector;\toffset:", "sector;\toffset:40"));
    for column in [&unknown, &other_number, &beyond_the_record] {
        assert!(lacks(column, "some events"), "{}", column["missing"]);
        assert_eq!(
            (
                joined(column),
                rejected(column, "no request in the guest's block layer")
            ),
            (0, REQUESTS)
        );
    }
    // Another kernel's fields, in a record that has room for them, are no sectors of this disk.
    let moved = column(|t| {
        let text = String::from_utf8(t.read(COMPLETE)).unwrap();
        let (_, offset) = text.split_once("sector_t sector;\toffset:").unwrap();
        let offset = offset.split(';').next().unwrap();
        let to = offset.parse::<u32>().unwrap() + 4;
        t.replace(
            COMPLETE,
            &format!("sector;\toffset:{offset};"),
            &format!("sector;\toffset:{to};"),
        );
    });
    assert_eq!(
        (
            joined(&moved),
            rejected(&moved, "no request in the guest's block layer")
        ),
        (0, REQUESTS)
    );
    let without_wakings = column(|t| t.remove("guest-trace/formats/sched.sched_waking"));
    assert!(lacks(&without_wakings, "some events") && joined(&without_wakings) == REQUESTS);
}

#[test]
fn a_clock_that_jumps_is_told_and_costs_the_requests_after_it() {
    for by in [1_u64 << 33, 1 << 50, (1_u64 << 33).wrapping_neg()] {
        let jumped = column(|t| {
            (DAMAGED..t.pages(GUEST_PAGES))
                .for_each(|page| t.word(GUEST_PAGES, page, 0, |at| at.wrapping_add(by)));
        });
        assert!(
            joined(&jumped) < REQUESTS / 2,
            "{by:#x}: {}",
            jumped["matched"]
        );
        // As far ahead as nothing may have happened in between, only the requests tell.
        assert!(
            by == 1 << 33 || lacks(&jumped, "a monotonic trace clock"),
            "{by:#x}: {}",
            jumped["missing"]
        );
    }
    report(|t| {
        let mut facts: Value = serde_json::from_slice(&t.read("trace.json")).unwrap();
        for end in ["low", "high"] {
            let ticks = facts["pings"][0][end].as_i64().unwrap();
            facts["pings"][0][end] = Value::from(ticks + 1_000_000_000);
        }
        t.put("trace.json", facts.to_string());
    })
    .exits(2)
    .says("clock jumped by");
}

#[test]
fn what_cannot_be_read_is_named() {
    let says = |damage: &dyn Fn(&Trial), texts: &[&str]| {
        let outcome = report(damage).exits(2);
        texts
            .iter()
            .fold(outcome, |outcome, text| outcome.says(text));
    };
    says(
        &|t| t.put("ops.series", &t.read("ops.series")[..100]),
        &["ops.series", "truncated"],
    );
    says(
        &|t| t.put("ops.series", "no series"),
        &["ops.series", "wrong magic number"],
    );
    says(
        &|t| t.remove("ops.series"),
        &["ops.series", "failed to read"],
    );
    says(
        &|t| t.put("trace.json", "{"),
        &["trace.json", "record the trial again"],
    );
    says(
        &|t| t.replace("trace.json", "\"tsc_mhz\":", "\"tsc_mhz\":-"),
        &["trace.json", "invalid TSC frequency"],
    );
    says(
        &|t| t.replace("trace.json", "\"schema\":1", "\"schema\":99"),
        &["schema 99", "newer vmtax"],
    );
    says(
        &|t| t.put("guest-trace/header_page", "nonsense"),
        &["header_page", "record it again"],
    );
    says(
        &|t| t.put(COMPLETE, "nonsense"),
        &["block_rq_complete", "record it again"],
    );
    says(
        &|t| t.put("guest-trace/clock", "local\n"),
        &["the trace clock 'local'", "x86-tsc"],
    );
    says(&|t| t.remove(GUEST_PAGES), &["guest-trace", "cpuN.raw"]);
    says(&|t| t.put("trial.json", "{"), &["trial 0000", "trial.json"]);
}

/// One of these limits lets the export open all files but the source of random numbers.
#[test]
fn too_few_open_files_are_an_error_of_an_export() {
    let place = Place::new();
    copy(&recording(), &place.path("copy"));
    let mut statuses = Vec::new();
    // Whoever started the tests may have left it some open files.
    for limit in 3..32 {
        let export = format!(
            "ulimit -n {limit}; exec {} export copy --parquet table",
            binary()
        );
        let outcome = place.program("sh").arg("-c").arg(export).outcome();
        statuses.push(outcome.status);
        assert!(
            outcome.status == Some(0) || outcome.stderr.contains("ulimit -n"),
            "{outcome}"
        );
        if outcome.status == Some(0) {
            break;
        }
    }
    assert!(
        statuses.contains(&Some(0)) && statuses.contains(&Some(2)),
        "{statuses:?}"
    );
}

#[test]
fn a_trace_that_is_gone_takes_its_layers_along() {
    let column = column(|t| fs::remove_dir_all(t.0.join("guest-trace")).unwrap());
    let rows = column["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|r| r["layer"] != "guest-kernel"),
        "{rows:?}"
    );
    let known: f64 = rows
        .iter()
        .map(|r| r["time"]["mean_ns"].as_f64().unwrap())
        .sum();
    let all = column["traced"]["mean_ns"].as_f64().unwrap();
    let unexplained = column["unexplained_ns"].as_f64().unwrap();
    assert!(
        (known + unexplained - all).abs() < 0.002 * all && unexplained > 0.05 * all,
        "{unexplained} of {all}"
    );
}

#[test]
fn no_damage_makes_it_panic() {
    // Knuth's generator: the same damage each time.
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let trial = recording().join("trials/0000");
    let names = files_below(&trial);
    for _ in 0..100 {
        let name = names[random(names.len())]
            .strip_prefix(&trial)
            .unwrap()
            .to_str()
            .unwrap();
        let outcome = report(|t| {
            let mut bytes = t.read(name);
            for _ in 0..[1, 5, 50][random(3)].min(bytes.len()) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if random(5) == 0 {
                bytes.truncate(random(bytes.len() + 1));
            }
            t.put(name, bytes);
        });
        assert!(matches!(outcome.status, Some(0 | 2)), "{name}: {outcome}");
    }
}
