//! Tools that print JSON: fio (`--output-format=json`) and hyperfine (`--export-json /dev/stdout`). Text may stand before,
//! between and behind.

use super::text::Figures;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A text of nothing but beginnings must not take long.
const MAX_ATTEMPTS: usize = 256;
const MIB: f64 = 1_048_576.0;

/// Fields of either tool's output that are read; other fields are skipped.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "fio version")]
    fio: Option<String>,
    #[serde(default)]
    jobs: Vec<Job>,
    #[serde(default)]
    results: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    read: Option<Direction>,
    write: Option<Direction>,
    trim: Option<Direction>,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    /// KiB per second.
    bw: f64,
    #[serde(default)]
    lat_ns: Latency,
    #[serde(default)]
    clat_ns: Latency,
}

#[derive(Default, Deserialize)]
struct Latency {
    #[serde(default)]
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
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

pub(crate) fn read(output: &str, figures: &mut Figures) {
    for document in documents::<Document>(output) {
        document.add_to(figures);
    }
}

/// The JSON documents of this form in an output; text between them is skipped.
pub(crate) fn documents<T: DeserializeOwned>(output: &str) -> Vec<T> {
    let (mut rest, mut all) = (output, Vec::new());
    for _ in 0..MAX_ATTEMPTS {
        let Some(begin) = beginning(rest) else { break };
        let mut documents = serde_json::Deserializer::from_str(&rest[begin..]).into_iter::<T>();
        let document = documents.next();
        let end = documents.byte_offset();
        match document {
            Some(Ok(document)) => {
                all.push(document);
                rest = &rest[begin + end..];
            }
            _ => rest = &rest[begin + 1..],
        }
    }
    all
}

/// Where a line begins with an object.
fn beginning(text: &str) -> Option<usize> {
    if text.starts_with('{') {
        Some(0)
    } else {
        text.find("\n{").map(|at| at + 1)
    }
}

impl Document {
    fn add_to(self, figures: &mut Figures) {
        for job in self.jobs.iter().filter(|_| self.fio.is_some()) {
            let of = format!("fio {}", job.jobname);
            for (name, direction) in [
                ("read", &job.read),
                ("write", &job.write),
                ("trim", &job.trim),
            ] {
                // fio prints all three, those that were not made with zeros.
                if let Some(direction) = direction.as_ref().filter(|d| d.iops > 0.0) {
                    direction.add_to(&of, name, figures);
                }
            }
        }
        for run in &self.results {
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
    }
}

impl Direction {
    fn add_to(&self, of: &str, name: &str, figures: &mut Figures) {
        figures.rate(of, &format!("{name}s"), self.iops);
        figures.bandwidth(of, &format!("{name} rate"), self.bw * 1024.0 / MIB);
        if self.lat_ns.mean > 0.0 {
            figures.time(of, &format!("{name} latency, mean"), self.lat_ns.mean / 1e9);
        }
        for (percentile, label) in [("50.000000", "p50"), ("99.000000", "p99")] {
            let ns = self.clat_ns.percentile.get(percentile);
            if let Some(ns) = ns.filter(|ns| **ns > 0.0) {
                figures.time(of, &format!("{name} latency, {label}"), ns / 1e9);
            }
        }
    }
}
