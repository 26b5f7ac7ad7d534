//! Two recordings compared: not the same rounds, so the groups as they are. `compare --check` asks whether a metric is worse
//! than its baseline by more than it may be.

use super::figures::{Figures, column};
use super::interim::{LEVEL, deviation};
use super::unpaired::{self, shift, superiority};
use super::{cost, settle, significance, undecided};
use crate::estimate::{exp, median_of, spread};
use crate::trials::add_warnings;
use vmtax_findings::{
    Against, CheckFindings, CheckedRow, CompareFindings, Compared, Comparison, REPORT_SCHEMA,
    Thresholds, Verdict,
};
use vmtax_model::{Column, Metric, Plan, TrialRecord, Warning, WorkloadSpec};

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
            findings.against.push(Against {
                variant: format!("{}{place}", side.name),
                rows: both(base, side, column).filter_map(row).collect(),
            });
        }
        add_warnings(
            &mut findings.warnings,
            base.trials.iter().chain(side.trials),
        );
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
fn place((machine, variant): Column<'_>) -> String {
    if variant.is_empty() {
        machine.to_string()
    } else {
        format!("{machine}, {variant}")
    }
}

/// The columns that both have.
fn shared<'a>(base: &Side<'a>, other: &Side<'a>) -> Vec<Column<'a>> {
    let (mut columns, others) = (base.plan.columns(), other.plan.columns());
    columns.retain(|column| others.contains(column));
    columns
}

/// The values of a metric on both sides in one column, in the order of rounds.
struct Groups {
    metric: Metric,
    base: Vec<f64>,
    other: Vec<f64>,
}

impl Groups {
    /// Returns the logarithms of the costs on both sides; `None` where one is undefined.
    fn costs(&self) -> Option<[Vec<f64>; 2]> {
        let log = |value: &f64| cost(self.metric, *value);
        let costs = [&self.base, &self.other].map(|all| all.iter().map(log).collect::<Vec<f64>>());
        costs
            .iter()
            .flatten()
            .all(|v| v.is_finite())
            .then_some(costs)
    }
}

/// Every metric that both sides have in a column; only where both ran the same.
fn both<'a>(base: &Side<'a>, other: &Side<'a>, column: Column<'a>) -> impl Iterator<Item = Groups> {
    let (one, two) = (
        Figures::new(base.trials, &[column]),
        Figures::new(other.trials, &[column]),
    );
    let metrics: Vec<Metric> = one
        .metrics()
        .filter(|metric| two.metrics().any(|other| other == *metric))
        .filter(|metric| ran(base, column, *metric) == ran(other, column, *metric))
        .collect();
    metrics.into_iter().map(move |metric| Groups {
        metric,
        base: one.values(column, metric).into_values().collect(),
        other: two.values(column, metric).into_values().collect(),
    })
}

/// The workload behind a metric, with every option as it took effect.
fn ran<'a>(side: &Side<'a>, of: Column<'a>, metric: Metric) -> Option<&'a WorkloadSpec> {
    let mut of_metric = side
        .trials
        .iter()
        .filter(|t| column(t) == of && t.workload.name == metric.workload());
    of_metric.find_map(|t| Some(&t.result()?.workload))
}

/// Compares a metric's groups; `None` where a cost is undefined.
fn row(groups: Groups) -> Option<Compared> {
    let [one, two] = groups.costs()?;
    let Groups {
        metric,
        base,
        other,
    } = groups;
    Some(Compared {
        metric,
        comparison: undecided(
            shift(&one, &two, LEVEL).map(exp)?,
            base.len().min(other.len()) as u32,
            unpaired::p(&one, &two),
        ),
        base: spread(base, None)?,
        other: spread(other, None)?,
        p_adjusted: 1.0,
        permutation: significance::of_groups(&one, &two),
        superiority: superiority(&one, &two),
        noise: deviation(&one).hypot(deviation(&two)),
        rounds_needed: None,
    })
}

/// Compares every metric that both recordings have in the same column, by the same workloads' options, with its threshold.
pub fn check(base: &Side<'_>, now: &Side<'_>, thresholds: &Thresholds) -> CheckFindings {
    let rows = shared(base, now).into_iter().flat_map(|column| {
        both(base, now, column).filter_map(move |groups| checked(column, &groups, thresholds))
    });
    let mut warnings = vec![Warning::OtherTimes];
    add_warnings(&mut warnings, now.trials);
    CheckFindings {
        schema: REPORT_SCHEMA,
        baseline: base.name.to_owned(),
        now: now.name.to_owned(),
        confidence: thresholds.confidence,
        rows: rows.collect(),
        warnings,
    }
}

/// Compares a metric with its baseline; `None` where a cost is undefined.
fn checked(column: Column<'_>, groups: &Groups, thresholds: &Thresholds) -> Option<CheckedRow> {
    // One-sided: only "worse" counts, so each tail gets the whole level.
    let miss = 2.0 * (1.0 - thresholds.confidence);
    let [one, two] = groups.costs()?;
    let ratio = shift(&one, &two, miss).map(exp)?;
    let threshold = thresholds.for_metric(groups.metric);
    // Faster counts as not slower.
    let verdict = match Verdict::by_interval(&ratio, 1.0 + threshold) {
        Verdict::Faster | Verdict::Equivalent => Verdict::Inconclusive,
        other => other,
    };
    let rounds = (one.len() as u32, two.len() as u32);
    let comparison = Comparison {
        ratio,
        difference: None,
        rounds: rounds.0.min(rounds.1),
        p: None,
        verdict,
    };
    Some(CheckedRow {
        place: place(column),
        metric: groups.metric,
        then: median_of(groups.base.iter().copied()),
        now: median_of(groups.other.iter().copied()),
        comparison,
        rounds,
        threshold,
    })
}
