//! fio's JSON (`--output-format=json` and `json+`). Text may stand before and behind it.

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::collections::BTreeMap;
use vmtax_model::Latency;

/// A text of nothing but beginnings must not take long.
const MAX_ATTEMPTS: usize = 256;

/// The JSON documents of this form in an output; text between them is skipped.
pub fn json_documents<T: DeserializeOwned>(output: &str) -> Vec<T> {
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

/// Output of fio: its JSON, and the lines outside of that.
pub(crate) struct FioPrinted<'a> {
    /// The first document.
    pub json: &'a str,
    /// Lines before and behind it.
    pub messages: Vec<&'a str>,
}

impl FioPrinted<'_> {
    /// Finds the JSON in an output; `None` without any.
    pub fn of(output: &str) -> Option<FioPrinted<'_>> {
        let begin = beginning(output)?;
        let mut documents =
            serde_json::Deserializer::from_str(&output[begin..]).into_iter::<IgnoredAny>();
        documents.next()?.ok()?;
        let end = begin + documents.byte_offset();
        let others = output[..begin].lines().chain(output[end..].lines());
        let messages = others.map(str::trim).filter(|line| !line.is_empty());
        Some(FioPrinted {
            json: &output[begin..end],
            messages: messages.collect(),
        })
    }
}

/// Where a line begins with an object.
fn beginning(text: &str) -> Option<usize> {
    if text.starts_with('{') {
        Some(0)
    } else {
        text.find("\n{").map(|at| at + 1)
    }
}

/// An output of fio.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FioOutput {
    /// Version of fio, which no other tool's output has: `fio-3.33`.
    #[serde(rename = "fio version")]
    pub version: String,
    /// Options of all jobs.
    #[serde(default, rename = "global options")]
    pub global_options: BTreeMap<String, Value>,
    /// Results of the jobs; with `group_reporting` of each group of processes.
    #[serde(default)]
    pub jobs: Vec<FioJobResult>,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct FioJobResult {
    /// Name of the job.
    pub jobname: String,
    /// Number of its group; `stonewall` begins a new one.
    pub groupid: u64,
    /// Number of the first error of its requests; 0 for none.
    pub error: i64,
    /// Options as fio read them.
    #[serde(rename = "job options")]
    pub options: BTreeMap<String, Value>,
    /// Reads.
    pub read: FioDirection,
    /// Writes.
    pub write: FioDirection,
    /// Trims (discards).
    pub trim: FioDirection,
    /// All of them, with `unified_rw_reporting`.
    pub mixed: FioDirection,
}

/// Requests of one direction.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct FioDirection {
    /// Number of requests; 0 in an output of an older fio.
    pub total_ios: u64,
    /// Bytes in all; 0 in an output of an older fio.
    pub io_bytes: f64,
    /// Requests a second.
    pub iops: f64,
    /// KiB a second.
    pub bw: f64,
    /// Bytes a second; 0 in an output of an older fio.
    pub bw_bytes: f64,
    /// Duration, ms.
    pub runtime: f64,
    /// Latency of requests, with submission.
    pub lat_ns: FioLatency,
    /// Completion latency: from the end of the submission to the completion.
    pub clat_ns: FioLatency,
}

/// Latencies, ns.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct FioLatency {
    /// Mean.
    pub mean: f64,
    /// Number of requests; 0 in an output of an older fio.
    #[serde(rename = "N")]
    pub count: u64,
    /// Percentiles by their name, `99.000000`.
    pub percentile: BTreeMap<String, f64>,
    /// Requests by latency bin, whose value is a key, with `json+`.
    pub bins: BTreeMap<String, u64>,
}

/// Reads the first output of fio in a text.
pub fn fio_output(text: &str) -> Option<FioOutput> {
    json_documents(text.trim_start()).into_iter().next()
}

impl FioJobResult {
    /// The directions with their names.
    pub fn directions(&self) -> [(&'static str, &FioDirection); 4] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("trim", &self.trim),
            ("mixed", &self.mixed),
        ]
    }

    /// The value of an option that is given and not switched off.
    fn option(&self, name: &str) -> Option<&str> {
        let value = self.options.get(name)?.as_str().unwrap_or_default();
        (value != "0").then_some(value)
    }

    /// Returns true if its reads, which verify what it wrote, come after its writes.
    fn reads_after_writes(&self) -> bool {
        let is_pure = matches!(self.option("rw"), Some("write" | "randwrite"));
        is_pure && self.read.requests() > 0.0 && self.write.requests() > 0.0
    }

    /// Duration, ms.
    fn duration(&self) -> f64 {
        let durations = self.directions().map(|(_, direction)| direction.runtime);
        match self.reads_after_writes() {
            true => durations.iter().sum(),
            false => durations.into_iter().fold(0.0, f64::max),
        }
    }

    /// Returns true if it begins when the job before it has ended. The processes of a section have its options, too.
    fn begins_after(&self, before: &FioJobResult) -> bool {
        let is_behind_wall = self.option("stonewall").is_some() && self.groupid != before.groupid;
        let waits = self.option("wait_for").is_some() && self.jobname != before.jobname;
        is_behind_wall || waits
    }
}

