//! Distributions of times over requests.

use vmtax_model::{Latency, Summary};

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
}
