//! The medians of rounds.

use std::collections::BTreeMap;
use vmtax_model::Latency;

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

    pub fn of(round: u32, latency: &Latency) -> RoundMedians {
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
