//! The requests of one column, over its trials: each trial is added and forgotten.

use super::corrected_sums::CorrectedSums;
use super::distribution::Distribution;
use super::heat::Heat;
use super::nested::NestedTally;
use super::round_medians::RoundMedians;
use super::waterfall::{Candidate, WaterfallCandidates};
use crate::events::calls::CallKind;
use crate::request::{JoinedRequest, Who};
use crate::trial::call_times::TrialCalls;
use crate::trial::common_path::RowKey;
use crate::trial::joined_trial::JoinedTrial;
use std::collections::BTreeMap;
use vmtax_model::{
    Checkpoint, ClockFinding, Latency, Matched, Missing, Moments, PacketCounts, Role,
};
use vmtax_trace::CallPhase;

/// Of a round, to make means of: requests, and sums in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub requests: u64,
    pub rows: BTreeMap<RowKey, f64>,
}

/// Sums over two kinds of requests: those around the median, and the slowest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    pub middle: u64,
    pub slowest: u64,
    pub rows: BTreeMap<RowKey, (f64, f64)>,
}

/// Sums of one machine in one variant, over its trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnSums {
    /// Operations without probes, all rounds together.
    pub control: Latency,
    pub control_medians: RoundMedians,
    pub traced_medians: RoundMedians,
    pub total: Distribution,
    pub rows: BTreeMap<RowKey, Distribution>,
    pub rounds: BTreeMap<u32, Round>,
    pub tail: Tail,
    /// By checkpoint: the time since the one before, and who made requests pass.
    pub steps: BTreeMap<Checkpoint, (Distribution, BTreeMap<String, u64>)>,
    pub nested: NestedTally,
    pub heat: Heat,
    pub pictures: WaterfallCandidates,
    pub calls: BTreeMap<Role, BTreeMap<CallPhase<CallKind>, Moments>>,
    pub matched: Matched,
    pub packets: Option<PacketCounts>,
    pub clock: Option<ClockFinding>,
    pub missing: Vec<Missing>,
    pub corrected: CorrectedSums,
}

impl ColumnSums {
    /// Adds a trial of a round.
    pub fn add(&mut self, round: u32, trial: &JoinedTrial) {
        self.requests(round, trial);
        self.tail(trial);
        self.nested
            .add(&trial.requests, &trial.common_path, trial.mhz);
        self.pictures.add(trial);
        self.corrected.add(round, trial);
        self.matched(&trial.matched);
        if let Some(packets) = &trial.packets {
            self.packets.get_or_insert_default().add(packets);
        }
        self.clock(&trial.clock);
        self.missing(&trial.missing);
    }

    fn missing(&mut self, all: &[Missing]) {
        for missing in all {
            if !self.missing.contains(missing) {
                self.missing.push(missing.clone());
            }
        }
    }

    fn requests(&mut self, number: u32, trial: &JoinedTrial) {
        let round = self.rounds.entry(number).or_default();
        let first = trial
            .requests
            .iter()
            .map(JoinedRequest::begin)
            .min()
            .unwrap_or(0);
        let mut makers: BTreeMap<(Checkpoint, Who), u64> = BTreeMap::new();
        for request in &trial.requests {
            round.requests += 1;
            let total = trial.ns(request.total());
            self.total.add(total);
            self.heat.add(trial.ns(request.begin() - first), total);
            for (key, ticks) in rows(trial, request) {
                let ns = trial.ns(ticks);
                self.rows.entry(key).or_default().add(ns);
                *round.rows.entry(key).or_default() += ns;
            }
            for (checkpoint, since) in steps(trial, request) {
                self.steps
                    .entry(checkpoint)
                    .or_default()
                    .0
                    .add(trial.ns(since));
                *makers
                    .entry((checkpoint, request.who(checkpoint)))
                    .or_default() += 1;
            }
        }
        for ((checkpoint, who), count) in makers {
            *self
                .steps
                .entry(checkpoint)
                .or_default()
                .1
                .entry(trial.name(who))
                .or_default() += count;
        }
    }

