//! `compare --check`: is a metric worse than its baseline by more than it may be?

use super::recordings::{Side, both, costs, place, ratio, shared};
use crate::overhead::spread;
use crate::warnings::add;
use vmtax_model::{
    CheckFindings, CheckedRow, Comparison, REPORT_SCHEMA, Thresholds, Verdict, Warning,
};

/// Every metric that both recordings have in the same column, by the same workloads' options.
pub fn check(base: &Side<'_>, now: &Side<'_>, thresholds: &Thresholds) -> CheckFindings {
    // One-sided: only "worse" counts, so each tail gets the whole level.
    let miss = 2.0 * (1.0 - thresholds.confidence);
    let mut rows = Vec::new();
    for column in shared(base, now) {
        for (metric, one, two) in both(base, now, column) {
            let costs = costs(metric, &one, &two);
            let Some(ratio) = costs.and_then(|(one, two)| ratio(&one, &two, miss)) else {
                continue;
            };
            let threshold = thresholds.for_metric(metric);
            // Faster counts as not slower.
            let verdict = match Verdict::of(&ratio, 1.0 + threshold) {
                Verdict::Faster => Verdict::Inconclusive,
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
            let (Some(then), Some(now)) = (spread(one, None), spread(two, None)) else {
                continue;
            };
            let (then, now) = (then.median, now.median);
            rows.push(CheckedRow {
                place: place(column),
                metric,
                then,
                now,
                comparison,
                rounds,
                threshold,
            });
        }
    }
    let mut warnings = vec![Warning::OtherTimes];
    now.trials
        .iter()
        .flat_map(|t| &t.warnings)
        .for_each(|warning| add(&mut warnings, warning));
    CheckFindings {
        schema: REPORT_SCHEMA,
        baseline: base.name.to_owned(),
        now: now.name.to_owned(),
        confidence: thresholds.confidence,
        rows,
        warnings,
    }
}
