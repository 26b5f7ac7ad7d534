//! The requests of one column, a machine in one variant, over its trials: each trial is added and forgotten. Also less
//! what it cost to record them, and single ones as pictures; and the column that they make, with its table.

use super::distribution::{Distribution, Heat, NestedTally, RoundMedians};
use crate::events::CallKind;
use crate::trial::joined_trial::{JoinedTrial, RowKey, label, layer};
use crate::trial::open::TrialCalls;
use crate::{JoinedRequest, RecordedEvents, Who};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use vmtax_analysis::{estimate, paired};
use vmtax_findings::{
    CalibratedCost, ClockFinding, Corrected, LayerColumn, Matched, PacketCounts, Row, Span, State,
    Step, Summary, TailRow, ThreadCalls, Waterfall,
};
use vmtax_model::{
    Checkpoint, EventCost, EventKind, Latency, Machine, Metric, Missing, Role, Side, TrialRecord,
};
use vmtax_trace::{CallPhase, Moments, call_rows};

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
    /// Completion latency and requests in fio's own JSON; empty for other workloads.
    pub fio: FioSums,
}

/// Completion latency and requests as fio counted them in its traced runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct FioSums {
    /// Completion latencies, by fio's bins.
    latency: Latency,
    /// The means of its runs.
    means: Vec<FioMean>,
}

/// The mean completion latency of a run of fio.
#[derive(Debug, Clone, Copy)]
struct FioMean {
    ns: f64,
    requests: u64,
}

impl FioSums {
    fn requests(&self) -> u64 {
        self.means.iter().map(|mean| mean.requests).sum()
    }

    /// All completion latencies with their mean, which is fio's own; `None` without any.
    fn summary(&self) -> Option<Summary> {
        let mean_ns = match self.means[..] {
            // The figure itself, not what its product and quotient make of it.
            [one] => one.ns,
            ref all => {
                let total: f64 = all.iter().map(|mean| mean.ns * mean.requests as f64).sum();
                total / self.requests() as f64
            }
        };
        let summary = Summary::summarize(&self.latency)?;
        mean_ns
            .is_finite()
            .then_some(Summary { mean_ns, ..summary })
    }
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

