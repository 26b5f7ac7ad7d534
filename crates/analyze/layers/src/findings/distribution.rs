//! Distributions of times over requests, over rounds and over the run; and nested ones, from each layer's entry to its
//! exit, as published tables have them.

use crate::JoinedRequest;
use crate::trial::joined_trial::CommonPath;
use std::collections::BTreeMap;
use vmtax_findings::{HeatMap, Nested, Summary};
use vmtax_model::{Checkpoint, Latency};

/// Distribution of a time over many requests: exact mean and maximum, quantiles to a thousandth.
#[derive(Debug, Clone, Default)]
pub(crate) struct Distribution {
    latency: Latency,
    sum: f64,
    min: Option<f64>,
    max: f64,
}

impl Distribution {
    /// Counts one, of `ns` nanoseconds.
    pub fn add(&mut self, ns: f64) {
        self.latency.record(ns.round() as u64);
        self.sum += ns;
        self.min = Some(self.min.map_or(ns, |min| min.min(ns)));
        self.max = self.max.max(ns);
    }

    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    pub fn count(&self) -> u64 {
        self.latency.count()
    }

    /// Over all that were counted.
    pub fn summary(&self) -> Summary {
        self.summary_of(self.count())
    }

    /// Over `all` requests, of which those that were not counted took no time.
    pub fn summary_of(&self, all: u64) -> Summary {
        let quantile = |q: f64| self.quantile(q, all);
        Summary {
            n: all,
            min_ns: if all > self.count() {
                0.0
            } else {
                self.min.unwrap_or(0.0)
            },
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            max_ns: self.max,
            mean_ns: self.sum / all.max(1) as f64,
        }
    }

    fn quantile(&self, q: f64, all: u64) -> f64 {
        let zeros = all.saturating_sub(self.count());
        let rank = (q * all as f64).ceil().max(1.0) as u64;
        let Some(rank) = rank.checked_sub(zeros).filter(|r| *r > 0) else {
            return 0.0;
        };
        // From the middle of the rank, so that no rounding makes it the next one.
        let within = (rank as f64 - 0.5) / self.count().max(1) as f64;
        // The histogram gives the upper edge of a bucket, which may lie above the largest.
        (self.latency.quantile(within) as f64).min(self.max)
    }
}

/// A median of each round, ns: what is compared between trials. A round's mean hangs on its few slowest operations, which
/// other load of the host makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoundMedians(BTreeMap<u32, Latency>);

impl RoundMedians {
    pub fn add(&mut self, round: u32, latency: &Latency) {
        if latency.count() > 0 {
            self.0.entry(round).or_default().add(latency);
        }
    }

    pub fn of_round(round: u32, latency: &Latency) -> RoundMedians {
        let mut medians = RoundMedians::default();
        medians.add(round, latency);
        medians
    }

    pub fn rounds(&self) -> BTreeMap<u32, f64> {
        self.0
            .iter()
            .map(|(round, latency)| (*round, latency.quantile(0.5) as f64))
            .collect()
    }
}

/// More columns than this are merged in pairs, and again, as often as it takes.
const MAX_COLUMNS: usize = 120;
const FIRST_COLUMN_NS: f64 = 1e6;
const LOWEST_NS: f64 = 100.0;
/// A fourth of an octave: 19 %.
const FACTOR: f64 = 1.189_207_115_002_721;
/// Up to 27 minutes.
const ROWS: usize = 136;

/// Counts requests by when they began and how long they took, in bounded room.
#[derive(Debug, Clone)]
pub(crate) struct Heat {
    column_ns: f64,
    counts: Vec<[u32; ROWS]>,
}

impl Default for Heat {
    fn default() -> Self {
        Heat {
            column_ns: FIRST_COLUMN_NS,
            counts: Vec::new(),
        }
    }
}

impl Heat {
    /// Counts one: when it began since the first of its trial, and how long it took.
    pub fn add(&mut self, began_ns: f64, took_ns: f64) {
        while began_ns >= self.column_ns * MAX_COLUMNS as f64 {
            let pairs = self.counts.chunks(2);
            let merged = pairs.map(|pair| {
                std::array::from_fn(|row| pair.iter().fold(0, |n, c| c[row].saturating_add(n)))
            });
            self.counts = merged.collect();
            self.column_ns *= 2.0;
        }
        let column = (began_ns / self.column_ns) as usize;
        let row = ((took_ns.max(LOWEST_NS) / LOWEST_NS).ln() / FACTOR.ln()) as usize;
        if self.counts.len() <= column {
            self.counts.resize(column + 1, [0; ROWS]);
        }
        let cell = &mut self.counts[column][row.min(ROWS - 1)];
        *cell = cell.saturating_add(1);
    }

