//! The rounds that a comparison takes, estimated from earlier runs.

use crate::history::History;
use std::path::Path;
use vmtax_analysis::from_the_past;
use vmtax_model::{Compare, Metric, PastFigure, Plan, SeriesKey};
use vmtax_recording::RecordingsFolder;

/// A sentence about the noisiest metric that the history of the recordings knows under the same options; `None`
/// where it knows none, or cannot be read, and where variants share a boot, as what it knows differs from boot to boot: then
/// it is estimated from the first rounds.
pub fn forecast(plan: &Plan, runs: &Path) -> Option<String> {
    let Compare {
        min_effect,
        one_boot: false,
        ..
    } = plan.comparison()?
    else {
        return None;
    };
    let machine = plan.columns().first()?.0;
    let history = History::open(&RecordingsFolder::open(runs).ok()?).ok()?;
    let mut known: Vec<(Metric, f64, Option<u32>)> = Vec::new();
    for workload in &plan.workloads_of(0) {
        let options = vmtax_workload::check(workload).ok()?.spec().options;
        let same = |key: &SeriesKey| {
            options
                .iter()
                .all(|(name, value)| key.settings.get(name) == Some(value))
        };
        for metric in workload.name.metrics() {
            let figures = history.figures(metric, Some(machine));
            let of_past = |figure: &PastFigure| {
                from_the_past(&figure.value, figure.n, min_effect.ln_1p(), plan.rounds)
            };
            let last = figures
                .iter()
                .filter(|(key, _)| same(key))
                .max_by_key(|(_, figure)| figure.run.started.clone());
            known.extend(
                last.and_then(|(_, figure)| of_past(figure))
                    .map(|(noise, rounds)| (metric, noise, rounds)),
            );
        }
    }
    let (metric, noise, rounds) = known.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let noise = noise * 100.0;
    let percent = min_effect * 100.0;
    Some(match rounds {
        Some(rounds) => format!(
            "earlier runs here had a noise of up to ±{noise:.1} % a round ({metric}): {percent} % takes some {rounds} rounds"
        ),
        None => format!(
            "earlier runs here had a noise of up to ±{noise:.1} % a round ({metric}): {percent} % cannot be resolved"
        ),
    })
}
