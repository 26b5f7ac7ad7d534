//! A trial in the figures that sysbench 1.0 prints, so that the two can be laid side by side. sysbench counts an event
//! where it calls one: for files each read, write and fsync.

use crate::number::{self, nanoseconds};
use crate::text::{Joined, plain, when};
use crate::view;
use std::fmt::Write as _;
use vmtax_model::{Keeping, Latency, Metric, Outcome, TrialRecord, TrialResult, WorkloadName};
use vmtax_recording::Recording;

/// Every trial of the recording, or the one with this number, in sysbench's figures. Empty when there is none.
pub fn sysbench(recording: &Recording, number: Option<u32>) -> String {
    let is_chosen = |trial: &&TrialRecord| number.is_none_or(|number| number == trial.number);
    let chosen = recording.trials.iter().filter(is_chosen);
    chosen.map(trial).joined("\n")
}

/// One trial. Writing to a `String` cannot fail, so the results of `write!` are dropped.
pub fn trial(record: &TrialRecord) -> String {
    let mut out = format!(
        "trial {:04}: {} on {}, round {}, {}\n",
        record.number,
        record.workload.name,
        record.machine,
        record.round + 1,
        plain(&when(&record.started)),
    );
    match &record.outcome {
        Outcome::Failed { error } => {
            let _ = writeln!(out, "  failed: {}", plain(error));
        }
        Outcome::Interrupted => out.push_str("  interrupted\n"),
        Outcome::Done { result } => done(&mut out, result),
    }
    for warning in view::in_words(&record.warnings) {
        let _ = writeln!(out, "  note: {}", plain(&warning));
    }
    out
}

/// A trial that was made alone, outside any recording.
pub fn result(result: &TrialResult) -> String {
    let mut out = format!("{}\n", result.workload.name);
    for measure in &result.measures {
        let figure = number::value(measure.metric.unit(), measure.value);
        line(&mut out, measure.metric.label(), figure);
    }
    done(&mut out, result);
    out
}

fn done(out: &mut String, result: &TrialResult) {
    let options = result.workload.options.iter();
    let options = options
        .map(|(key, value)| format!("{key}={value}"))
        .joined(" ");
    if !options.is_empty() {
        let _ = writeln!(out, "  options: {}", plain(&options));
    }
    rates(out, result);
    line(out, "total time:", format!("{:.4} s", result.total_s));
    latency(out, &events(result));
    fairness(out, result);
    operations(out, result);
    for one in &result.unsupported {
        let reason = format!("unsupported: {}", plain(&one.reason));
        line(out, one.metric.label(), reason);
    }
    kept(out, result);
    for note in &result.notes {
        let _ = writeln!(out, "  note: {}", plain(note));
    }
}

/// Adds a line: a name and its value.
fn line(out: &mut String, name: &str, value: String) {
    let _ = writeln!(out, "  {name:<32}{value}");
}

/// Adds the events, bytes and operations per second.
fn rates(out: &mut String, result: &TrialResult) {
    let rates = [
        (Metric::MemoryOperations, "operations per second:"),
        (Metric::MemoryBandwidth, "transferred, MiB/s:"),
        (Metric::FileioPrepare, "prepared, MiB/s:"),
        (Metric::FileioReads, "reads/s:"),
        (Metric::FileioWrites, "writes/s:"),
        (Metric::FileioFsyncs, "fsyncs/s:"),
        (Metric::FileioReadBandwidth, "read, MiB/s:"),
        (Metric::FileioWriteBandwidth, "written, MiB/s:"),
    ];
    let events = result.value(Metric::CpuEvents);
    let events = events.or_else(|| result.value(Metric::ThreadsEvents));
    let events = events.map(|rate| ("events per second:", rate)).into_iter();
    let rates = rates
        .into_iter()
        .filter_map(|(metric, name)| Some((name, result.value(metric)?)));
    for (name, rate) in events.chain(rates) {
        line(out, name, format!("{rate:.2}"));
    }
}

/// Adds the number of events and their latency, where there are events.
fn latency(out: &mut String, events: &Latency) {
    if let Some(s) = events.summary() {
        line(out, "number of events:", s.count.to_string());
        let ms = |ns: f64| format!("{:.2}", ns / 1e6);
        line(out, "latency min, ms:", ms(s.min_ns as f64));
        line(out, "latency avg, ms:", ms(s.mean_ns));
        line(out, "latency max, ms:", ms(s.max_ns as f64));
        line(out, "latency 95th percentile, ms:", ms(s.p95_ns as f64));
        line(out, "latency sum, ms:", ms(s.sum_ns));
    }
}

/// Adds sysbench's fairness, how evenly the threads got through, where the workload has it.
fn fairness(out: &mut String, result: &TrialResult) {
    if let Some(f) = &result.fairness {
        let even = |mean: f64, stddev: f64| format!("{mean:.4}/{stddev:.2}");
        let (events, time) = (
            even(f.events_mean, f.events_stddev),
            even(f.time_mean_s, f.time_stddev_s),
        );
        line(out, "threads:", f.threads.to_string());
        line(out, "events (avg/stddev):", events);
        line(out, "execution time (avg/stddev), s:", time);
    }
}

/// Adds a line for each property of files that the share keeps or loses.
fn kept(out: &mut String, result: &TrialResult) {
    for kept in &result.kept {
        let keeping = match kept.keeping {
            Keeping::Kept => "kept",
            Keeping::Lost => "lost",
            Keeping::Refused => "refused",
        };
        let detail = plain(&kept.detail);
        line(out, &plain(&kept.what), format!("{keeping:<9}{detail}"));
    }
}

/// Returns the latency of sysbench events: all operations of the workload.
fn events(result: &TrialResult) -> Latency {
    let mut all = Latency::new();
    if is_sysbench(result) {
        for operation in &result.operations {
            all.add(&operation.latency);
        }
    }
    all
}

fn is_sysbench(result: &TrialResult) -> bool {
    use WorkloadName::{Cpu, Fileio, Memory, Mutex, Threads};
    matches!(
        result.workload.name,
        Cpu | Threads | Mutex | Memory | Fileio
    )
}

/// A line for each kind of operation, where there are several or sysbench has no such test.
fn operations(out: &mut String, result: &TrialResult) {
    if result.operations.is_empty() || is_sysbench(result) && result.operations.len() < 2 {
        return;
    }
    let _ = writeln!(
        out,
        "  {:<20}{:>10}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "operation", "count", "min", "avg", "95 %", "99 %", "max"
    );
    for operation in &result.operations {
        let name = plain(&operation.name);
        if let Some(s) = operation.latency.summary() {
            let [min, p95, p99, max] =
                [s.min_ns, s.p95_ns, s.p99_ns, s.max_ns].map(|ns| nanoseconds(ns as f64));
            let (count, avg) = (s.count, nanoseconds(s.mean_ns));
            let _ = writeln!(
                out,
                "  {name:<20}{count:>10}{min:>11}{avg:>11}{p95:>11}{p99:>11}{max:>11}"
            );
        }
    }
}
