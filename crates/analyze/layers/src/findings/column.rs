//! One machine in one variant: its table and what goes with it.

use super::gathered::Gathered;
use super::tally::{Tally, row_means};
use crate::events::calls::CallKind;
use crate::trial::chain::Key;
use std::cmp::Reverse;
use vmtax_analysis::{estimate, paired};
use vmtax_model::{ClockFinding, LayerColumn, Machine, Moments, Row, State, Step, Summary, TailRow, ThreadCalls};
use vmtax_trace::call_rows;

pub(crate) fn column(machine: Machine, variant: &str, gathered: &Gathered) -> LayerColumn {
    let tally = &gathered.tally;
    let traced = tally.total.summary();
    let clock = tally.clock.clone().unwrap_or(ClockFinding {
        bound_ns: 0.0,
        source: String::new(),
        drift_ns: 0.0,
        violations: 0,
    });
    let rows = rows(tally, clock.bound_ns);
    let (control, observed) = (gathered.control_medians.rounds(), gathered.traced_medians.rounds());
    let unexplained_ns = traced.mean_ns - rows.iter().map(|r| r.time.mean_ns).sum::<f64>();
    LayerColumn {
        machine,
        variant: variant.to_owned(),
        rounds: observed.len() as u32,
        matched: tally.matched.clone(),
        clock,
        traced,
        control: Summary::of(&gathered.control),
        control_median: (!control.is_empty()).then(|| estimate(control.values().copied().collect())),
        observer: paired(&control, &observed).map(|p| p.ratio),
        rows,
        unexplained_ns,
        nested: tally.nested.table(),
        lifecycle: lifecycle(tally),
        calls: calls(tally),
        tail: tail(tally),
        waterfalls: tally.candidates().map(|c| c.waterfall()).collect(),
        heat: tally.heat.map(),
        missing: tally.missing.clone(),
    }
}

fn rows(tally: &Tally, bound_ns: f64) -> Vec<Row> {
    let requests = tally.total.count();
    let whole = tally.total.summary().mean_ns;
    let rows = tally.rows.iter().map(|(key, times)| {
        let time = times.summary_of(requests);
        Row {
            from: key.from,
            to: key.to,
            layer: key.layer(),
            state: key.state,
            label: key.label(),
            time,
            mean: estimate(row_means(tally, *key)),
            percent: if whole > 0.0 { 100.0 * time.mean_ns / whole } else { 0.0 },
            count: times.count(),
            below_bound: key.crosses() && times.summary().mean_ns < bound_ns,
        }
    });
    rows.collect()
}

fn lifecycle(tally: &Tally) -> Vec<Step> {
    let steps = tally.steps.iter().map(|(checkpoint, (since, makers))| Step {
        label: checkpoint.label().to_owned(),
        since_previous_ns: since.summary().p50_ns,
        thread: makers.iter().max_by_key(|(_, count)| **count).map(|(name, _)| name.clone()).unwrap_or_default(),
    });
    steps.collect()
}

fn calls(tally: &Tally) -> Vec<ThreadCalls> {
    let threads = tally.calls.iter().map(|(role, calls)| {
        let rows = call_rows(calls.iter().map(|(phase, moments)| (*phase, moments)), CallKind::name);
        let locks = calls.iter().filter(|(phase, _)| phase.call == CallKind::Lock && !phase.after);
        let locks = locks.map(|(_, m): (_, &Moments)| m.row("waits for locks".to_owned())).next();
        ThreadCalls { role: role.clone(), calls: rows, locks }
    });
    threads.collect()
}

fn tail(tally: &Tally) -> Vec<TailRow> {
    let tail = &tally.tail;
    let label = |key: &Key| match key.state {
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
