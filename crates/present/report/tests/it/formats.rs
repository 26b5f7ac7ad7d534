//! The HTML report: well-formed, self-contained, complete, and proof against what guests send; the JSON report: everything, in
//! the form that docs/json.md describes; every output of `vmtax top`, of samples as a recording has them.

use crate::common::{findings, recording, trial_mut};
use crate::{common, snapshot};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_findings::{Estimate, Findings, REPORT_SCHEMA, TopSample};
use vmtax_model::{
    Accelerator, BlockDevice, Counter, CounterSource, GuestCounters, GuestDiskCounters,
    LatencyHistogram, Machine, Outcome, TrialRecord, VmCounters, VmFacts, WorkloadName,
};
use vmtax_report::{Style, counter_value, csv_head, csv_rows, json, openmetrics, overhead, top};

const ALL: &[Machine] = common::THREE;

#[test]
fn well_formed_and_self_contained_whatever_was_measured() {
    for (machines, rounds) in [
        (ALL, 6),
        (&ALL[..1], 1),
        (&ALL[1..], 1),
        (&[Machine::NATIVE, Machine::TCG], 3),
    ] {
        let r = recording(machines, rounds);
        let page = overhead::report(&r, &findings(&r)).html();
        assert!(assert_balanced(&page) > 200);
        for outside in [
            "http://", "https://", "<script", "<link", "<img", "@import", "url(", "src=",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(
            !page.contains("NaN") && !page.contains("inf%"),
            "a coordinate is no number"
        );
    }
}

#[test]
fn draws_every_metric_value_and_interval() {
    let r = recording(ALL, 6);
    let f = findings(&r);
    let page = overhead::report(&r, &f).html();
    for row in &f.rows {
        // Chart, table, rounds.
        assert!(
            page.matches(row.metric.label()).count() >= 3,
            "{}",
            row.metric
        );
    }
    let columns = || f.rows.iter().flat_map(|r| &r.machines);
    let dots: u32 = columns()
        .filter_map(|c| c.spread.as_ref())
        .map(|s| s.n)
        .sum();
    assert_eq!(page.matches("<circle").count(), dots as usize);
    let intervals = columns()
        .filter(|c| {
            c.overhead
                .as_ref()
                .is_some_and(|t| t.ratio.interval.is_some())
        })
        .count();
    assert_eq!(
        (page.matches("class=\"whisker\"").count(), intervals),
        (57, 57)
    );
    let r = recording(ALL, 3);
    let page = overhead::report(&r, &findings(&r)).html();
    assert!(
        !page.contains("class=\"whisker\""),
        "no interval below six rounds"
    );
}

#[test]
fn hostile_strings_stay_text() {
    let hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{1b}[2J\u{202e}&amp;"
        .to_owned()
        + &"long".repeat(500);
    let mut r = recording(ALL, 6);
    r.plan.name = hostile.clone();
    r.manifest.started = hostile.clone();
    r.manifest.vmtax = hostile.clone();
    r.manifest.command.push(hostile.clone());
    r.folder = hostile.clone().into();
    r.host.cpu.model = hostile.clone();
    r.host.checks[0].found = hostile.clone();
    r.damaged.push(hostile.clone());
    trial_mut(&mut r, 0, Machine::TCG, WorkloadName::Cpu).outcome = Outcome::Failed {
        error: hostile.clone(),
    };
    let mut f = findings(&r);
    f.method = hostile.clone();
    f.kernels[1].1.version = hostile.clone();
    f.advice.push(vmtax_findings::Advice {
        finding: hostile.clone(),
        ..Default::default()
    });
    f.rows[0].machines[1].unsupported = Some(hostile);
    f.rows[0].machines[1].spread = None;
    let page = overhead::report(&r, &f).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(
        !page
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}')
    );
}

#[test]
fn figures_that_are_no_numbers_draw_nothing_odd() {
    let r = recording(ALL, 6);
    let mut f = findings(&r);
    for (row, bad) in f
        .rows
        .iter_mut()
        .zip([f64::NAN, f64::INFINITY, 0.0, -1.0, 1e300, 1e-300])
    {
        for c in &mut row.machines {
            if let Some(t) = &mut c.overhead {
                t.ratio.median = bad;
                t.difference = Some(Estimate {
                    median: bad,
                    interval: None,
                });
            }
            if let Some(s) = &mut c.spread {
                s.median = bad;
                s.relative_spread = Some(bad);
            }
        }
    }
    let page = overhead::report(&r, &f).html();
    assert_balanced(&page);
    assert!(!page.contains("NaN%") && !page.contains("inf%") && !page.contains("\"NaN\""));
}

#[test]
fn holds_everything_and_reads_back() {
    let r = recording(Machine::ALL, 2);
    let f = findings(&r);
    let v: Value = serde_json::from_str(&json(&r, &f).unwrap()).unwrap();
    assert_eq!(v["schema"], vmtax_findings::REPORT_SCHEMA);
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

/// Every tag is closed in the right order; gives the number of elements.
pub fn assert_balanced(page: &str) -> usize {
    const VOID: &[&str] = &["meta", "br", "wbr", "!DOCTYPE"];
    let (mut open, mut elements, mut rest) = (Vec::new(), 0, page);
    while let Some((_, after)) = rest.split_once('<') {
        // Attribute values are quoted and escaped, so the next '>' outside quotes ends the tag.
        let mut quoted = false;
        let end = after.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, next) = after.split_at(end.unwrap_or_else(|| panic!("a tag without end")));
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "near {tag}");
        } else if !VOID.contains(&name) {
            elements += 1;
            open.push(name);
        }
        rest = next;
        if name == "style" {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
    elements
}

/// Two samples of each VM.
const RECORDED: &str = include_str!("../top-counters.json");

const STYLE: Style = Style {
    width: 240,
    color: false,
};

fn recorded() -> Vec<[VmCounters; 2]> {
    serde_json::from_str(RECORDED).unwrap()
}

fn facts(counters: &VmCounters) -> VmFacts {
    VmFacts {
        name: Some(format!("vm{}", counters.pid)),
        accelerator: Some(Accelerator::Kvm),
        vcpus: 2,
        memory: 1 << 30,
        ..VmFacts::unknown(counters.pid)
    }
}

fn interval(samples: &[[VmCounters; 2]]) -> TopSample {
    let rates = samples
        .iter()
        .filter_map(|[before, after]| vmtax_analysis::rates(&facts(before), before, after));
    TopSample {
        schema: REPORT_SCHEMA,
        time: "2026-11-24T23:00:01Z".to_owned(),
        vms: rates.collect(),
        ..TopSample::default()
    }
}

#[test]
fn outputs_are_the_pages_beside_the_tests() {
    let samples = recorded();
    let sample = interval(&samples);
    let facts: Vec<VmFacts> = samples.iter().map(|[before, _]| facts(before)).collect();
    let last = samples.iter().zip(&facts);
    let last: Vec<_> = last.map(|([_, after], facts)| (facts, after)).collect();
    let pages = BTreeMap::from([
        ("top.txt".to_owned(), top(&sample).terminal(STYLE, true)),
        ("top.csv".to_owned(), csv_head() + &csv_rows(&sample)),
        (
            "top.json".to_owned(),
            snapshot::rounded(&serde_json::to_string(&sample).unwrap()),
        ),
        ("top.prom".to_owned(), openmetrics(&last)),
    ]);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top");
    snapshot::compare(&directory, &pages);
}

/// A VM of which everything is known: each number is a million, then two.
fn complete() -> [VmCounters; 2] {
    let [mut before, mut after] = recorded().remove(0);
    for (sample, n) in [(&mut before, 1), (&mut after, 2)] {
        let is_read = |counter: &&Counter| counter.source != CounterSource::Figure;
        let numbers = Counter::all().filter(is_read);
        sample.counters = numbers.map(|one| (one.name, n * 1_000_000)).collect();
        let histogram = LatencyHistogram {
            boundaries: vec![1000],
            bins: vec![n * 10, 0],
        };
        sample.disks[0].histograms = Some(vec![histogram; 3]);
        sample.disks[0].own_device = Some(BlockDevice {
            name: "vda".to_owned(),
            requests: n * 1000,
            total_ms: n * 50,
            tick_ns: 0,
        });
        sample.guest = Some(GuestCounters {
            cpu_ms: n * 1000,
            steal_ms: n * 10,
            disks: vec![GuestDiskCounters {
                name: "vda".to_owned(),
                requests: n * 10,
                total_ms: n * 10,
            }],
        });
    }
    [before, after]
}

/// One that is planted in the table is in all of them.
#[test]
fn every_counter_is_in_every_output_and_in_the_docs() {
    const DOCS: [&str; 2] = [
        include_str!("../../../../../docs/top.md"),
        include_str!("../../../../../docs/json.md"),
    ];
    let samples = complete();
    let metrics = openmetrics(&[(&facts(&samples[1]), &samples[1])]);
    let sample = interval(&[samples]);
    let table = top(&sample).terminal(STYLE, true);
    let json = serde_json::to_value(&sample.vms[0]).unwrap();
    let (head, row) = (csv_head(), csv_rows(&sample));
    let fields: BTreeMap<&str, &str> = head.trim().split(',').zip(row.split(',')).collect();
    for counter in Counter::all() {
        let Counter { name, column, .. } = counter;
        if !counter.what.is_empty() {
            let csv = counter.csv();
            assert!(!fields[csv.as_str()].is_empty(), "{csv} in {row}");
            assert!(DOCS[0].contains(&format!("`{csv}`")), "{csv}");
            assert!(counter_value(counter, &sample.vms[0]).is_some(), "{name}");
        }
        if !counter.metric.is_empty() {
            let metric = format!("\n{}{{", counter.sample_name());
            assert!(metrics.contains(&metric), "{metric} in {metrics}");
        }
        if let Some((_, field)) = counter.json.split_once('.') {
            let pointer = format!("/{}", counter.json.replace('.', "/"));
            let value = json.pointer(&pointer).and_then(|value| value.as_f64());
            assert!(
                value.is_some_and(|value| value > 0.0),
                "{pointer} in {json}"
            );
            assert!(DOCS[1].contains(&format!("`{field}`")), "{field}");
        }
        assert!(
            column.is_empty() || table.contains(column),
            "{column} in {table}"
        );
    }
}