    /// Adds what fio measured itself in a traced run: `latency` of its requests.
    pub fn add_fio(&mut self, record: &TrialRecord, latency: &Latency) {
        let mean = record.result().and_then(|r| r.value(Metric::FioMean));
        if let Some(ns) = mean {
            let requests = latency.count();
            self.fio.means.push(FioMean { ns, requests });
            self.fio.latency.add(latency);
        }
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
    pub fn candidates(&self) -> impl Iterator<Item = &Waterfall> {
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
    /// `beyond_ns`: mean time that the workload measured beyond that of the joined requests.
    pub fn whole(
        &self,
        unexplained_ns: f64,
        beyond_ns: f64,
        control: &BTreeMap<u32, f64>,
    ) -> Option<Corrected> {
        if self.incomplete || self.total.count() == 0 {
            return None;
        }
        let medians = self.medians.rounds();
        let outside = self.each(self.outside);
        let total = self.total.summary();
        Some(Corrected {
            total: Summary {
                mean_ns: total.mean_ns + beyond_ns,
                ..total
            },
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

/// From each trial the requests at its own quantiles; which of them is drawn shows when all trials are in.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaterfallCandidates(Vec<Waterfall>);

impl WaterfallCandidates {
    pub fn add(&mut self, trial: &JoinedTrial) {
        let mut order: Vec<u32> = (0..).take(trial.requests.len()).collect();
        order.sort_unstable_by_key(|i| trial.requests[*i as usize].total());
        for (which, quantile) in [("median", 0.5), ("p99", 0.99)] {
            let rank = (quantile * order.len() as f64).ceil() as usize;
            if let Some(i) = order.get(rank.saturating_sub(1)) {
                let request = &trial.requests[*i as usize];
                self.0.push(Waterfall {
                    which: which.to_owned(),
                    total_ns: trial.ns(request.total()),
                    spans: spans(trial, request),
                });
            }
        }
    }

    /// The one of a kind that is nearest to a time.
    pub fn nearest(&self, which: &str, ns: f64) -> Option<&Waterfall> {
        let of_kind = self.0.iter().filter(|c| c.which == which);
        of_kind.min_by(|a, b| (a.total_ns - ns).abs().total_cmp(&(b.total_ns - ns).abs()))
    }
}

/// The segments of a request as they follow each other.
fn spans(trial: &JoinedTrial, request: &JoinedRequest) -> Vec<Span> {
    let mut at = request.first();
    let spans = request.segments.iter().map(|segment| {
        let begin = at;
        at += segment.ticks;
        let from = request
            .checkpoints()
            .take_while(|(s, _)| *s < segment.to)
            .last()
            .map_or(Checkpoint::Begin, |(s, _)| s);
        Span {
            layer: layer(from, segment.to),
            state: segment.state,
            label: label(from, segment.to),
            thread: trial.name(segment.who),
            begin_ns: trial.ns(begin - request.begin()),
            end_ns: trial.ns(at - request.begin()),
        }
    });
    spans.collect()
}

pub(crate) fn column(machine: Machine, variant: &str, sums: &ColumnSums) -> LayerColumn {
    let joined = sums.total.summary();
    let of_fio = sums.fio.summary();
    let traced = of_fio.filter(|_| joined.n > 0).unwrap_or(joined);
    let clock = sums.clock.clone().unwrap_or_default();
    let rows = table_rows(sums, clock.bound_ns, traced.mean_ns);
    let (control, observed) = (sums.control_medians.rounds(), sums.traced_medians.rounds());
    let unexplained_ns = traced.mean_ns - rows.iter().map(|r| r.time.mean_ns).sum::<f64>();
    LayerColumn {
        machine,
        variant: variant.to_owned(),
        from_host: false,
        is_accelerator_unknown: false,
        rounds: observed.len() as u32,
        matched: sums.matched.clone(),
        clock,
        traced,
        control: Summary::summarize(&sums.control),
        control_median: (!control.is_empty())
            .then(|| estimate(control.values().copied().collect())),
        observer: paired(&control, &observed).map(|p| p.ratio),
        rows,
        corrected: sums
            .corrected
            .whole(unexplained_ns, traced.mean_ns - joined.mean_ns, &control),
        fio_requests: of_fio.map(|_| sums.fio.requests()),
        unexplained_ns,
        nested: sums.nested.table(),
        lifecycle: lifecycle(sums),
        calls: calls(sums),
        tail: tail(sums),
        waterfalls: sums.candidates().cloned().collect(),
        heat: sums.heat.map(),
        packets: sums.packets.clone(),
        missing: sums.missing.clone(),
    }
}

/// The rows, as parts of a mean of `whole` ns.
fn table_rows(sums: &ColumnSums, bound_ns: f64, whole: f64) -> Vec<Row> {
    let requests = sums.total.count();
    let rows = sums.rows.iter().map(|(key, times)| {
        let time = times.summary_of(requests);
        let recorded = sums.corrected.row(*key);
        Row {
            from: key.from,
            to: key.to,
            layer: key.layer(),
            state: key.state,
            label: key.label(),
            time,
            mean: estimate(row_means(sums, *key)),
            percent: if whole > 0.0 {
                100.0 * time.mean_ns / whole
            } else {
                0.0
            },
            count: times.count(),
            events: recorded.map(|(events, _)| events),
            corrected_ns: recorded.map(|(_, ns)| time.mean_ns - ns),
            below_bound: key.crosses() && times.summary().mean_ns < bound_ns,
        }
    });
    rows.collect()
}

fn lifecycle(sums: &ColumnSums) -> Vec<Step> {
    let steps = sums.steps.iter().map(|(checkpoint, (since, makers))| Step {
        label: checkpoint.label().to_owned(),
        since_previous_ns: since.summary().p50_ns,
        thread: makers
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(name, _)| name.clone())
            .unwrap_or_default(),
    });
    steps.collect()
}

fn calls(sums: &ColumnSums) -> Vec<ThreadCalls> {
    let threads = sums.calls.iter().map(|(role, calls)| {
        let rows = call_rows(
            calls.iter().map(|(phase, moments)| (*phase, moments)),
            CallKind::name,
        );
        let locks = calls
            .iter()
            .filter(|(phase, _)| phase.call == CallKind::Lock && !phase.after);
        let locks = locks
            .map(|(_, m): (_, &Moments)| m.row("waits for locks".to_owned()))
            .next();
        ThreadCalls {
            role: role.clone(),
            calls: rows,
            locks,
        }
    });
    threads.collect()
}

fn tail(sums: &ColumnSums) -> Vec<TailRow> {
    let tail = &sums.tail;
    let label = |key: &RowKey| match key.state {
        State::Running => key.label(),
        state => format!("{}, {}", key.label(), state.label()),
    };
    let mut rows: Vec<TailRow> = tail
        .rows
        .iter()
        .map(|(key, (middle, slowest))| TailRow {
            label: label(key),
            median_ns: middle / tail.middle.max(1) as f64,
            slowest_ns: slowest / tail.slowest.max(1) as f64,
        })
        .collect();
    rows.sort_by_key(|r| Reverse((r.slowest_ns - r.median_ns) as i64));
    rows
}
