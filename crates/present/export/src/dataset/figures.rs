//! The table `figures`: every measure of every trial that was not observed.

use crate::Run;
use crate::table::{Cell, Column, Rows, maybe, text, words};
use jiff::Timestamp;
use vmtax_model::{Better, Metric, Probes, Unit};
use vmtax_recording::Recording;

/// Name, unit and direction of a figure.
#[derive(Clone)]
pub struct FigureName {
    pub metric: String,
    pub unit: Unit,
    pub better: Option<Better>,
}

impl FigureName {
    pub fn of_metric(metric: Metric) -> FigureName {
        FigureName {
            metric: metric.id().to_owned(),
            unit: metric.unit(),
            better: Some(metric.better()),
        }
    }

    /// The name of a figure that a command printed: what it is of, if that is known, and its name.
    pub fn of_printed(of: &str, name: &str, unit: Unit, better: Option<Better>) -> FigureName {
        let metric = if of.is_empty() {
            name.to_owned()
        } else {
            format!("{of}: {name}")
        };
        FigureName {
            metric,
            unit,
            better,
        }
    }
}

fn columns() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("plan"),
        text("study"),
        text("workload"),
        text("settings"),
        text("metric"),
        text("unit"),
        ("better", Column::MaybeText(vec![])),
        text("machine"),
        text("variant"),
        ("size", Column::Maybe(vec![])),
        ("round", Column::Int(vec![])),
        ("trial", Column::Int(vec![])),
        ("started", Column::MaybeTime(vec![])),
        ("value", Column::Float(vec![])),
    ]
}

pub fn rows(recording: &Recording, run: &Run) -> Rows {
    let plan = &recording.plan;
    let mut rows = Rows::new(columns());
    // The probes are in the figures of observed trials, and those of the rounds after the plan's are observed, too.
    let plain = recording
        .trials
        .iter()
        .filter(|t| t.probes == Probes::None && t.round < plan.rounds);
    for trial in plain {
        let Some(result) = trial.result() else {
            continue;
        };
        let measures = result.measures.iter();
        let measures = measures.map(|m| (FigureName::of_metric(m.metric), m.value));
        let printed = trial
            .execution
            .iter()
            .flat_map(|execution| &execution.printed);
        let printed = printed.map(|p| {
            let name = FigureName::of_printed(&p.of, &p.name, p.unit, p.better);
            (name, p.value)
        });
        let settings = serde_json::to_string(&plan.settings_of(trial)).unwrap_or_default();
        let started = trial.started.parse().ok().map(Timestamp::as_microsecond);
        let all = measures.chain(printed);
        for (figure, value) in all.filter(|(_, value)| value.is_finite()) {
            rows.push(vec![
                words(&run.id),
                words(&plan.name),
                words(plan.study.name()),
                words(trial.workload.name.as_str()),
                words(&settings),
                words(&figure.metric),
                words(figure.unit.symbol()),
                maybe(figure.better.map(Into::into)),
                words(trial.machine.as_str()),
                words(&trial.variant),
                Cell::Maybe(trial.step),
                Cell::Int(trial.round),
                Cell::Int(trial.number),
                Cell::MaybeTime(started),
                Cell::Float(value),
            ]);
        }
    }
    rows
}
