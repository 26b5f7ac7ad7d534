//! Comparisons: did it help? `docs/compare.md` says how they are made, `docs/statistics.md` what they promise.

mod figures;
mod interim;
mod significance;
#[cfg(test)]
mod simulated;
mod unpaired;

pub(crate) use interim::InterimAnalyses;
pub use interim::{MAX_ROUNDS, MIN_ROUNDS, from_the_past};
pub(crate) use significance::{decide, holm};
pub(crate) use unpaired::{normal, shift};

use crate::estimate::{exp, median_of, spread};
use crate::trials::add_warnings;
use figures::{Figures, column, drift, name};
use interim::{LEVEL, deviation};
use std::collections::BTreeMap;
use vmtax_findings::{
    Against, CheckFindings, CheckedRow, CompareFindings, Compared, Comparison, Estimate,
    REPORT_SCHEMA, Thresholds, Verdict,
};
use vmtax_model::{Better, Column, Compare, Metric, Plan, TrialRecord, Warning, WorkloadSpec};

/// Returns true if a comparison is analyzed after `rounds` whole rounds, to decide whether more are needed.
pub fn is_look(plan: &Plan, rounds: u32) -> bool {
    InterimAnalyses::new(plan.rounds, 0).at(rounds)
}

/// Compares the first column of the plan with each other one, within the same rounds, from the trials so far.
pub fn compare(plan: &Plan, trials: &[TrialRecord]) -> CompareFindings {
    let wanted = plan.comparison().unwrap_or(Compare {
        min_effect: 0.02,
        budget_s: None,
        one_boot: false,
    });
    let columns = plan.columns();
    let Some((&baseline, others)) = columns.split_first() else {
        return CompareFindings::new("", wanted.min_effect);
    };
    let figures = Figures::new(trials, &columns);
    let rounds = figures.rounds(plan);
    let analyses = InterimAnalyses::new(plan.rounds, rounds);
    let rows = |side| {
        let of_metric = |metric| {
            let (base, other) = (
                figures.values(baseline, metric),
                figures.values(side, metric),
            );
            let min_effect = wanted.min_effect;
            row(metric, &base, &other, &analyses, plan.rounds, min_effect)
        };
        let metrics = figures.metrics().filter(|metric| decides(plan, *metric));
        metrics.filter_map(of_metric).collect()
    };
    let against = others.iter().map(|&side| Against {
        variant: name(side),
        rows: rows(side),
    });
    let mut against: Vec<Against> = against.collect();
    settle(&mut against, wanted.min_effect);
    against
        .iter_mut()
        .flat_map(|against| &mut against.rows)
        .for_each(estimate_correction);
    CompareFindings {
        schema: REPORT_SCHEMA,
        baseline: name(baseline),
        min_effect: wanted.min_effect,
        rounds,
        rounds_planned: plan.rounds,
        round_s: figures.round_s(),
        warming_up: figures.warming_up(),
        one_boot: wanted.one_boot,
        method: method(&against, wanted),
        warnings: warnings(plan, trials, &columns),
        against,
    }
}

/// Returns true if a metric is compared: of a command only its wall-clock and CPU time, since other metrics would
/// prevent a decision.
fn decides(plan: &Plan, metric: Metric) -> bool {
    plan.command().is_none()
        || [Metric::ExecWall, Metric::ExecUser, Metric::ExecSystem].contains(&metric)
}

/// Corrects for the number of metrics, and says what may be said.
fn settle(against: &mut [Against], min_effect: f64) {
    let mut rows: Vec<&mut Compared> = against.iter_mut().flat_map(|a| &mut a.rows).collect();
    let all = rows.iter().map(|row| row.comparison.p.unwrap_or(1.0));
    let adjusted = holm(&all.collect::<Vec<_>>());
    for (row, p) in rows.iter_mut().zip(adjusted) {
        row.p_adjusted = p;
        row.comparison.verdict = decide(&row.comparison.ratio, p, min_effect);
        if row.comparison.verdict.is_decided() {
            row.rounds_needed = None;
        }
    }
}

