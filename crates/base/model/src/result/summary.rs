//! A distribution of times in a few figures.

use crate::Latency;
use serde::{Deserialize, Serialize};

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of times in the distribution.
    #[serde(default)]
    pub n: u64,
    /// Shortest time, ns.
    #[serde(default)]
    pub min_ns: f64,
    /// Half are at most this.
    pub p50_ns: f64,
    /// 90 % are at most this.
    pub p90_ns: f64,
    /// 99 % are at most this.
    pub p99_ns: f64,
    /// Longest time, ns.
    pub max_ns: f64,
    /// The mean. The means of all rows of a table of layers add up to its total's.
    pub mean_ns: f64,
}

impl Summary {
    /// Of a histogram; `None` when it is empty.
    pub fn of(latency: &Latency) -> Option<Summary> {
        let summary = latency.summary()?;
        Some(Summary {
            n: summary.count,
            min_ns: summary.min_ns as f64,
            p50_ns: summary.p50_ns as f64,
            p90_ns: latency.quantile(0.9) as f64,
            p99_ns: summary.p99_ns as f64,
            max_ns: summary.max_ns as f64,
            mean_ns: summary.mean_ns,
        })
    }
}