    /// The map, without the rows below and above everything.
    pub fn map(&self) -> HeatMap {
        let used = |row: &usize| self.counts.iter().any(|c| c[*row] > 0);
        let (Some(low), Some(high)) = ((0..ROWS).find(used), (0..ROWS).rev().find(used)) else {
            return HeatMap::default();
        };
        HeatMap {
            column_ns: self.column_ns,
            lowest_ns: LOWEST_NS * FACTOR.powi(low as i32),
            row_factor: FACTOR,
            counts: self.counts.iter().map(|c| c[low..=high].to_vec()).collect(),
        }
    }
}

type Times = [Distribution; LEVELS.len()];

/// The nested times of requests, by which levels a trial has.
#[derive(Debug, Clone, Default)]
pub(crate) struct NestedTally(BTreeMap<[bool; LEVELS.len()], Box<Times>>);

impl NestedTally {
    /// Adds a trial's requests. A level counts that more than half of them have; a request, that has all of those.
    pub fn add(&mut self, requests: &[JoinedRequest], common_path: &CommonPath, mhz: f64) {
        // In the micro-guest the driver's stamps are the workload's own: the same level twice.
        let kernel = common_path.checkpoints().contains(&Checkpoint::GuestIssue);
        let has = LEVELS.each_ref().map(|level| {
            let having = requests.iter().filter(|r| level.ticks(r).is_some()).count();
            having * 2 > requests.len() && (kernel || level.label != "guest virtio")
        });
        if !has.contains(&true) {
            return;
        }
        let times = self.0.entry(has).or_default();
        for request in requests {
            let ticks = LEVELS.each_ref().map(|level| level.ticks(request));
            if ticks
                .iter()
                .zip(has)
                .all(|(ticks, has)| !has || ticks.is_some())
            {
                for (time, ticks) in times.iter_mut().zip(ticks) {
                    ticks
                        .into_iter()
                        .for_each(|t| time.add(t as f64 * 1000.0 / mhz));
                }
            }
        }
    }

    /// The table, of the levels that most requests have.
    pub fn table(&self) -> Vec<Nested> {
        let Some((has, times)) = self.0.iter().max_by_key(|(_, times)| times[0].count()) else {
            return Vec::new();
        };
        let levels = LEVELS
            .iter()
            .zip(times.iter())
            .zip(has)
            .filter(|(_, has)| **has);
        nested(
            &levels
                .map(|((level, time), _)| (level.label, time.summary()))
                .collect::<Vec<_>>(),
        )
    }
}

/// Returns the time that each layer takes beyond the next inner one, and its share of the outermost: successive means
/// subtracted.
pub(crate) fn nested(levels: &[(&str, Summary)]) -> Vec<Nested> {
    let whole = levels.first().map_or(0.0, |(_, f)| f.mean_ns);
    let inner = levels.iter().skip(1).map(|(_, f)| f.mean_ns).chain([0.0]);
    let rows = levels.iter().zip(inner);
    rows.map(|((label, cumulative), inner)| {
        let delta_ns = cumulative.mean_ns - inner;
        let percent = if whole > 0.0 {
            100.0 * delta_ns / whole
        } else {
            0.0
        };
        Nested {
            label: (*label).to_owned(),
            cumulative: *cumulative,
            delta_ns,
            percent,
        }
    })
    .collect()
}

/// A layer's entry and exit: the first of each that a request has.
pub(crate) struct Level {
    pub label: &'static str,
    enter: &'static [Checkpoint],
    leave: &'static [Checkpoint],
}

/// From the outermost to the innermost, after the KVM wiki's page on virtio-blk latency (2010).
pub(crate) const LEVELS: [Level; 5] = {
    use Checkpoint as S;
    [
        Level {
            label: "guest benchmark",
            enter: &[S::Begin],
            leave: &[S::End],
        },
        Level {
            label: "guest virtio",
            enter: &[S::GuestNotify, S::GuestIssue],
            leave: &[S::GuestInterrupt, S::GuestComplete],
        },
        Level {
            label: "KVM",
            enter: &[S::KvmNotify],
            leave: &[S::Inject],
        },
        Level {
            label: "QEMU virtio",
            enter: &[S::QemuWake, S::QemuPop],
            leave: &[S::QemuNotify, S::QemuPush],
        },
        Level {
            label: "QEMU AIO",
            enter: &[S::HostCall],
            leave: &[S::QemuReap, S::HostComplete, S::QemuPush],
        },
    ]
};