impl FioDirection {
    /// Number of requests.
    fn requests(&self) -> f64 {
        match self.total_ios {
            0 => self.iops * self.runtime / 1e3,
            count => count as f64,
        }
    }

    /// Number of bytes; reads that verify each write soon after it have no rate.
    fn bytes(&self) -> f64 {
        match self.io_bytes {
            none if none <= 0.0 => self.bytes_per_s() * self.runtime / 1e3,
            bytes => bytes,
        }
    }

    /// Bytes a second.
    fn bytes_per_s(&self) -> f64 {
        match self.bw_bytes {
            none if none <= 0.0 => self.bw * 1024.0,
            bytes => bytes,
        }
    }
}

/// Durations of jobs that ran one after the other, ms; `None` where all ran at a time.
fn total_duration(jobs: &[FioJobResult]) -> Option<f64> {
    let (mut phases, mut longest) = (Vec::new(), 0.0_f64);
    for (at, job) in jobs.iter().enumerate() {
        if at > 0 && job.begins_after(&jobs[at - 1]) {
            phases.push(std::mem::take(&mut longest));
        }
        longest = longest.max(job.duration());
    }
    let is_sequence = !phases.is_empty() || jobs.iter().any(FioJobResult::reads_after_writes);
    is_sequence.then(|| phases.into_iter().sum::<f64>() + longest)
}

impl FioLatency {
    /// The bins as numbers: latency, ns, and requests.
    fn counted(&self) -> impl Iterator<Item = (u64, u64)> {
        let bins = self.bins.iter();
        bins.filter_map(|(ns, count)| Some((ns.parse().ok()?, *count)))
    }
}

/// Figures of a run of fio: of all jobs together.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// Mean completion latency, ns; `None` where fio measured none.
    pub mean_ns: Option<f64>,
    /// Completion latencies of each direction that has any.
    pub latencies: Vec<(&'static str, Latency)>,
    /// Completion latencies by fio's bins, ns.
    bins: BTreeMap<u64, u64>,
    /// Duration, s: of the longest job, or of all that ran one after the other.
    pub seconds: f64,
    /// True if jobs, or the writes and the reads that verify them, ran one after the other: the rates are then all requests over all
    /// the time, and no sum of fio's.
    pub is_sequence: bool,
}

impl Summary {
    /// The figures of these jobs.
    pub fn of(jobs: &[FioJobResult]) -> Summary {
        let mut all = Summary::default();
        let (mut count, mut total) = (0.0, 0.0);
        for (name, direction) in jobs.iter().flat_map(FioJobResult::directions) {
            all.iops += direction.iops;
            all.bytes += direction.bytes_per_s();
            all.seconds = all.seconds.max(direction.runtime / 1e3);
            let latency = &direction.clat_ns;
            count += latency.count as f64;
            total += latency.count as f64 * latency.mean;
            for (ns, requests) in latency.counted() {
                *all.bins.entry(ns).or_default() += requests;
                all.latency(name).record_many(ns, requests);
            }
        }
        all.follow_sequence(jobs);
        // The figure itself where there is one, not what its product and quotient make of it.
        let mut measured = jobs.iter().flat_map(FioJobResult::directions);
        let mut measured_of = || {
            measured
                .find(|(_, d)| d.clat_ns.count > 0)
                .map(|(_, d)| d.clat_ns.mean)
        };
        let first = measured_of();
        all.mean_ns = match measured_of() {
            None => first,
            Some(_) => (count > 0.0).then(|| total / count),
        };
        all
    }

    /// Rates are over the time of all jobs where these did not run at one time.
    fn follow_sequence(&mut self, jobs: &[FioJobResult]) {
        let Some(duration) = total_duration(jobs).filter(|ms| *ms > 0.0) else {
            return;
        };
        let directions = || jobs.iter().flat_map(FioJobResult::directions);
        let requests: f64 = directions().map(|(_, one)| one.requests()).sum();
        let bytes = directions().map(|(_, one)| one.bytes());
        self.is_sequence = true;
        self.seconds = duration / 1e3;
        self.iops = requests / self.seconds;
        self.bytes = bytes.sum::<f64>() / self.seconds;
    }