/// The rounds that decide a metric which only the correction for the number of metrics leaves open.
fn estimate_correction(row: &mut Compared) {
    if let (true, Some(p)) = (row.is_left_open_by_correction(), row.comparison.p) {
        let correction = interim::rounds_for_correction(
            row.rounds_ahead(),
            row.comparison.rounds,
            row.p_adjusted / p,
        );
        row.rounds_needed = [row.rounds_needed, correction].into_iter().flatten().min();
    }
}

/// One metric, paired by rounds; `None` where no round has both, or a ratio is undefined: to drop just such a round
/// would bias the ratio towards the variant that came to a standstill.
fn row(
    metric: Metric,
    base: &BTreeMap<u32, f64>,
    other: &BTreeMap<u32, f64>,
    analyses: &InterimAnalyses,
    most: u32,
    min_effect: f64,
) -> Option<Compared> {
    let pairs: Vec<(f64, f64)> = base
        .iter()
        .filter_map(|(round, b)| Some((*b, *other.get(round)?)))
        .collect();
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(b, o)| cost(metric, *o) - cost(metric, *b))
        .collect();
    if logs.is_empty() || logs.iter().any(|v| !v.is_finite()) {
        return None;
    }
    Some(Compared {
        metric,
        base: spread(pairs.iter().map(|(b, _)| *b).collect(), None)?,
        other: spread(pairs.iter().map(|(_, o)| *o).collect(), None)?,
        comparison: undecided(analyses.ratio(&logs), logs.len() as u32, analyses.p(&logs)),
        p_adjusted: 1.0,
        permutation: significance::of_pairs(&logs),
        superiority: unpaired::superiority(&[0.0], &logs),
        noise: interim::deviation(&logs),
        rounds_needed: interim::rounds_needed(&logs, min_effect.ln_1p(), most),
    })
}

/// A comparison that [`settle`] will decide.
fn undecided(ratio: Estimate, rounds: u32, p: f64) -> Comparison {
    Comparison {
        ratio,
        difference: None,
        rounds,
        p: Some(p),
        verdict: Verdict::TooFewRounds,
    }
}

/// The logarithm of a cost: of a rate what one of it costs.
pub(crate) fn cost(metric: Metric, value: f64) -> f64 {
    match metric.better() {
        Better::Lower => value.ln(),
        Better::Higher => -value.ln(),
    }
}

fn warnings(plan: &Plan, trials: &[TrialRecord], columns: &[Column<'_>]) -> Vec<Warning> {
    let mut all = figures::missing(plan, trials, columns);
    all.extend(figures::also_differ(plan, trials, columns));
    all.extend(drift(trials).map(|percent| Warning::HostDrift { percent }));
    add_warnings(&mut all, trials);
    all
}

fn method(against: &[Against], wanted: Compare) -> String {
    let rows = || against.iter().flat_map(|a| &a.rows);
    let coverage = rows().find_map(|r| Some(r.comparison.ratio.interval?.coverage));
    let held = coverage.map_or(String::new(), |c| {
        format!(
            " The ends of its 95 % CI are two of the rounds' sorted ratios (order statistics); its coverage, with the interim analysis after each round \
             taken into account, is at least {:.1} %, distribution-free.",
            (c * 1000.0).floor() / 10.0
        )
    });
    let boots = match wanted.one_boot {
        true => {
            "each round boots one guest per machine, in which after a warm-up the variants take turns in a random order and then in \
             its reverse (A B B A); a variant's value in a round is the geometric mean of its two turns."
        }
        false => "each round boots fresh guests in random order.",
    };
    format!(
        "Each slowdown is the median over rounds of the variant's figure divided by the baseline's within the same \
         round (paired; for a rate, the other way round); {boots}{held} The probability of any false positive, over all {} comparison{} \
         and the interim analyses after each round, is at most 5 % (sequential sign test with Holm correction). Variants are equivalent where the whole interval \
         lies within ±{:.1} %.",
        rows().count(),
        if rows().count() == 1 { "" } else { "s" },
        wanted.min_effect * 100.0
    )
}

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
                rows: both(base, side, column).filter_map(unpaired_row).collect(),
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
fn unpaired_row(groups: Groups) -> Option<Compared> {
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
        superiority: unpaired::superiority(&one, &two),
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
