//! sysbench 1.0 and 1.1.

use crate::tool_output::figures::{Figures, number};

pub(crate) fn read(output: &str, figures: &mut Figures) {
    let mut run: Option<Run> = None;
    for line in output.lines() {
        if line.strip_prefix("sysbench 1.").and_then(number).is_some() {
            run.replace(Run::default())
                .into_iter()
                .for_each(|run| run.add_to(figures));
        } else if let Some(run) = &mut run {
            run.line(line.trim());
        }
    }
    run.into_iter().for_each(|run| run.add_to(figures));
}

/// Output of one run so far.
#[derive(Default)]
struct Run {
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
const TESTS: [(&str, &str); 4] = [
    ("CPU speed:", "cpu"),
    ("Running memory speed test", "memory"),
    ("File operations:", "fileio"),
    ("SQL statistics:", "SQL"),
];

impl Run {
    fn line(&mut self, line: &str) {
        if let Some((_, test)) = TESTS.iter().find(|(begin, _)| line.starts_with(begin)) {
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
        let in_brackets = || rest.split_once('(').and_then(|(_, rate)| number(rate));
        match key {
            "Number of threads" => self.threads = value,
            "events per second" | "events/s (eps)" => self.rate = Some(value),
            "total time" | "time elapsed" => self.seconds = Some(value),
            "total number of events" => self.events = Some(value),
            "Total operations" => self
                .rates
                .extend(in_brackets().map(|rate| ("operations", rate))),
            "transactions" => self
                .rates
                .extend(in_brackets().map(|rate| ("transactions", rate))),
            "queries" => self
                .rates
                .extend(in_brackets().map(|rate| ("queries", rate))),
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
        self.rates
            .iter()
            .for_each(|(name, rate)| figures.rate(&of, name, *rate));
        self.bandwidths
            .iter()
            .for_each(|(name, rate)| figures.bandwidth(&of, name, *rate));
        self.latencies
            .iter()
            .for_each(|(name, ms)| figures.time(&of, name, ms / 1e3));
    }
}