    fn latency(&mut self, name: &'static str) -> &mut Latency {
        let at = match self.latencies.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                self.latencies.push((name, Latency::new()));
                self.latencies.len() - 1
            }
        };
        &mut self.latencies[at].1
    }

    /// The bin at which this part of the requests (0 to 1) is reached, ns, as fio computes its percentiles.
    pub fn percentile(&self, part: f64) -> Option<u64> {
        let count: u64 = self.bins.values().sum();
        let mut sum = 0;
        let mut bins = self.bins.iter();
        let found = bins.find(|(_, requests)| {
            sum += **requests;
            sum as f64 >= part * count as f64
        });
        found.map(|(ns, _)| *ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"note: a line of fio's own
{ "fio version": "fio-3.33",
  "jobs": [
    { "jobname": "a", "job options": { "rw": "randrw" }, "error": 0,
      "read": { "iops": 100.5, "bw": 402, "bw_bytes": 411648, "runtime": 1000,
        "clat_ns": { "mean": 1000.25, "N": 100, "bins": { "900": 50, "1100": 49, "5000": 1 } } },
      "write": { "iops": 50.0, "bw": 200, "bw_bytes": 204800, "runtime": 1001,
        "clat_ns": { "mean": 4000.0, "N": 50, "bins": { "4000": 50 } } },
      "trim": { "iops": 0, "bw": 0, "clat_ns": { "mean": 0.0, "N": 0 } } } ] }"#;

    #[test]
    fn figures_are_of_all_directions() {
        let output = fio_output(TWO).unwrap();
        let all = Summary::of(&output.jobs);
        assert_eq!(
            (all.iops, all.bytes, all.seconds),
            (150.5, 616_448.0, 1.001)
        );
        assert_eq!(all.mean_ns, Some((100.0 * 1000.25 + 50.0 * 4000.0) / 150.0));
        assert_eq!(
            (all.percentile(0.5), all.percentile(0.99)),
            (Some(1100), Some(4000))
        );
        let counts: Vec<_> = all
            .latencies
            .iter()
            .map(|(name, l)| (*name, l.count()))
            .collect();
        assert_eq!(counts, [("read", 100), ("write", 50)]);
    }

    /// A job of 1000 requests a second that runs for `ms`.
    fn job(name: &str, groupid: u64, ms: f64, options: &[(&str, &str)]) -> FioJobResult {
        let option = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::from(*value));
        FioJobResult {
            jobname: name.to_owned(),
            groupid,
            options: options.iter().map(option).collect(),
            write: FioDirection {
                total_ios: ms as u64,
                iops: 1000.0,
                bw_bytes: 4_096_000.0,
                runtime: ms,
                ..FioDirection::default()
            },
            ..FioJobResult::default()
        }
    }

    #[test]
    fn jobs_that_run_one_after_the_other_are_not_added() {
        let summary = |jobs: &[FioJobResult]| {
            let all = Summary::of(jobs);
            (all.iops, all.bytes, all.seconds, all.is_sequence)
        };
        let wall = [("stonewall", "")];
        let at_a_time = [
            job("a", 0, 1000.0, &[]),
            job("b", 1, 3000.0, &[("new_group", "")]),
        ];
        assert_eq!(summary(&at_a_time), (2000.0, 8_192_000.0, 3.0, false));
        let walled = [job("a", 0, 1000.0, &[]), job("b", 1, 3000.0, &wall)];
        assert_eq!(summary(&walled), (1000.0, 4_096_000.0, 4.0, true));
        // Two processes of a section behind the wall are in one group.
        let processes = [&walled[..], &[job("b", 1, 2000.0, &wall)]].concat();
        assert_eq!(summary(&processes), (1500.0, 6_144_000.0, 4.0, true));
        let waits = [
            job("a", 0, 1000.0, &[]),
            job("b", 0, 1000.0, &[("wait_for", "a")]),
        ];
        assert_eq!(summary(&waits), (1000.0, 4_096_000.0, 2.0, true));
        let mut verifies = job("a", 0, 1000.0, &[("rw", "randwrite"), ("verify", "crc32c")]);
        verifies.read = verifies.write.clone();
        assert_eq!(
            summary(&[verifies.clone()]),
            (1000.0, 4_096_000.0, 2.0, true)
        );
        verifies
            .options
            .insert("rw".to_owned(), Value::from("randrw"));
        assert_eq!(summary(&[verifies]), (2000.0, 8_192_000.0, 1.0, false));
    }

    #[test]
    fn reads_that_verify_each_write_soon_count_over_its_time() {
        let mut verifies = job(
            "a",
            0,
            1000.0,
            &[("rw", "randwrite"), ("verify_backlog", "8")],
        );
        verifies.write.io_bytes = 4_096_000.0;
        verifies.read = FioDirection {
            total_ios: 500,
            io_bytes: 2_048_000.0,
            ..FioDirection::default()
        };
        let all = Summary::of(&[verifies]);
        assert_eq!(
            (all.iops, all.bytes, all.seconds),
            (1500.0, 6_144_000.0, 1.0)
        );
    }

    #[test]
    fn messages_are_none_of_the_json() {
        let printed = FioPrinted::of(TWO).unwrap();
        assert_eq!(printed.messages, ["note: a line of fio's own"]);
        assert!(serde_json::from_str::<Value>(printed.json).is_ok());
        let behind = FioPrinted::of("{}\n\nfio: done\n").unwrap();
        assert_eq!((behind.json, behind.messages), ("{}", vec!["fio: done"]));
        assert!(FioPrinted::of("fio: none").is_none() && FioPrinted::of("{ \"a\"").is_none());
    }

    #[test]
    fn the_figures_of_one_direction_are_fios_to_the_digit() {
        let mut output = fio_output(TWO).unwrap();
        output.jobs[0].write = FioDirection::default();
        let all = Summary::of(&output.jobs);
        assert_eq!((all.iops, all.mean_ns), (100.5, Some(1000.25)));
        assert_eq!(fio_output("{\"jobs\": []}"), None);
    }
}
