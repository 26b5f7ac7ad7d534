//! The table `figures`: every measure of every trial that was not observed.

use crate::run::Run;
use crate::table::{Cell, Column, Rows, maybe, text, words};
use jiff::Timestamp;
use vmtax_model::{Better, Probes, Unit};
use vmtax_recording::Recording;

/// Name, unit, direction and value of a measure.
type Measured = (String, Unit, Option<Better>, f64);

pub fn rows(recording: &Recording, run: &Run) -> Rows {
    let plan = &recording.plan;
    let mut rows = Rows::new(vec![
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
    ]);
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
        let measures = measures.map(|m| {
            (
                m.metric.id().to_owned(),
                m.metric.unit(),
                Some(m.metric.better()),
                m.value,
            )
        });
        let printed = trial
            .execution
            .iter()
            .flat_map(|execution| &execution.printed);
        let printed = printed.map(|p| (printed_name(&p.of, &p.name), p.unit, p.better, p.value));
        let settings = serde_json::to_string(&plan.settings_of(trial)).unwrap_or_default();
        let started = trial
            .started
            .parse::<Timestamp>()
            .ok()
            .map(Timestamp::as_microsecond);
        let finite = |(_, _, _, value): &Measured| value.is_finite();
        for (metric, unit, direction, value) in measures.chain(printed).filter(finite) {
            rows.push(vec![
                words(&run.id),
                words(&plan.name),
                words(plan.study.name()),
                words(trial.workload.name.as_str()),
                words(&settings),
                words(&metric),
                words(unit.symbol()),
                maybe(direction.map(Into::into)),
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

/// The metric of a figure that a command printed: what it is of, if that is known, and its name.
pub fn printed_name(of: &str, name: &str) -> String {
    if of.is_empty() {
        name.to_owned()
    } else {
        format!("{of}: {name}")
    }
}
