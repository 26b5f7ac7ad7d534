//! `compare --check`: is a metric worse than its baseline by more than it may be?

use super::recordings::{Side, both, costs, place, ratio, shared};
use crate::warnings::add;
use vmtax_model::{CheckFindings, Checked, CheckedRow, SCHEMA, Thresholds, Warning};

/// Every metric that both recordings have in the same column, by the same workloads' options.
pub fn check(base: &Side<'_>, now: &Side<'_>, thresholds: &Thresholds) -> CheckFindings {
    // Worse on one side alone counts, so each side may miss as often as asked for.
    let miss = 2.0 * (1.0 - thresholds.confidence);
    let mut rows = Vec::new();
    for column in shared(base, now) {
        for (metric, one, two) in both(base, now, column) {
            let costs = costs(metric, &one, &two);
            let Some(ratio) = costs.and_then(|(one, two)| ratio(&one, &two, miss)) else { continue };
            let threshold = thresholds.of(metric);
            let checked = match ratio.interval {
                None => Checked::TooFewRounds,
                Some(i) if i.low > 1.0 + threshold => Checked::Worse,
                Some(_) => Checked::Passed,
            };
            let rounds = (one.len() as u32, two.len() as u32);
            rows.push(CheckedRow { place: place(column), metric, ratio, rounds, threshold, checked });
        }
    }
    let mut warnings = vec![Warning::OtherTimes];
    now.trials.iter().flat_map(|t| &t.warnings).for_each(|warning| add(&mut warnings, warning));
    CheckFindings {
        schema: SCHEMA,
        baseline: base.name.to_owned(),
        now: now.name.to_owned(),
        confidence: thresholds.confidence,
        rows,
        warnings,
    }
}