    fn tail(&mut self, trial: &JoinedTrial) {
        let mut totals: Vec<u64> = trial.requests.iter().map(JoinedRequest::total).collect();
        totals.sort_unstable();
        let quantile = |q: f64| {
            totals
                .get((q * totals.len() as f64) as usize)
                .copied()
                .unwrap_or(u64::MAX)
        };
        let (low, high, slow) = (quantile(0.45), quantile(0.55), quantile(0.99));
        for request in &trial.requests {
            let total = request.total();
            let (middle, slowest) = ((low..=high).contains(&total), total >= slow);
            self.tail.middle += u64::from(middle);
            self.tail.slowest += u64::from(slowest);
            if middle || slowest {
                for (key, ticks) in rows(trial, request) {
                    let sums = self.tail.rows.entry(key).or_default();
                    sums.0 += if middle { trial.ns(ticks) } else { 0.0 };
                    sums.1 += if slowest { trial.ns(ticks) } else { 0.0 };
                }
            }
        }
    }

    /// Adds the system calls of a trial that observed those.
    pub fn add_calls(&mut self, trial: &TrialCalls) {
        for (role, what, moments) in trial.by_role() {
            self.calls
                .entry(role)
                .or_default()
                .entry(what)
                .or_default()
                .merge(&moments);
        }
        self.missing(&trial.missing);
    }

    fn matched(&mut self, other: &Matched) {
        self.matched.operations += other.operations;
        self.matched.joined += other.joined;
        self.matched.lost_events += other.lost_events;
        for (reason, count) in &other.rejected {
            match self.matched.rejected.iter_mut().find(|(r, _)| r == reason) {
                Some((_, known)) => *known += count,
                None => self.matched.rejected.push((reason.clone(), *count)),
            }
        }
    }

    fn clock(&mut self, other: &ClockFinding) {
        let Some(clock) = &mut self.clock else {
            self.clock = Some(other.clone());
            return;
        };
        if other.bound_ns > clock.bound_ns {
            (clock.bound_ns, clock.source) = (other.bound_ns, other.source.clone());
        }
        clock.drift_ns = clock.drift_ns.max(other.drift_ns);
        clock.violations += other.violations;
    }

    /// The requests nearest to the median and to the 99th percentile.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        let figure = self.total.summary();
        [("median", figure.p50_ns), ("p99", figure.p99_ns)]
            .into_iter()
            .filter_map(|(which, ns)| self.pictures.nearest(which, ns))
    }
}

/// A row's mean in each round, ns.
pub(crate) fn row_means(sums: &ColumnSums, key: RowKey) -> Vec<f64> {
    let rounds = sums.rounds.values().filter(|r| r.requests > 0);
    rounds
        .map(|r| r.rows.get(&key).copied().unwrap_or(0.0) / r.requests as f64)
        .collect()
}

/// A request's rows, each once, in ticks.
pub(crate) fn rows(trial: &JoinedTrial, request: &JoinedRequest) -> BTreeMap<RowKey, u64> {
    let mut rows = BTreeMap::new();
    for segment in &request.segments {
        *rows.entry(trial.common_path.key(segment)).or_default() += segment.ticks;
    }
    rows
}

/// The time from each checkpoint of the common_path that a request passes to the next, its end among them.
fn steps<'a>(
    trial: &'a JoinedTrial,
    request: &'a JoinedRequest,
) -> impl Iterator<Item = (Checkpoint, u64)> + 'a {
    let mut previous = request.begin();
    let passed = trial
        .common_path
        .checkpoints()
        .iter()
        .chain([&Checkpoint::End])
        .filter_map(|s| Some((*s, request.at(*s)?)));
    passed.map(move |(checkpoint, at)| {
        let since = at.saturating_sub(previous);
        previous = at;
        (checkpoint, since)
    })
}
