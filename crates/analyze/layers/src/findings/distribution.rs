//! Distributions of times over requests, over rounds and over the run.

use std::collections::BTreeMap;
use vmtax_findings::{HeatMap, Summary};
use vmtax_model::Latency;

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
}
