//! Outputs of the field's own programs that people paste: fio's, and `perf kvm stat report`'s.

use serde_json::Value;
use std::collections::BTreeMap;
use vmtax_model::{ExitReportRow, FioJob};
use vmtax_workload::{FioJobResult, FioOutput, fio_output};

/// More jobs or rows are not read.
const MAX_ROWS: usize = 1000;
/// Options of fio's jobs that say what it asked of the disk.
const FIO_OPTIONS: [&str; 9] = [
    "rw",
    "bs",
    "iodepth",
    "ioengine",
    "direct",
    "fsync",
    "fdatasync",
    "rate_iops",
    "numjobs",
];

/// Reads the jobs in an output of fio, JSON or text; empty for any other text.
pub fn fio_jobs(text: &str) -> Vec<FioJob> {
    let mut jobs = match fio_output(text) {
        Some(output) => output.jobs.iter().map(|job| job_of(job, &output)).collect(),
        None => jobs_of_text(text),
    };
    jobs.retain(|job| job.iops > 0.0);
    jobs.truncate(MAX_ROWS);
    jobs
}

/// A job with the options that say what it asked of the disk.
fn job_of(job: &FioJobResult, output: &FioOutput) -> FioJob {
    let all = output.global_options.iter().chain(&job.options);
    let known = all.filter(|(name, _)| FIO_OPTIONS.contains(&name.as_str()));
    let options: BTreeMap<String, String> = known
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        })
        .collect();
    let parts = [&job.read, &job.write].map(|part| {
        let number = |number: f64| {
            if number.is_finite() {
                number.max(0.0)
            } else {
                0.0
            }
        };
        (number(part.iops), number(part.clat_ns.mean))
    });
    let count = options.get("numjobs").and_then(|count| count.parse().ok());
    let is_grouped = |options: &BTreeMap<String, Value>| options.contains_key("group_reporting");
    let is_sum = is_grouped(&output.global_options) || is_grouped(&job.options);
    let job = FioJob {
        name: job.jobname.clone(),
        count: if is_sum { count.unwrap_or(1) } else { 1 },
        options,
        ..FioJob::default()
    };
    with_parts(job, &parts)
}

/// A job with requests a second and mean times, ns, of its reads and writes.
fn with_parts(job: FioJob, parts: &[(f64, f64)]) -> FioJob {
    let iops: f64 = parts.iter().map(|(iops, _)| iops).sum();
    let time: f64 = parts.iter().map(|(iops, ns)| iops * ns).sum();
    FioJob {
        iops,
        completion_ns: if iops > 0.0 { time / iops } else { 0.0 },
        ..job
    }
}

/// fio's usual text: a line of options for each job, later its results.
fn jobs_of_text(text: &str) -> Vec<FioJob> {
    let mut options: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut jobs: Vec<(FioJob, Vec<(f64, f64)>)> = Vec::new();
    for line in text.lines().map(str::trim).take(100 * MAX_ROWS) {
        if let Some((name, rest)) = line.split_once(": (g=") {
            let (_, given) = rest.split_once("): ").unwrap_or_default();
            options.insert(name, header_options(given));
        } else if let Some((name, rest)) = line.split_once(": (groupid=") {
            let count = rest
                .split_once("jobs=")
                .and_then(|(_, rest)| rest.split(')').next()?.parse().ok());
            let job = FioJob {
                name: name.to_owned(),
                options: options.get(name).cloned().unwrap_or_default(),
                count: count.unwrap_or(1),
                ..FioJob::default()
            };
            jobs.push((job, Vec::new()));
        } else if let Some((_, parts)) = jobs.last_mut() {
            let is_of = ["read", "write"].iter().any(|way| {
                line.strip_prefix(way)
                    .is_some_and(|rest| rest.trim_start().starts_with(':'))
            });
            let iops = line.to_ascii_lowercase();
            let iops = iops
                .split_once("iops=")
                .and_then(|(_, rest)| scaled(rest))
                .filter(|_| is_of);
            if let Some(iops) = iops {
                parts.push((iops, 0.0));
            } else if let (Some(ns), Some((_, mean))) = (completion(line), parts.last_mut()) {
                *mean = ns;
            }
        }
    }
    jobs.into_iter()
        .map(|(job, parts)| with_parts(job, &parts))
        .collect()
}

/// `rw=randread, bs=(R) 4096B-4096B, …, ioengine=libaio, iodepth=1`.
fn header_options(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(", ").filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| FIO_OPTIONS.contains(key))
        .map(|(key, value)| {
            // The size of a read is the first.
            let value = value.trim_start_matches("(R) ");
            (
                key.to_owned(),
                value.split('-').next().unwrap_or(value).to_owned(),
            )
        })
        .collect()
}

/// `clat (usec): min=60, max=5000, avg=95.2, …`, ns.
fn completion(line: &str) -> Option<f64> {
    let rest = line.strip_prefix("clat")?.trim_start().strip_prefix('(')?;
    let (unit, rest) = rest.split_once(')')?;
    let scale = match unit {
        "nsec" => 1.0,
        "usec" => 1e3,
        "msec" => 1e6,
        _ => return None,
    };
    let (_, mean) = rest.split_once("avg=")?;
    Some(scaled(mean)? * scale)
}

