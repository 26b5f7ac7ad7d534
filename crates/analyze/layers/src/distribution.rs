//! Distributions of times over requests.

use vmtax_model::{Figure, Latency};

/// How long something took, over many requests: exact mean and maximum, quantiles to a thousandth.
#[derive(Debug, Clone, Default)]
pub(crate) struct Distribution {
    latency: Latency,
    sum: f64,
    max: f64,
}

impl Distribution {
    /// Counts one, of `ns` nanoseconds.
    pub fn add(&mut self, ns: f64) {
        self.latency.record(ns.round() as u64);
        self.sum += ns;
        self.max = self.max.max(ns);
    }

    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    pub fn count(&self) -> u64 {
        self.latency.count()
    }

    /// Over all that were counted.
    pub fn figure(&self) -> Figure {
        self.figure_of(self.count())
    }

    /// Over `all` requests, of which those that were not counted took no time.
    pub fn figure_of(&self, all: u64) -> Figure {
        let quantile = |q: f64| self.quantile(q, all);
        Figure {
            mean_ns: self.sum / all.max(1) as f64,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            max_ns: self.max,
        }
    }

    fn quantile(&self, q: f64, all: u64) -> f64 {
        let zeros = all.saturating_sub(self.count());
        let rank = (q * all as f64).ceil().max(1.0) as u64;
        let Some(rank) = rank.checked_sub(zeros).filter(|r| *r > 0) else { return 0.0 };
        // From the middle of the rank, so that no rounding makes it the next one.
        let within = (rank as f64 - 0.5) / self.count().max(1) as f64;
        // The histogram gives the upper edge of a bucket, which may lie above the largest.
        (self.latency.quantile(within) as f64).min(self.max)
    }
}

/// The same of a histogram that somebody else made.
pub(crate) fn figure(latency: &Latency) -> Option<Figure> {
    let summary = latency.summary()?;
    Some(Figure {
        mean_ns: summary.mean_ns,
        p50_ns: summary.p50_ns as f64,
        p90_ns: latency.quantile(0.9) as f64,
        p99_ns: summary.p99_ns as f64,
        max_ns: summary.max_ns as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_it_count_as_no_time() {
        let mut d = Distribution::default();
        (1..=50).for_each(|ns| d.add(f64::from(ns)));
        let own = d.figure();
        assert_eq!((own.mean_ns, own.p50_ns, own.p90_ns, own.p99_ns, own.max_ns), (25.5, 25.0, 45.0, 50.0, 50.0));
        let all = d.figure_of(100);
        assert_eq!((all.mean_ns, all.p50_ns, all.p90_ns, all.p99_ns, all.max_ns), (12.75, 0.0, 40.0, 49.0, 50.0));
        assert_eq!(Distribution::default().figure_of(10), Figure::default());
        assert_eq!(Distribution::default().figure(), Figure::default());
    }
}