impl Level {
    /// Returns the time that a request was in the layer and below, in ticks; `None` if the request lacks the entry or
    /// the exit.
    pub fn ticks(&self, request: &JoinedRequest) -> Option<u64> {
        let first = |checkpoints: &[Checkpoint]| checkpoints.iter().find_map(|s| request.at(*s));
        first(self.leave)?.checked_sub(first(self.enter)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_it_count_as_no_time() {
        let mut d = Distribution::default();
        (1..=50).for_each(|ns| d.add(f64::from(ns)));
        let own = d.summary();
        assert_eq!(
            (own.n, own.min_ns, d.summary_of(100).min_ns),
            (50, 1.0, 0.0)
        );
        assert_eq!(
            (own.mean_ns, own.p50_ns, own.p90_ns, own.p99_ns, own.max_ns),
            (25.5, 25.0, 45.0, 50.0, 50.0)
        );
        let all = d.summary_of(100);
        assert_eq!(
            (all.mean_ns, all.p50_ns, all.p90_ns, all.p99_ns, all.max_ns),
            (12.75, 0.0, 40.0, 49.0, 50.0)
        );
        assert_eq!(
            Distribution::default().summary_of(10),
            Summary {
                n: 10,
                ..Summary::default()
            }
        );
        assert_eq!(Distribution::default().summary(), Summary::default());
    }

    #[test]
    fn columns_double_and_nothing_is_lost() {
        let mut heat = Heat::default();
        for i in 0..10_000 {
            heat.add(f64::from(i) * 1e5, 50_000.0 + f64::from(i % 7) * 40_000.0);
        }
        let map = heat.map();
        assert!(
            map.counts.len() <= MAX_COLUMNS && map.column_ns == FIRST_COLUMN_NS * 16.0,
            "{}",
            map.column_ns
        );
        assert_eq!(map.counts.iter().flatten().sum::<u32>(), 10_000);
        // 62 or 63 full columns of 160 each.
        assert_eq!(map.counts[0].iter().sum::<u32>(), 160);
        assert!(map.lowest_ns <= 50_000.0 && map.lowest_ns * FACTOR > 50_000.0);
        assert_eq!(Heat::default().map(), HeatMap::default());
    }

    #[test]
    fn wild_times_stay_inside() {
        let mut heat = Heat::default();
        for (began, took) in [
            (1e18, 1e18),
            (0.0, 0.0),
            (f64::MAX, f64::INFINITY),
            (f64::NAN, f64::NAN),
        ] {
            heat.add(began.min(1e18), took);
        }
        assert_eq!(heat.map().counts.iter().flatten().sum::<u32>(), 4);
    }

    /// KVM wiki, virtio-blk latency, 2010: its cumulative column gives its deltas and percents.
    #[test]
    fn the_published_table_as_arithmetic() {
        let published = [
            ("guest benchmark", 196_528.0, 25_699.0, 13.08),
            ("guest virtio-pci", 170_829.0, 7_561.0, 3.85),
            ("host kvm.ko", 163_268.0, 3_640.0, 1.85),
            ("QEMU virtio", 159_628.0, 29_393.0, 14.96),
            ("QEMU paio", 130_235.0, 130_235.0, 66.27),
        ];
        let figure = |mean_ns| Summary {
            mean_ns,
            ..Summary::default()
        };
        let table = nested(&published.map(|(label, cumulative, ..)| (label, figure(cumulative))));
        for (row, (label, cumulative, delta, percent)) in table.iter().zip(published) {
            assert_eq!(
                (row.label.as_str(), row.cumulative.mean_ns, row.delta_ns),
                (label, cumulative, delta)
            );
            assert_eq!((row.percent * 100.0).round() / 100.0, percent, "{label}");
        }
        // And the overhead over the host's own 128,862 ns that the page gives: 33 % before, 14.5 % in a later run.
        assert_eq!(((170_829.0_f64 / 128_862.0 - 1.0) * 100.0).round(), 33.0);
        assert_eq!(nested(&[]), []);
    }
}
