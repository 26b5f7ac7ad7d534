//! Figures of tools that print lines: sysbench, Bonnie++, pgbench, `perf bench`, stress-ng; and of those that print JSON: fio
//! (`--output-format=json`) and hyperfine (`--export-json /dev/stdout`), with text before, between and behind.

use serde::Deserialize;
use vmtax_model::{Better, Printed, Unit};
use vmtax_workload::{FioDirection, FioJobResult, FioOutput, json_documents};

/// More than any tool prints in one run.
const MAX_FIGURES: usize = 200;

/// So that a table stays one, characters.
const MAX_NAME: usize = 40;

/// Figures of tools, each with a name of its own.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Printed>);

impl Figures {
    /// Adds one; of the same tool's second run it gets a number behind its name.
    pub fn add(&mut self, of: &str, name: &str, unit: Unit, better: Better, value: f64) {
        if self.0.len() == MAX_FIGURES || !value.is_finite() {
            return;
        }
        let (of, name) = (plain(of), plain(name));
        let of_name = |again: usize| {
            if again == 1 {
                name.clone()
            } else {
                format!("{name} ({again})")
            }
        };
        let again = (1..=MAX_FIGURES)
            .find(|n| !self.0.iter().any(|p| p.of == of && p.name == of_name(*n)))
            .unwrap_or(MAX_FIGURES);
        let name = of_name(again);
        self.0.push(Printed {
            of,
            name,
            unit,
            better: Some(better),
            value,
        });
    }

    pub fn rate(&mut self, of: &str, name: &str, per_second: f64) {
        self.add(of, name, Unit::PerSecond, Better::Higher, per_second);
    }

    pub fn time(&mut self, of: &str, name: &str, seconds: f64) {
        self.add(of, name, Unit::Seconds, Better::Lower, seconds);
    }

    pub fn bandwidth(&mut self, of: &str, name: &str, mib_per_second: f64) {
        self.add(
            of,
            name,
            Unit::MebibytesPerSecond,
            Better::Higher,
            mib_per_second,
        );
    }

    pub fn all(self) -> Vec<Printed> {
        self.0
    }
}

/// A name as one line of a table.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_NAME)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// The number with which a text begins.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

/// sysbench 1.0 and 1.1.
pub(crate) fn sysbench(output: &str, figures: &mut Figures) {
    let mut run: Option<SysbenchRun> = None;
    for line in output.lines() {
        if line.strip_prefix("sysbench 1.").and_then(number).is_some() {
            if let Some(before) = run.replace(SysbenchRun::default()) {
                before.add_to(figures);
            }
        } else if let Some(run) = &mut run {
            run.line(line.trim());
        }
    }
    if let Some(run) = run {
        run.add_to(figures);
    }
}

