//! One machine in one variant: its table and what goes with it.

use super::column_sums::{ColumnSums, row_means};
use crate::events::CallKind;
use crate::trial::joined_trial::RowKey;
use std::cmp::Reverse;
use vmtax_analysis::{estimate, paired};
use vmtax_findings::{LayerColumn, Row, State, Step, Summary, TailRow, ThreadCalls};
use vmtax_model::Machine;
use vmtax_trace::{Moments, call_rows};

pub(crate) fn column(machine: Machine, variant: &str, sums: &ColumnSums) -> LayerColumn {
    let traced = sums.total.summary();
    let clock = sums.clock.clone().unwrap_or_default();
    let rows = rows(sums, clock.bound_ns);
    let (control, observed) = (sums.control_medians.rounds(), sums.traced_medians.rounds());
    let unexplained_ns = traced.mean_ns - rows.iter().map(|r| r.time.mean_ns).sum::<f64>();
    LayerColumn {
        machine,
        variant: variant.to_owned(),
        from_host: false,
        rounds: observed.len() as u32,
        matched: sums.matched.clone(),
        clock,
        traced,
        control: Summary::summarize(&sums.control),
        control_median: (!control.is_empty())
            .then(|| estimate(control.values().copied().collect())),
        observer: paired(&control, &observed).map(|p| p.ratio),
        rows,
        corrected: sums.corrected.whole(unexplained_ns, &control),
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

fn rows(sums: &ColumnSums, bound_ns: f64) -> Vec<Row> {
    let requests = sums.total.count();
    let whole = sums.total.summary().mean_ns;
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
