//! Two recordings compared: not the same rounds, so the groups as they are.

use super::figures::{Figures, column};
use super::unpaired::{shift, superiority};
use super::{cost, exp, needed, permutation, settle, undecided};
use crate::overhead::spread;
use crate::warnings::add;
use std::collections::BTreeSet;
use vmtax_model::{
    Against, Column, CompareFindings, Compared, Estimate, Metric, Plan, TrialRecord, Warning,
    WorkloadSpec,
};

/// A recording as a side.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Name of the side.
    pub name: &'a str,
    /// Plan of the recording.
    pub plan: &'a Plan,
    /// Trials of the recording.
    pub trials: &'a [TrialRecord],
}

/// The first recording against each other one: what both measured in the same column, by the same workloads' options.
pub fn compare_recordings(sides: &[Side<'_>], min_effect: f64) -> CompareFindings {
    let Some((base, others)) = sides.split_first() else {
        return CompareFindings::new("", min_effect);
    };
    let mut findings = CompareFindings::new(base.name, min_effect);
    findings.warnings.push(Warning::OtherTimes);
    for side in others {
        let columns = shared(base, side);
        for &column in &columns {
            let place = if columns.len() > 1 {
                format!(" on {}", place(column))
            } else {
                String::new()
            };
            let rows = rows(base, side, column);
            findings.against.push(Against {
                variant: format!("{}{place}", side.name),
                rows,
            });
        }
        for warning in [base, side]
            .iter()
            .flat_map(|s| s.trials)
            .flat_map(|t| &t.warnings)
        {
            add(&mut findings.warnings, warning);
        }
    }
    settle(&mut findings.against, min_effect);
    findings.rounds = findings
        .against
        .iter()
        .flat_map(|a| &a.rows)
        .map(|r| r.comparison.rounds)
        .max()
        .unwrap_or(0);
    findings.method = format!(
        "Each ratio is Hodges and Lehmann's: the median of all ratios of a round there to a round here, its 95 % interval that \
         of Mann and Whitney's test, exact. It knows nothing of what changed between the recordings besides. A difference \
         is significant where chance alone shows as much in at most 5 % of comparisons of all these metrics (Holm). Recordings \
         are equivalent where the whole interval lies within ±{:.1} %.",
        min_effect * 100.0
    );
    findings
}

/// Returns the text for a column, such as "tcg, aio=native".
pub fn place((machine, variant): Column<'_>) -> String {
    if variant.is_empty() {
        machine.to_string()
    } else {
        format!("{machine}, {variant}")
    }
}

/// The columns that both have.
pub fn shared<'a>(base: &Side<'a>, other: &Side<'a>) -> Vec<Column<'a>> {
    let (mut columns, others) = (base.plan.columns(), other.plan.columns());
    columns.retain(|column| others.contains(column));
    columns
}

/// The logarithms of a metric's costs on both sides; `None` where one is undefined.
pub fn costs(metric: Metric, base: &[f64], other: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
    let costs = |values: &[f64]| {
        values
            .iter()
            .map(|v| cost(metric, *v))
            .collect::<Vec<f64>>()
    };
    let (one, two) = (costs(base), costs(other));
    one.iter()
        .chain(&two)
        .all(|v| v.is_finite())
        .then_some((one, two))
}

/// Returns the ratio of the other's cost to the base's, with an interval that misses with probability `miss`;
/// from [`costs`].
pub fn ratio(base: &[f64], other: &[f64], miss: f64) -> Option<Estimate> {
    let found = shift(base, other, miss)?;
    Some(Estimate {
        median: found.median.exp(),
        interval: found.interval.map(exp),
    })
}

/// The values of a metric on both sides in one column; only where both ran the same. In the order of rounds.
pub fn both<'a>(
    base: &Side<'a>,
    other: &Side<'a>,
    column: Column<'a>,
) -> Vec<(Metric, Vec<f64>, Vec<f64>)> {
    let (one, two) = (
        Figures::new(base.trials, &[column]),
        Figures::new(other.trials, &[column]),
    );
    let metrics: BTreeSet<Metric> = one
        .metrics()
        .filter(|m| two.metrics().any(|other| other == *m))
        .collect();
    let same = |metric: &Metric| ran(base, column, *metric) == ran(other, column, *metric);
    let values =
        |figures: &Figures<'a>, metric| figures.values(column, metric).into_values().collect();
    metrics
        .into_iter()
        .filter(same)
        .map(|metric| (metric, values(&one, metric), values(&two, metric)))
        .collect()
}

/// The workload behind a metric, with every option as it took effect.
fn ran<'a>(side: &Side<'a>, of: Column<'a>, metric: Metric) -> Option<&'a WorkloadSpec> {
    let mut of_metric = side
        .trials
        .iter()
        .filter(|t| column(t) == of && t.workload.name == metric.workload());
    of_metric.find_map(|t| Some(&t.result()?.workload))
}

fn rows<'a>(base: &Side<'a>, other: &Side<'a>, column: Column<'a>) -> Vec<Compared> {
    let row = |(metric, base, other): (Metric, Vec<f64>, Vec<f64>)| {
        let (one, two) = costs(metric, &base, &other)?;
        let permutation = permutation::of_groups(&one, &two);
        Some(Compared {
            metric,
            comparison: undecided(
                ratio(&one, &two, super::interim::LEVEL)?,
                base.len().min(other.len()) as u32,
                super::unpaired::p(&one, &two),
            ),
            base: spread(base, None)?,
            other: spread(other, None)?,
            p_adjusted: 1.0,
            permutation,
            superiority: superiority(&one, &two),
            noise: needed::deviation(&one).hypot(needed::deviation(&two)),
            rounds_needed: None,
        })
    };
    both(base, other, column)
        .into_iter()
        .filter_map(row)
        .collect()
}
