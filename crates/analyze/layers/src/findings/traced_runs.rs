//! Common code for single traced runs, of a command or of a running VM, whichever device's requests are followed.

use super::column_sums::ColumnSums;
use super::round_medians::RoundMedians;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::trial_data::TrialData;
use vmtax_model::{Advice, HostFacts, LayerColumn, LayerFindings, Machine, Plan, REPORT_SCHEMA};
use vmtax_rules::Evidence;

/// Columns of one traced run each, without advice and warnings.
pub(super) fn of_columns(columns: Vec<LayerColumn>, method: &str) -> LayerFindings {
    LayerFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: 1,
        host: None,
        advice: Vec::new(),
        columns,
        differences: Vec::new(),
        method: method.to_owned(),
        warnings: Vec::new(),
    }
}

/// Advice about the column with the largest total time. Its gain is at most the part of the run in which such requests, or
/// packets (`what`), were in flight: `in_flight` of a machine, 0 to 1; larger values count as 1, NaN as 0.
pub(super) fn advice(
    plan: &Plan,
    host: &HostFacts,
    columns: &[LayerColumn],
    what: &str,
    in_flight: impl Fn(Machine) -> Option<f64>,
) -> Vec<Advice> {
    let Some(main) = columns
        .iter()
        .max_by(|a, b| total_ns(a).total_cmp(&total_ns(b)))
    else {
        return Vec::new();
    };
    let columns = std::slice::from_ref(main);
    let mut advice = vmtax_rules::advice(&Evidence {
        plan: Some(plan),
        host: Some(host),
        columns,
        ..Evidence::default()
    });
    let part = in_flight(main.machine)
        .filter(|part| !part.is_nan())
        .map_or(0.0, |part| part.min(1.0));
    for advice in &mut advice {
        advice.gain *= part;
        let of_run = format!(
            " {what} are in flight for {:.1} % of the run: faster ones save at most that.",
            part * 100.0
        );
        advice.finding.push_str(&of_run);
    }
    advice
}

/// Returns the total time of all requests of a column, in ns.
pub(super) fn total_ns(column: &LayerColumn) -> f64 {
    column.traced.mean_ns * column.matched.joined as f64
}

/// For how many ticks at least one of these lasts, each given by its begin and end.
pub(super) fn in_flight(spans: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut spans: Vec<(u64, u64)> = spans.collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    sum
}

/// For how long of a run everything was seen, from the guest's first event until a buffer became full, seconds.
pub(super) fn observed_s(wall_s: f64, read: &TrialData) -> f64 {
    let full = read
        .losses
        .iter()
        .filter(|loss| loss.to == u64::MAX)
        .map(|loss| loss.from)
        .min();
    let seen = full
        .zip(read.first)
        .map(|(full, first)| full.saturating_sub(first) as f64 / read.mhz / 1e6);
    seen.map_or(wall_s, |seen| seen.min(wall_s))
}

/// The sums of one traced run.
pub(super) fn of_run(trial: &JoinedTrial) -> ColumnSums {
    let mut sums = ColumnSums::default();
    sums.add(0, trial);
    sums.traced_medians = RoundMedians::of(0, sums.total.latency());
    sums
}

#[cfg(test)]
#[path = "traced_runs_tests.rs"]
mod tests;
