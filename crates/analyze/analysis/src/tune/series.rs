//! What pairs of measurements say of a change: each gives a ratio of costs, with the change over without.

use crate::compare::{InterimAnalyses, decide};
use crate::rates;
use std::sync::LazyLock;
use vmtax_model::{
    Candidate, Comparison, Estimate, Interval, LiveMetric, TuneBlock, TuneMetric, TunePhase, TuneRecord, TuneSpec,
    Verdict, VmFacts,
};

/// Pairs at most for one question: after 8, 11 and 15 of them it is analysed.
pub(super) const MAX_PAIRS: u32 = 15;
/// A change that gives back less is none.
pub(super) const MIN_EFFECT: f64 = 0.02;
/// What costs so much more each time harms, and is taken back before anything is analysed.
const HARM: f64 = 1.05;
/// So many pairs that all harm are enough.
const HARMED_PAIRS: usize = 3;

/// When a question is analysed: computed once, as it is asked of every candidate after each pair.
static ANALYSES: LazyLock<InterimAnalyses> = LazyLock::new(|| InterimAnalyses::new(MAX_PAIRS, 0));

/// What is known after some pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It helps.
    Helps,
    /// It does not, by its interval.
    Fails,
    /// It cost so much in each of its first pairs that it was taken back before anything was analysed.
    Harms,
    /// More pairs are not worth their time.
    Undecided,
    /// Nothing can be measured: the load has stopped, or has no such figure.
    Unmeasurable,
}

/// The pairs of a question: their log ratios in the order of time, and how many gave no figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Series {
    pub logs: Vec<f64>,
    pub empty: usize,
}

impl Series {
    /// The pairs of a phase in which these candidates change, by the figure that counts.
    pub fn of(spec: &TuneSpec, records: &[TuneRecord], phase: TunePhase, changed: &[usize]) -> Series {
        let mut series = Series::default();
        let Some(vm) = facts(records) else { return series };
        let Some(candidate) = changed.first().and_then(|first| spec.candidates.get(*first)) else { return series };
        for record in records {
            let TuneRecord::Pair { plan, without, with } = record else { continue };
            if plan.phase != phase || plan.changed != changed {
                continue;
            }
            let cost = |block| cost(spec, candidate, vm, block);
            // A recording of somebody else may have any number.
            if series.pairs() >= 3 * MAX_PAIRS as usize {
                break;
            }
            match cost(without).zip(cost(with)) {
                Some((without, with)) => series.logs.push((with / without).ln()),
                None => series.empty += 1,
            }
        }
        series
    }

    /// How many pairs there are.
    pub fn pairs(&self) -> usize {
        self.logs.len() + self.empty
    }

    /// What is decided; `None` where another pair is to be measured.
    pub fn decision(&self) -> Option<Decision> {
        let n = self.logs.len();
        if self.empty >= HARMED_PAIRS && self.empty >= n {
            return Some(Decision::Unmeasurable);
        }
        if n >= HARMED_PAIRS && self.logs.iter().all(|log| *log > HARM.ln()) {
            return Some(Decision::Harms);
        }
        if !ANALYSES.at(n as u32) {
            return (self.pairs() as u32 > 2 * MAX_PAIRS).then_some(Decision::Unmeasurable);
        }
        let interval = ANALYSES.interval(&self.logs)?;
        let least = (1.0 + MIN_EFFECT).ln();
        let is_done = n as u32 >= MAX_PAIRS;
        match interval {
            Interval { high, .. } if high < 0.0 => Some(Decision::Helps),
            Interval { low, .. } if low > 0.0 => Some(Decision::Fails),
            Interval { low, high, .. } if low > -least && high < least => Some(Decision::Fails),
            // Nothing that would be worth more pairs.
            _ if is_done || self.median() > -least => Some(Decision::Undecided),
            _ => None,
        }
    }

    /// With the change against without; `None` without a pair.
    pub fn comparison(&self) -> Option<Comparison> {
        let n = self.logs.len() as u32;
        if n == 0 {
            return None;
        }
        let analyses = InterimAnalyses::new(MAX_PAIRS, n);
        let interval = analyses.interval(&self.logs);
        let interval = interval.map(|i| Interval { low: i.low.exp(), high: i.high.exp(), coverage: i.coverage });
        let ratio = Estimate { median: self.median().exp(), interval };
        let p = analyses.p(&self.logs);
        let verdict = if interval.is_none() { Verdict::TooFewRounds } else { decide(&ratio, p, MIN_EFFECT) };
        Some(Comparison { ratio, difference: None, rounds: n, p: Some(p), verdict })
    }

    fn median(&self) -> f64 {
        crate::estimate(self.logs.clone()).median
    }
}

/// The VM.
pub(super) fn facts(records: &[TuneRecord]) -> Option<&VmFacts> {
    records.iter().find_map(|record| if let TuneRecord::Vm(vm) = record { Some(&**vm) } else { None })
}

/// What counts, as a cost: above 0, more is worse. `None` where it was nothing.
fn cost(spec: &TuneSpec, candidate: &Candidate, vm: &VmFacts, block: &TuneBlock) -> Option<f64> {
    let (value, is_rate) = match &spec.metric {
        Some(TuneMetric::Command { higher_is_better, .. }) => (block.printed?, *higher_is_better),
        Some(TuneMetric::Vm(metric)) => (value(*metric, vm, block)?, metric.is_rate()),
        None => (value(candidate.change.metric, vm, block)?, candidate.change.metric.is_rate()),
    };
    Some(if is_rate { 1.0 / value } else { value }).filter(|cost| cost.is_finite() && *cost > 0.0)
}

/// A figure of the VM in a measurement.
fn value(metric: LiveMetric, vm: &VmFacts, block: &TuneBlock) -> Option<f64> {
    let rates = rates(vm, &block.before, &block.after)?;
    match metric {
        LiveMetric::Latency => rates.io?.qavg_ns,
        LiveMetric::Requests => rates.io.map(|io| io.per_s()),
        LiveMetric::Run => rates.run,
        LiveMetric::Exits => rates.exits.map(|exits| exits.per_s),
    }
}
