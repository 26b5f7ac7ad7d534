//! Tools that print JSON: fio (`--output-format=json`) and hyperfine (`--export-json /dev/stdout`). Text may stand before,
//! between and behind.

use super::text::Figures;
use serde::Deserialize;
use vmtax_workload::{FioDirection, FioJobResult, FioOutput, json_documents};

const MIB: f64 = 1_048_576.0;

/// Fields of hyperfine's output that are read; other fields are skipped.
#[derive(Deserialize)]
struct Hyperfine {
    results: Vec<Benchmark>,
}

/// Times in seconds.
#[derive(Deserialize)]
struct Benchmark {
    command: String,
    mean: f64,
    median: Option<f64>,
    min: Option<f64>,
    user: Option<f64>,
    system: Option<f64>,
}

/// A document of either tool.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Fio(FioOutput),
    Hyperfine(Hyperfine),
}

pub(crate) fn read(output: &str, figures: &mut Figures) {
    for document in json_documents::<Document>(output) {
        match document {
            Document::Fio(fio) => fio.jobs.iter().for_each(|job| add_job(job, figures)),
            Document::Hyperfine(all) => all.results.iter().for_each(|run| add_run(run, figures)),
        }
    }
}

fn add_job(job: &FioJobResult, figures: &mut Figures) {
    let of = format!("fio {}", job.jobname);
    for (name, direction) in job.directions() {
        // fio prints all of them, those that were not made with zeros.
        if direction.iops > 0.0 {
            add_direction(direction, &of, name, figures);
        }
    }
}

fn add_run(run: &Benchmark, figures: &mut Figures) {
    let of = format!("hyperfine {}", run.command);
    figures.time(&of, "mean", run.mean);
    for (name, time) in [
        ("median", run.median),
        ("minimum", run.min),
        ("user", run.user),
        ("system", run.system),
    ] {
        time.into_iter()
            .for_each(|time| figures.time(&of, name, time));
    }
}

fn add_direction(direction: &FioDirection, of: &str, name: &str, figures: &mut Figures) {
    figures.rate(of, &format!("{name}s"), direction.iops);
    figures.bandwidth(of, &format!("{name} rate"), direction.bw * 1024.0 / MIB);
    if direction.lat_ns.mean > 0.0 {
        figures.time(
            of,
            &format!("{name} latency, mean"),
            direction.lat_ns.mean / 1e9,
        );
    }
    for (percentile, label) in [("50.000000", "p50"), ("99.000000", "p99")] {
        let ns = direction.clat_ns.percentile.get(percentile);
        if let Some(ns) = ns.filter(|ns| **ns > 0.0) {
            figures.time(of, &format!("{name} latency, {label}"), ns / 1e9);
        }
    }
}
