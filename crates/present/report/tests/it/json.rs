//! The JSON report: everything, in the form that docs/json.md describes.

use crate::common::{findings, recording};
use serde_json::Value;
use vmtax_model::{Findings, Machine, TrialRecord};
use vmtax_report::json;

#[test]
fn holds_everything_and_reads_back() {
    let r = recording(Machine::ALL, 2);
    let f = findings(&r);
    let v: Value = serde_json::from_str(&json(&r, &f).unwrap()).unwrap();
    assert_eq!(v["schema"], vmtax_model::REPORT_SCHEMA);
    assert_eq!(v["manifest"]["command"][0], "vmtax");
    assert_eq!(v["plan"]["rounds"], 2);
    assert_eq!(v["host"]["kernel"], "6.18.0");
    let back: Findings = serde_json::from_value(v["findings"].clone()).unwrap();
    assert_eq!(back.rows.len(), f.rows.len());
    let trials = v["trials"].as_array().unwrap();
    assert_eq!(trials.len(), r.trials.len());
    let first: TrialRecord = serde_json::from_value(trials[0].clone()).unwrap();
    assert_eq!(
        first.result().unwrap().operations,
        r.trials[0].result().unwrap().operations
    );
}

#[test]
fn each_operation_has_its_summary() {
    let r = recording(&[Machine::NATIVE], 1);
    let v: Value = serde_json::from_str(&json(&r, &findings(&r)).unwrap()).unwrap();
    let operation = &v["trials"][0]["result"]["operations"][0];
    let summary = r.trials[0].result().unwrap().operations[0]
        .latency
        .summary()
        .unwrap();
    assert_eq!(operation["summary"]["p99_ns"], summary.p99_ns);
    assert_eq!(operation["summary"]["count"], summary.count);
}
