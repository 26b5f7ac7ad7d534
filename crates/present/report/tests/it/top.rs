//! Every output of `vmtax top`, of samples as a recording has them.

use crate::snapshot;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_findings::{REPORT_SCHEMA, TopSample};
use vmtax_model::{
    Accelerator, BlockDevice, Counter, CounterSource, GuestCounters, GuestDiskCounters,
    LatencyHistogram, VmCounters, VmFacts,
};
use vmtax_report::{Style, counter_value, csv_head, csv_rows, openmetrics, top};

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
