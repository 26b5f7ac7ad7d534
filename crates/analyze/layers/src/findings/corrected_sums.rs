//! The requests of one column less what it cost to record them, over its trials.

use super::distribution::Distribution;
use super::round_medians::RoundMedians;
use crate::request::{JoinedRequest, RecordedEvents};
use crate::trial::common_path::RowKey;
use crate::trial::joined_trial::JoinedTrial;
use std::collections::BTreeMap;
use vmtax_analysis::{estimate, paired};
use vmtax_model::{CalibratedCost, Corrected, EventCost, EventKind, Side};

/// Recorded events of a row, over requests.
#[derive(Debug, Clone, Copy, Default)]
struct RowEvents {
    count: u64,
    /// Calibrated cost of the events, in ns.
    ns: f64,
}

impl RowEvents {
    fn add(&mut self, trial: &JoinedTrial, recorded: RecordedEvents) {
        self.count += u64::from(recorded.count);
        self.ns += trial.ns(u64::from(recorded.ticks));
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CorrectedSums {
    /// Some trial was not calibrated: nothing is corrected.
    incomplete: bool,
    total: Distribution,
    medians: RoundMedians,
    rows: BTreeMap<RowKey, RowEvents>,
    outside: RowEvents,
    /// By guest (first) and host, and kind.
    costs: BTreeMap<(bool, EventKind), Vec<EventCost>>,
}

impl CorrectedSums {
    pub fn add(&mut self, round: u32, trial: &JoinedTrial) {
        self.incomplete |= trial.costs.is_empty();
        let mut totals = Distribution::default();
        for request in &trial.requests {
            let ns = trial.ns(corrected(request));
            self.total.add(ns);
            totals.add(ns);
            for segment in &request.segments {
                self.rows
                    .entry(trial.common_path.key(segment))
                    .or_default()
                    .add(trial, segment.recorded);
            }
            self.outside.add(trial, request.recorded_outside);
        }
        self.medians.add(round, totals.latency());
        for (side, cost) in &trial.costs {
            self.costs
                .entry((*side == Side::Host, cost.kind))
                .or_default()
                .push(*cost);
        }
    }

    fn each(&self, events: RowEvents) -> (f64, f64) {
        let requests = self.total.count().max(1) as f64;
        (events.count as f64 / requests, events.ns / requests)
    }

    /// Of a row: the mean number of events of a request, and what they cost, ns. `None` where nothing is corrected.
    pub fn row(&self, key: RowKey) -> Option<(f64, f64)> {
        (!self.incomplete).then(|| self.each(self.rows.get(&key).copied().unwrap_or_default()))
    }

    /// The whole request. `None` where nothing is corrected.
    pub fn whole(&self, unexplained_ns: f64, control: &BTreeMap<u32, f64>) -> Option<Corrected> {
        if self.incomplete || self.total.count() == 0 {
            return None;
        }
        let medians = self.medians.rounds();
        let outside = self.each(self.outside);
        Some(Corrected {
            total: self.total.summary(),
            unexplained_ns: unexplained_ns - outside.1,
            median: estimate(medians.values().copied().collect()),
            ratio: paired(control, &medians).map(|comparison| comparison.ratio),
            events: self.rows.values().map(|row| self.each(*row).0).sum::<f64>() + outside.0,
            costs: self
                .costs
                .iter()
                .map(|((host, kind), costs)| calibrated(*host, *kind, costs))
                .collect(),
        })
    }
}

/// Returns the duration of a request less the cost of its recorded events, in ticks.
fn corrected(request: &JoinedRequest) -> u64 {
    let segments = request.segments.iter().map(|segment| segment.recorded);
    let recorded: u64 = segments
        .chain([request.recorded_outside])
        .map(|events| u64::from(events.ticks))
        .sum();
    request.total().saturating_sub(recorded)
}

fn calibrated(host: bool, kind: EventKind, costs: &[EventCost]) -> CalibratedCost {
    let estimate_of = |ns: fn(&EventCost) -> f64| estimate(costs.iter().map(ns).collect());
    CalibratedCost {
        side: if host { "host" } else { "guest" }.to_owned(),
        kind,
        repetitions: costs.len() as u32,
        first_ns: estimate_of(|cost| cost.first_ns),
        again_ns: estimate_of(|cost| cost.again_ns),
    }
}
