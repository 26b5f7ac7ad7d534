//! Requests followed through the layers, and exits by kind, on real guests.

use crate::common::{Place, files_below, is_root, json, kernel, not_joined, number};
use serde_json::Value;

fn column<'a>(report: &'a Value, machine: &str) -> &'a Value {
    let columns = report["findings"]["columns"].as_array().unwrap();
    columns
        .iter()
        .find(|c| c["machine"] == machine)
        .unwrap_or_else(|| panic!("no column {machine}"))
}

/// Each nanosecond is in one row or unexplained, and each request is followed or counted.
fn closes(column: &Value, operations: u64) {
    let rows = column["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let (traced, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    // The workload's own mean is of a histogram of three digits.
    assert!(
        (sum + unexplained - traced).abs() < 0.002 * traced,
        "{sum} + {unexplained} of {traced}"
    );
    let matched = &column["matched"];
    assert_eq!(matched["operations"], operations);
    assert_eq!(
        matched["joined"].as_u64().unwrap() + not_joined(matched),
        operations,
        "{matched}"
    );
    assert!(
        number(&matched["joined"]) >= 0.99 * operations as f64,
        "{matched}"
    );
    assert_eq!(column["clock"]["violations"], 0);
}

/// The cost of the events was calibrated on these sides and comes off the rows, whose sum is the corrected total.
pub fn is_corrected(column: &Value, sides: &[&str]) {
    let corrected = &column["corrected"];
    let costs = corrected["costs"]
        .as_array()
        .unwrap_or_else(|| panic!("not calibrated: {column:#}"));
    for side in ["guest", "host"] {
        let of_side: Vec<&Value> = costs.iter().filter(|cost| cost["side"] == side).collect();
        assert_eq!(
            !of_side.is_empty(),
            sides.contains(&side),
            "{side}: {costs:?}"
        );
        let measured = |kind: &str| {
            of_side
                .iter()
                .any(|cost| cost["kind"] == kind && number(&cost["repetitions"]) > 2.0)
        };
        assert!(
            of_side.is_empty() || ["call", "schedule", "tracepoint"].into_iter().all(measured),
            "{side}: {of_side:?}"
        );
    }
    let rows = column["rows"].as_array().unwrap();
    for row in rows {
        let (mean, less) = (
            number(&row["time"]["mean_ns"]),
            number(&row["corrected_ns"]),
        );
        assert!((0.0..=mean + 0.01).contains(&(less + 0.005)), "{row}");
    }
    let sum: f64 = rows.iter().map(|row| number(&row["corrected_ns"])).sum();
    let (total, unexplained) = (
        number(&corrected["total"]["mean_ns"]),
        number(&corrected["unexplained_ns"]),
    );
    assert!(
        (sum + unexplained - total).abs() < 0.001 * total,
        "{sum} + {unexplained} of {total}"
    );
    assert!(total <= number(&column["traced"]["mean_ns"]));
    // A request passes a dozen checkpoints on the host alone.
    assert!(
        number(&corrected["events"]) > 10.0,
        "{}",
        corrected["events"]
    );
}

#[test]
fn requests_are_followed_beside_their_control_the_bare_host_and_the_floor() {
    kernel();
    let place = Place::new();
    let run = place
        .vmtax("layers count=200 --rounds 1 --machine tcg,micro-tcg --json --dir")
        .arg(place.runs());
    let report = json(&run.start(180).outcome().exits(0).stdout);
    for machine in ["tcg", "micro-tcg"] {
        let column = column(&report, machine);
        assert!(
            number(&column["control"]["p50_ns"]) > 0.0,
            "{machine} has no control"
        );
        if is_root() {
            closes(column, 400);
            is_corrected(
                column,
                if machine == "tcg" {
                    &["guest", "host"]
                } else {
                    &["host"]
                },
            );
        }
    }
    assert!(number(&report["findings"]["host"]["p50_ns"]) > 0.0);
    if is_root() {
        let layers: Vec<&Value> = column(&report, "tcg")["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| &r["layer"])
            .collect();
        for layer in ["guest-kernel", "notify", "qemu", "device", "interrupt"] {
            assert!(
                layers.iter().any(|l| *l == layer),
                "no {layer} among {layers:?}"
            );
        }
    }
    let text = place
        .vmtax("report")
        .arg(place.recording())
        .succeeds()
        .stdout;
    assert!(
        text.contains("unexplained") && text.contains("Layers side by side"),
        "{text}"
    );
    assert!(!is_root() || text.contains("total, corrected"), "{text}");
    let (perfetto, parquet) = (place.path("trace.pftrace"), place.path("requests.parquet"));
    place
        .vmtax("export")
        .arg(place.recording())
        .arg("--perfetto")
        .arg(&perfetto)
        .arg("--parquet")
        .arg(&parquet)
        .succeeds();
    assert!(
        std::fs::read(&parquet).unwrap().starts_with(b"PAR1")
            && perfetto.metadata().unwrap().len() > 1000
    );
    // The dataset's table is the same file, in its place; here nothing is compared, as no figure is native.
    let export = |says: &str| {
        let export = place
            .vmtax("export --dataset")
            .arg(place.path("dataset"))
            .arg("--requests")
            .arg(place.recording());
        export.succeeds().says(says);
    };
    export("4 files written, 0 unchanged");
    let files = files_below(&place.path("dataset"));
    let requests = files
        .iter()
        .find(|file| file.starts_with(place.path("dataset/requests")))
        .unwrap();
    assert_eq!(
        std::fs::read(requests).unwrap(),
        std::fs::read(&parquet).unwrap()
    );
    export("0 files written, 4 unchanged");
}

#[test]
fn each_kind_of_exit_has_its_cost() {
    let place = Place::new();
    let run = place
        .vmtax("exits --machine micro-tcg --count 200 --rounds 1 --json --dir")
        .arg(place.runs());
    let report = json(&run.succeeds().stdout);
    let machine = &report["machines"][0];
    let kinds = machine["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
    for kind in kinds.iter().chain([&machine["stamp"]]) {
        let [min, p50, p99, max] =
            ["min_ns", "p50_ns", "p99_ns", "max_ns"].map(|f| number(&kind[f]));
        assert!(
            min <= p50 && p50 <= p99 && p99 <= max && max > 0.0,
            "{kind}"
        );
    }
}

#[test]
fn what_cannot_be_followed_is_said() {
    let place = Place::new();
    let says = |words: &str, what: &str| {
        let said = place
            .vmtax(words)
            .start(60)
            .outcome()
            .exits(2)
            .stderr
            .clone();
        assert!(said.contains(what), "{words}: {said}");
    };
    says("layers --vary aio", "KEY=VALUE,VALUE");
    says("layers nonsense", "unknown workload 'nonsense'");
    says(
        "layers depth=8 --machine micro-tcg --dry-run-not",
        "--dry-run",
    );
    says("run exits", "micro-guest");
    says("export /nowhere", "--perfetto");
}
