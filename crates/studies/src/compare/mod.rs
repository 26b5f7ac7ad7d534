//! Comparison of VM configurations: the fastest of several, or a metric that became slower; and of recordings.

mod options;
mod sides;

pub use options::{CompareOptions, Compared};

use crate::analysis::{Analysis, StudyError};
use crate::history::History;
use crate::layers;
use crate::reproduce::{Check, Evidence, Tested};
use std::path::Path;
use vmtax_analysis::{Side, from_the_past};
use vmtax_findings::{
    CheckFindings, ClaimUnit, CompareFindings, LayerFindings, PastFigure, SeriesKey, Thresholds,
};
use vmtax_model::{Compare, HostFacts, Metric, Plan, Probes};
use vmtax_recording::{Recording, RecordingsFolder};
use vmtax_report::{Report, ReportError};

pub(crate) struct Comparison<'a> {
    recording: &'a Recording,
    findings: CompareFindings,
    /// Requests by layer, where they were observed.
    layers: Option<LayerFindings>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(recording: &'a Recording) -> Result<Comparison<'a>, StudyError> {
        let findings = vmtax_analysis::compare(&recording.plan, &recording.trials);
        let observed = recording.plan.probes.contains(&Probes::Layers);
        let layers = observed.then(|| layers::findings(recording)).transpose()?;
        Ok(Comparison {
            recording,
            findings,
            layers,
        })
    }
}

impl Analysis for Comparison<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::compare::report(Some(self.recording), &self.findings, self.layers.as_ref())
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::compare::json(self.recording, &self.findings, self.layers.as_ref())
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn layers_report(&self) -> Option<Report<'_>> {
        self.layers
            .as_ref()
            .map(|layers| vmtax_report::layers::report(self.recording, layers))
    }
}

impl Evidence for CompareFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let Check::Side {
            metric,
            variant,
            at_least,
            at_most,
        } = check
        else {
            return None;
        };
        let side = self.against.iter().find(|a| a.variant == *variant);
        let row = side.and_then(|a| a.rows.iter().find(|r| r.metric == *metric));
        Some(row.map_or_else(
            || Tested::no_value(variant),
            |row| Tested::within(row.comparison.ratio, ClaimUnit::Ratio, *at_least, *at_most),
        ))
    }
}

/// The first recording compared with each other one. `min_effect` is the smallest difference that matters, as a share.
///
/// # Errors
/// [`StudyError::NothingInCommon`].
pub fn compare_recordings(
    recordings: &[Recording],
    min_effect: f64,
) -> Result<CompareFindings, StudyError> {
    let names: Vec<String> = recordings.iter().map(|r| name(&r.folder)).collect();
    let sides = recordings.iter().zip(&names);
    let sides = sides.map(|(recording, name)| side(recording, name));
    let findings = vmtax_analysis::compare_recordings(&sides.collect::<Vec<_>>(), min_effect);
    if findings.against.iter().all(|a| a.rows.is_empty()) {
        return Err(nothing_in_common(&names, recordings.iter()));
    }
    Ok(findings)
}

/// Compares the metrics of `now` with the baseline's, and lists those that are worse by more than their threshold.
///
/// # Errors
/// [`StudyError::NothingInCommon`].
pub fn check(
    baseline: &Recording,
    now: &Recording,
    thresholds: &Thresholds,
) -> Result<CheckFindings, StudyError> {
    let names = [name(&baseline.folder), name(&now.folder)];
    let findings = vmtax_analysis::check(
        &side(baseline, &names[0]),
        &side(now, &names[1]),
        thresholds,
    );
    if findings.rows.is_empty() {
        return Err(nothing_in_common(&names, [baseline, now]));
    }
    Ok(findings)
}

fn nothing_in_common<'r>(
    names: &[String],
    recordings: impl IntoIterator<Item = &'r Recording>,
) -> StudyError {
    let damaged = recordings.into_iter().flat_map(|r| r.damaged.clone());
    StudyError::NothingInCommon {
        names: names.join(" and "),
        damaged: damaged.collect(),
    }
}

fn side<'a>(recording: &'a Recording, name: &'a str) -> Side<'a> {
    Side {
        name,
        plan: &recording.plan,
        trials: &recording.trials,
    }
}

/// A recording by its folder's own name.
fn name(folder: &Path) -> String {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    whole
        .file_name()
        .unwrap_or(whole.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Findings of [`compare_recordings`].
pub(crate) struct Recordings(pub CompareFindings);

impl Analysis for Recordings {
    fn report(&self) -> Report<'_> {
        vmtax_report::compare::report(None, &self.0, None)
    }

    fn json(&self) -> Result<String, ReportError> {
        Ok(vmtax_report::findings_json(&self.0)? + "\n")
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.0
    }
}

/// Findings of [`check`].
pub(crate) struct Baseline(pub CheckFindings);

impl Analysis for Baseline {
    fn report(&self) -> Report<'_> {
        vmtax_report::check::report(&self.0)
    }

    fn json(&self) -> Result<String, ReportError> {
        Ok(vmtax_report::findings_json(&self.0)? + "\n")
    }

    fn evidence(&self) -> &dyn Evidence {
        self
    }

    fn is_contradicted(&self) -> bool {
        self.0.failed()
    }
}

impl Evidence for Baseline {}

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