/// Output of one run so far.
#[derive(Default)]
struct SysbenchRun {
    test: Option<&'static str>,
    threads: f64,
    /// Events per second, where sysbench itself says how many.
    rate: Option<f64>,
    events: Option<f64>,
    seconds: Option<f64>,
    rates: Vec<(&'static str, f64)>,
    bandwidths: Vec<(&'static str, f64)>,
    /// Names of latencies with their values, milliseconds.
    latencies: Vec<(String, f64)>,
}

/// Beginnings of lines that only one test prints, with the test's name.
const SYSBENCH_TESTS: [(&str, &str); 4] = [
    ("CPU speed:", "cpu"),
    ("Running memory speed test", "memory"),
    ("File operations:", "fileio"),
    ("SQL statistics:", "SQL"),
];

impl SysbenchRun {
    fn line(&mut self, line: &str) {
        if let Some((_, test)) = SYSBENCH_TESTS
            .iter()
            .find(|(begin, _)| line.starts_with(begin))
        {
            self.test = Some(test);
        }
        if let Some(rate) = line
            .split_once(" MiB transferred (")
            .and_then(|(_, rest)| number(rest))
        {
            self.bandwidths.push(("transferred", rate));
        }
        let Some((key, rest)) = line.split_once(':') else {
            return;
        };
        let Some(value) = number(rest) else {
            return self.of_1_1(key, rest);
        };
        let in_brackets = |name| Some((name, number(rest.split_once('(')?.1)?));
        match key {
            "Number of threads" => self.threads = value,
            "events per second" | "events/s (eps)" => self.rate = Some(value),
            "total time" | "time elapsed" => self.seconds = Some(value),
            "total number of events" => self.events = Some(value),
            "Total operations" => self.rates.extend(in_brackets("operations")),
            "transactions" => self.rates.extend(in_brackets("transactions")),
            "queries" => self.rates.extend(in_brackets("queries")),
            "reads/s" => self.rates.push(("reads", value)),
            "writes/s" => self.rates.push(("writes", value)),
            "fsyncs/s" => self.rates.push(("fsyncs", value)),
            "read, MiB/s" => self.bandwidths.push(("read", value)),
            "written, MiB/s" => self.bandwidths.push(("written", value)),
            "avg" => self.latencies.push(("latency, mean".to_owned(), value)),
            "max" => self.latencies.push(("latency, maximum".to_owned(), value)),
            _ => {
                if let Some(percent) = key.strip_suffix("th percentile").and_then(number) {
                    self.latencies.push((format!("latency, p{percent}"), value));
                }
            }
        }
    }

    /// Files in sysbench 1.1: `read:  IOPS=3000.00 46.88 MiB/s (49.15 MB/s)`.
    fn of_1_1(&mut self, key: &str, rest: &str) {
        let names = match key {
            "read" => ("reads", Some("read")),
            "write" => ("writes", Some("written")),
            "fsync" => ("fsyncs", None),
            _ => return,
        };
        let Some(rest) = rest.trim().strip_prefix("IOPS=") else {
            return;
        };
        self.test = Some("fileio");
        self.rates.extend(number(rest).map(|rate| (names.0, rate)));
        let bandwidth = rest.split_whitespace().nth(1).and_then(number).zip(names.1);
        self.bandwidths
            .extend(bandwidth.map(|(rate, name)| (name, rate)));
    }

    fn add_to(self, figures: &mut Figures) {
        let of = self
            .test
            .map_or("sysbench".to_owned(), |test| format!("sysbench {test}"));
        if let Some((events, seconds)) = self.events.zip(self.seconds) {
            if events <= self.threads {
                // As many events as threads is a fixed work each, of which the time is the figure: mutex.
                figures.time(&of, "total time", seconds);
            } else if matches!(self.test, None | Some("cpu")) && seconds > 0.0 {
                figures.rate(&of, "events", self.rate.unwrap_or(events / seconds));
            }
        }
        for (name, rate) in self.rates {
            figures.rate(&of, name, rate);
        }
        for (name, rate) in self.bandwidths {
            figures.bandwidth(&of, name, rate);
        }
        for (name, ms) in self.latencies {
            figures.time(&of, &name, ms / 1e3);
        }
    }
}

/// Operations by the place of their field, from the first that is a rate; the names are those of our own workload.
const BLOCKS: [(usize, &str); 5] = [
    (0, "character write"),
    (2, "block write"),
    (4, "rewrite"),
    (6, "character read"),
    (8, "block read"),
];

const RATES: [(usize, &str); 7] = [
    (10, "random seeks"),
    (17, "creates, in order"),
    (19, "stats, in order"),
    (21, "deletes, in order"),
    (23, "creates, at random"),
    (25, "stats, at random"),
    (27, "deletes, at random"),
];

const BONNIE: &str = "Bonnie++";

/// Bonnie++ 1.97 and newer: its line of comma separated values, as `bon_csv2html(1)` has them.
pub(crate) fn bonnie(output: &str, figures: &mut Figures) {
    for fields in output
        .lines()
        .map(|line| line.trim().split(',').collect::<Vec<_>>())
    {
        let first = match fields.as_slice() {
            // Format version 1.98 has two fields more before its rates.
            ["1.98", ..] if fields.len() >= 50 => 9,
            ["1.96" | "1.97", ..] if fields.len() >= 48 => 7,
            _ => continue,
        };
        // What was not done is empty, and what was done too fast is '+++++'.
        let number_at = |place: usize| fields.get(first + place).and_then(|field| number(field));
        for (place, name) in BLOCKS {
            if let Some(kib) = number_at(place) {
                figures.bandwidth(BONNIE, name, kib / 1024.0);
            }
        }
        for (place, name) in RATES {
            if let Some(rate) = number_at(place) {
                figures.rate(BONNIE, name, rate);
            }
        }
    }
}

/// pgbench, the summary at its end.
pub(crate) fn pgbench(output: &str, figures: &mut Figures) {
    let mut begun = false;
    for line in output.lines() {
        begun |= line.starts_with("transaction type:");
        let Some((name, value)) = line.split_once(" = ").filter(|_| begun) else {
            continue;
        };
        let Some(figure) = number(value) else {
            continue;
        };
        match name {
            // Before version 14 both are printed.
            "tps" if value.contains("including") => {
                figures.rate("pgbench", "transactions, connecting included", figure)
            }
            "tps" => figures.rate("pgbench", "transactions", figure),
            "latency average" => figures.time("pgbench", "latency, mean", figure / 1e3),
            "latency stddev" => figures.time("pgbench", "latency, deviation", figure / 1e3),
            _ => {}
        }
    }
}

/// `perf bench`, each benchmark under a line with its name.
pub(crate) fn perf_bench(output: &str, figures: &mut Figures) {
    let mut of = String::new();
    for line in output.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("# Running '")
            .and_then(|rest| rest.split_once("' benchmark"))
        {
            of = format!("perf bench {}", name.0);
        } else if !of.is_empty() {
            perf_bench_line(line, &of, figures);
        }
    }
}

fn perf_bench_line(line: &str, of: &str, figures: &mut Figures) {
    if let Some(seconds) = line.strip_prefix("Total time:").and_then(number) {
        return figures.time(of, "total time", seconds);
    }
    if let Some(rate) = line
        .strip_prefix("Averaged ")
        .filter(|rest| rest.contains("operations/sec"))
        .and_then(number)
    {
        return figures.rate(of, "operations", rate);
    }
    let Some((figure, unit)) = line.split_once(' ') else {
        return;
    };
    let Ok(figure) = figure.parse::<f64>() else {
        return;
    };
    match unit.trim() {
        "nsecs/op" => figures.time(of, "an operation", figure / 1e9),
        "usecs/op" => figures.time(of, "an operation", figure / 1e6),
        "msecs/op" => figures.time(of, "an operation", figure / 1e3),
        "ops/sec" => figures.rate(of, "operations", figure),
        "B/sec" => figures.bandwidth(of, "moved", figure / 1_048_576.0),
        "KB/sec" => figures.bandwidth(of, "moved", figure / 1024.0),
        "MB/sec" => figures.bandwidth(of, "moved", figure),
        "GB/sec" => figures.bandwidth(of, "moved", figure * 1024.0),
        _ => {}
    }
}

/// stress-ng's YAML (`--yaml /dev/stdout`): it has one form, so that its lines are enough.
pub(crate) fn stress_ng(output: &str, figures: &mut Figures) {
    let (mut in_metrics, mut stressor) = (false, String::new());
    for line in output.lines() {
        // Sections begin at the margin.
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            in_metrics = line == "metrics:";
        }
        let Some((key, value)) = line.trim().split_once(": ").filter(|_| in_metrics) else {
            continue;
        };
        match (key, number(value)) {
            ("- stressor", _) => stressor = value.trim().to_owned(),
            ("bogo-ops-per-second-real-time", Some(rate)) => {
                figures.rate("stress-ng", &format!("{stressor}, by wall time"), rate);
            }
            ("bogo-ops-per-second-usr-sys-time", Some(rate)) => {
                figures.rate("stress-ng", &format!("{stressor}, by CPU time"), rate);
            }
            _ => {}
        }
    }
}

const MIB: f64 = 1_048_576.0;

/// Fields of hyperfine's output that are read_json; other fields are skipped.
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

pub(crate) fn read_json(output: &str, figures: &mut Figures) {
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