/// A number with fio's `k` or `M` behind it.
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let scale = match text[end..].chars().next() {
        Some('k' | 'K') => 1e3,
        Some('m' | 'M') => 1e6,
        _ => 1.0,
    };
    Some(number * scale)
}

/// Reads the table of `perf kvm stat report`; any other text has no rows.
pub fn exit_report(text: &str) -> Vec<ExitReportRow> {
    let is_head = |line: &&str| line.contains("VM-EXIT") && line.contains("Samples");
    let lines = text.lines().skip_while(|line| !is_head(line)).skip(1);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let share = words.iter().position(|word| word.ends_with('%'))?;
        let times = words
            .iter()
            .skip(share)
            .filter_map(|word| word.strip_suffix("us"));
        let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
        let (reason, count) = words[..share].split_at_checked(share.checked_sub(1)?)?;
        let mean_us = *times.last().filter(|mean: &&f64| mean.is_finite())?;
        Some(ExitReportRow {
            reason: reason.join(" "),
            count: count.first()?.parse().ok()?,
            mean_ns: mean_us * 1e3,
        })
    };
    lines
        .filter_map(row)
        .filter(|row| !row.reason.is_empty())
        .take(MAX_ROWS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "reads: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=1
fio-3.33
Starting 1 process

reads: (groupid=0, jobs=4): err= 0: pid=7: Sat Nov 28 10:00:00 2026
  read: IOPS=12.5k, BW=48.8MiB/s (51.2MB/s)(1465MiB/30001msec)
    slat (nsec): min=1, max=2, avg=3.00, stdev= 1
    clat (usec): min=60, max=5000, avg=79.25, stdev= 5
     lat (usec): min=61, max=5001, avg=80.25, stdev= 5
    clat percentiles (usec):
";

    #[test]
    fn fios_text_is_read() {
        let jobs = fio_jobs(TEXT);
        assert_eq!(
            (jobs.len(), jobs[0].name.as_str(), jobs[0].count),
            (1, "reads", 4)
        );
        assert_eq!((jobs[0].iops, jobs[0].completion_ns), (12500.0, 79250.0));
        let options: Vec<_> = jobs[0]
            .options
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            options,
            ["bs=4096B", "iodepth=1", "ioengine=libaio", "rw=randread"]
        );
        let old = "a: (groupid=0, jobs=1): err= 0\n  read : io=1024KB, bw=1KB/s, iops=250 , runt=1msec\n    clat (msec): min=1, max=2, avg= 4.00\n";
        let jobs = fio_jobs(old);
        assert_eq!((jobs[0].iops, jobs[0].completion_ns), (250.0, 4e6));
    }

    #[test]
    fn fios_json_is_read() {
        let text = r#"note: x
{ "fio version": "fio-3.33", "global options": { "bs": "4k", "direct": "1" },
  "jobs": [ { "jobname": "mix", "job options": { "rw": "randrw", "iodepth": "4" },
    "read": { "iops": 300.0, "clat_ns": { "mean": 1000.0 } }, "write": { "iops": 100.0, "clat_ns": { "mean": 5000.0 } } } ] }"#;
        let jobs = fio_jobs(text);
        assert_eq!((jobs[0].iops, jobs[0].completion_ns), (400.0, 2000.0));
        assert_eq!(
            (
                jobs[0].options["bs"].as_str(),
                jobs[0].options["iodepth"].as_str()
            ),
            ("4k", "4")
        );
        assert_eq!(fio_jobs("{}"), []);
    }

    #[test]
    fn perfs_table_is_read() {
        let text = "\nAnalyze events for all VMs, all VCPUs:\n
             VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time         Avg time \n
                 HLT      47152    46.49%    99.98%      0.60us 900005.50us   2130.31us ( +-   1.12% )
           MSR_WRITE      31280    30.84%     0.01%      0.41us     12.30us      1.22us ( +-   0.30% )
\nTotal Samples:101423, Total events handled time:100449223.00us.\n";
        let report = exit_report(text);
        let rows: Vec<_> = report
            .iter()
            .map(|row| (row.reason.as_str(), row.count, row.mean_ns))
            .collect();
        assert_eq!(
            rows,
            [("HLT", 47152, 2_130_310.0), ("MSR_WRITE", 31280, 1220.0)]
        );
        assert!(report[0].is_idle() && !report[1].is_idle());
        assert_eq!(exit_report("VM-EXIT Samples\nnothing"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[ -~\n]{0,300}", row in "[A-Z_ ]{0,12} [0-9]{0,20} [0-9.]{0,9}% [0-9.]{0,9}us") {
            let _ = fio_jobs(&text);
            let _ = fio_jobs(&format!("{TEXT}{text}"));
            let _ = exit_report(&format!("VM-EXIT Samples\n{row}\n{text}"));
        }
    }
}
