//! Common code for single traced runs, of a command or of a running VM, whichever device's requests are followed.

use super::column_data::ColumnData;
use super::distribution::Distribution;
use super::round_medians::RoundMedians;
use crate::events::trace_reader::Loss;
use crate::join::joined::Joined;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::open::{TrialData, read_all};
use std::collections::BTreeMap;
use std::path::PathBuf;
use vmtax_analysis::add_warning;
use vmtax_model::{
    Advice, HostFacts, LayerColumn, LayerFindings, Machine, Metric, Plan, Probes, REPORT_SCHEMA,
    RequestKind, TrialRecord, Warning,
};
use vmtax_rules::Evidence;

/// Returns the results of each guest from the traced runs with these probes, the columns of all guests, and warnings
/// with the reason for each run without a result.
pub(super) fn of_guests<'a, Use>(
    trials: impl Iterator<Item = (&'a TrialRecord, PathBuf)>,
    probes: Probes,
    of_guest: impl Fn(Machine, f64, TrialData) -> (Use, Vec<LayerColumn>),
) -> (Vec<Use>, Vec<LayerColumn>, Vec<Warning>) {
    let (mut uses, mut columns, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (record, folder) in trials.filter(|(record, _)| record.probes == probes) {
        record
            .warnings
            .iter()
            .for_each(|w| add_warning(&mut warnings, w));
        let read = match record.failure() {
            Some(why) => Err(why.to_owned()),
            None => read_all(&folder, record).map_err(|error| error.to_string()),
        };
        match read {
            Ok(read) => {
                let wall_s = record
                    .result()
                    .and_then(|r| r.value(Metric::ExecWall))
                    .unwrap_or(0.0);
                let (of_device, more) = of_guest(record.machine, wall_s, read);
                uses.push(of_device);
                columns.extend(more);
            }
            Err(reason) => {
                let machine = record.machine;
                add_warning(
                    &mut warnings,
                    &Warning::TrialsMissing {
                        machine,
                        missing: 1,
                        planned: 1,
                        reason,
                    },
                );
            }
        }
    }
    (uses, columns, warnings)
}

/// Columns of one traced run each.
pub(super) fn of_columns(
    columns: Vec<LayerColumn>,
    warnings: Vec<Warning>,
    advice: Vec<Advice>,
    method: &str,
) -> LayerFindings {
    LayerFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: 1,
        host: None,
        advice,
        columns,
        differences: Vec::new(),
        method: method.to_owned(),
        warnings,
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
pub(super) fn observed_s(wall_s: f64, losses: &[Loss], first: Option<u64>, mhz: f64) -> f64 {
    let full = losses
        .iter()
        .filter(|loss| loss.to == u64::MAX)
        .map(|loss| loss.from)
        .min();
    let seen = full
        .zip(first)
        .map(|(full, first)| full.saturating_sub(first) as f64 / mhz / 1e6);
    seen.map_or(wall_s, |seen| seen.min(wall_s))
}

/// The sums of one traced run, whose requests took so long, nanoseconds, and the distribution of these times.
pub(super) fn of_run(
    trial: &JoinedTrial,
    times_ns: impl Iterator<Item = f64>,
) -> (ColumnData, Distribution) {
    let (mut data, mut times) = <(ColumnData, Distribution)>::default();
    data.sums.add(0, trial);
    times_ns.for_each(|ns| times.add(ns));
    data.traced_medians = RoundMedians::of(0, times.latency());
    (data, times)
}

/// Joined requests by kind.
pub(super) fn by_kind(joined: Joined) -> BTreeMap<RequestKind, Joined> {
    let Joined {
        requests,
        rejected,
        threads,
        may_lack,
        ..
    } = joined;
    let new = || Joined {
        threads: threads.clone(),
        may_lack,
        ..Joined::default()
    };
    let mut kinds: BTreeMap<RequestKind, Joined> = BTreeMap::new();
    for request in requests {
        kinds
            .entry(request.kind)
            .or_insert_with(new)
            .requests
            .push(request);
    }
    for rejected in rejected {
        kinds
            .entry(rejected.kind)
            .or_insert_with(new)
            .rejected
            .push(rejected);
    }
    kinds
}

#[cfg(test)]
#[path = "traced_runs_tests.rs"]
mod tests;
