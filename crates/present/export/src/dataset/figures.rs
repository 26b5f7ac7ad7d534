//! The tables `figures`: every measure of every trial that was not observed, and `comparisons`: what runs of `run`, `exec` and
//! `compare` found, each figure beside its baseline.

use crate::Run;
use crate::table::{Cell, Column, Rows, maybe, text, words};
use jiff::Timestamp;
use vmtax_findings::{Comparison, MachineColumn};
use vmtax_model::{Better, Machine, Metric, Probes, Study, Unit};
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

/// Figures that are compared.
struct Compared<'a> {
    figure: FigureName,
    machine: Machine,
    variant: &'a str,
    /// A machine, or a variant.
    baseline: &'a str,
    /// Medians, in the unit.
    baseline_value: Option<f64>,
    value: Option<f64>,
}

fn comparison_columns() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("study"),
        text("metric"),
        text("unit"),
        ("better", Column::MaybeText(vec![])),
        text("machine"),
        text("variant"),
        text("baseline"),
        ("baseline_value", Column::MaybeFloat(vec![])),
        ("value", Column::MaybeFloat(vec![])),
        ("rounds", Column::Int(vec![])),
        ("ratio", Column::Float(vec![])),
        ("low", Column::MaybeFloat(vec![])),
        ("high", Column::MaybeFloat(vec![])),
        ("coverage", Column::MaybeFloat(vec![])),
        ("p", Column::MaybeFloat(vec![])),
        text("verdict"),
    ]
}

pub fn comparison_rows(recording: &Recording, run: &Run) -> Rows {
    let mut table = Rows::new(comparison_columns());
    let study = recording.plan.study.name();
    let mut push = |of: Compared<'_>, comparison: &Comparison| {
        let interval = comparison.ratio.interval;
        table.push(vec![
            words(&run.id),
            words(study),
            words(&of.figure.metric),
            words(of.figure.unit.symbol()),
            maybe(of.figure.better.map(Into::into)),
            words(of.machine.as_str()),
            words(of.variant),
            words(of.baseline),
            Cell::MaybeFloat(of.baseline_value),
            Cell::MaybeFloat(of.value),
            Cell::Int(comparison.rounds),
            Cell::Float(comparison.ratio.median),
            Cell::MaybeFloat(interval.map(|i| i.low)),
            Cell::MaybeFloat(interval.map(|i| i.high)),
            Cell::MaybeFloat(interval.map(|i| i.coverage)),
            Cell::MaybeFloat(comparison.p),
            words(comparison.verdict.into()),
        ]);
    };
    match &recording.plan.study {
        Study::Overhead => overheads(recording, &mut push),
        Study::Exec(_) => commands(recording, &mut push),
        Study::Compare(_) => variants(recording, &mut push),
        _ => {}
    }
    table
}

/// Each guest beside native.
fn overheads(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials);
    for row in &findings.rows {
        beside_native(FigureName::of_metric(row.metric), &row.machines, push);
    }
}

/// Each guest beside native for a command, with the figures that it printed.
fn commands(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
    for row in &findings.overheads.rows {
        beside_native(FigureName::of_metric(row.metric), &row.machines, push);
    }
    for row in &findings.printed {
        let figure = FigureName::of_printed(&row.of, &row.name, row.unit, row.better);
        beside_native(figure, &row.machines, push);
    }
}

fn beside_native(
    figure: FigureName,
    machines: &[MachineColumn],
    push: &mut impl FnMut(Compared<'_>, &Comparison),
) {
    let median = |column: &MachineColumn| column.spread.as_ref().map(|spread| spread.median);
    let native = machines
        .iter()
        .find(|column| column.machine == Machine::NATIVE)
        .and_then(median);
    for column in machines {
        let Some(overhead) = &column.overhead else {
            continue;
        };
        let of = Compared {
            figure: figure.clone(),
            machine: column.machine,
            variant: "",
            baseline: Machine::NATIVE.as_str(),
            baseline_value: native,
            value: median(column),
        };
        push(of, overhead);
    }
}

/// Each variant beside the first.
fn variants(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::compare(&recording.plan, &recording.trials);
    let columns = recording.plan.columns();
    // The first is the baseline.
    for ((machine, variant), against) in columns.into_iter().skip(1).zip(&findings.against) {
        for row in &against.rows {
            let of = Compared {
                figure: FigureName::of_metric(row.metric),
                machine,
                variant,
                baseline: &findings.baseline,
                baseline_value: Some(row.base.median),
                value: Some(row.other.median),
            };
            push(of, &row.comparison);
        }
    }
}
