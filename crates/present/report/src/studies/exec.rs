//! `exec`: how a command ended, what it cost on each machine, and where the difference goes.

use super::metric_rows;
use super::{command_layers, overhead};
use crate::ReportError;
use crate::engine::{Block, Cell, Column, Notice, Report, Section, Table, Tile};
use crate::json::json as document;
use crate::number::{counted, difference, percent, range, ratio, value};
use crate::view::{self, origin};
use serde::Serialize;
use vmtax_model::{Breakdown, CommandLayers, ExecFindings, Machine, Metric, Plan, Statuses, Unit, shell_line};
use vmtax_recording::Recording;

/// The report. `layers`: what its guests asked of their disks.
pub fn report<'a>(
    recording: &'a Recording,
    findings: &'a ExecFindings,
    layers: Option<&'a CommandLayers>,
) -> Report<'a> {
    let overheads = &findings.overheads;
    let rows = metric_rows::with_printed(overheads, &findings.printed);
    let breakdowns = findings.breakdowns.iter().map(|breakdown| section(breakdown, &recording.plan));
    let about = about(&recording.plan, findings).into_iter().map(Block::Text).collect();
    let requests = layers.map_or(Vec::new(), |layers| command_layers::sections(layers, findings));
    let missing = layers.map_or(Vec::new(), |layers| super::layers::words::missing(&layers.layers));
    let advice = layers.map_or(&[][..], |layers| &layers.layers.advice);
    let warned = layers.map_or(&[][..], |layers| &layers.layers.warnings);
    let warnings = warnings(recording, findings).into_iter().chain(view::in_words(warned));
    Report {
        study: "exec",
        title: format!("What virtualization costs `{}`", command(&recording.plan)),
        basis: overhead::basis(recording, overheads),
        origin: origin(recording),
        answer: ended(findings),
        tiles: view::guests(overheads).into_iter().filter_map(|machine| tile(findings, machine)).collect(),
        advice: [&overheads.advice[..], advice].concat(),
        notices: vec![Notice::missing("Not observed", missing), Notice::warnings(warnings.collect())],
        sections: breakdowns
            .chain([Section::new("", about)])
            .chain(overhead::sections(recording, overheads, &rows))
            .chain(requests)
            .chain([overhead::trials(recording)])
            .chain(view::facts(recording, &overheads.kernels))
            .collect(),
        method: vec![overheads.method.clone()],
        ..Report::default()
    }
}

/// The findings, with what was found of requests to the guests' disks, where that was asked for.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    findings: &'a ExecFindings,
    #[serde(flatten)]
    layers: Option<&'a CommandLayers>,
}

/// The recording and its findings as one JSON document.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(
    recording: &Recording,
    findings: &ExecFindings,
    layers: Option<&CommandLayers>,
) -> Result<String, ReportError> {
    document(recording, &Both { findings, layers })
}

fn command(plan: &Plan) -> String {
    plan.command().map_or(String::new(), |command| shell_line(&command.argv))
}

/// The wall time: what a person waits for.
fn tile(findings: &ExecFindings, machine: Machine) -> Option<Tile> {
    let row = findings.overheads.rows.iter().find(|row| row.metric == Metric::ExecWall)?;
    let found = row.machines.iter().find(|c| c.machine == machine)?;
    let (figure, text) = match (&found.overhead, &found.spread) {
        (Some(overhead), _) => {
            let sure = match &overhead.ratio.interval {
                Some(i) => format!("95 % interval {}", range(i)),
                None => format!("n = {}, too few for an interval", overhead.rounds),
            };
            let times = ratio(overhead.ratio.median);
            (times.clone(), format!("In the {machine} guest it takes {times} native's wall time ({sure})."))
        }
        (None, Some(spread)) => (
            value(Unit::Seconds, spread.median),
            format!("Wall time in the {machine} guest; there is no native one beside it."),
        ),
        (None, None) => return None,
    };
    Some(Tile { class: machine.as_str(), figure, text, limits: String::new() })
}

/// How it ended.
fn ended(findings: &ExecFindings) -> String {
    let words = |statuses: &[i32]| statuses.iter().map(|s| status(*s)).collect::<Vec<_>>().join(" or ");
    let (ran, not): (Vec<&Statuses>, Vec<_>) = findings.statuses.iter().partition(|s| !s.statuses.is_empty());
    match ran.first() {
        None => "The command ended nowhere.".to_owned(),
        Some(first) if not.is_empty() && !findings.differs() => {
            format!("It ended everywhere with {}.", words(&first.statuses))
        }
        Some(_) => {
            let all: Vec<String> = ran.iter().map(|s| format!("{} with {}", s.machine, words(&s.statuses))).collect();
            let nowhere: Vec<String> = not.iter().map(|s| format!(" It did not run on {}.", s.machine)).collect();
            format!("It ended on {}.{}", all.join(", on "), nowhere.concat())
        }
    }
}

fn status(status: i32) -> String {
    match status {
        signal @ 129..=192 => format!("status {status} (ended by signal {})", signal - 128),
        other => format!("status {other}"),
    }
}

/// What weakens the figures, the command's own end first.
fn warnings(recording: &Recording, findings: &ExecFindings) -> Vec<String> {
    let mut all = Vec::new();
    if findings.differs() {
        all.push("the command did not end alike everywhere: what it cost is not the cost of the same work.".to_owned());
    } else if findings.status().is_some_and(|status| status != 0) {
        all.push("the command failed: what it cost is what failing costs.".to_owned());
    }
    all.extend(findings.notes.iter().cloned());
    all.extend(view::warnings(recording, &findings.overheads.warnings));
    all
}

/// The parts, what none accounts for, and the sum.
fn section<'a>(breakdown: &Breakdown, plan: &Plan) -> Section<'a> {
    let rounds = counted(breakdown.rounds.into(), "round");
    let title = format!("Where the time goes on {} (means of {rounds})", breakdown.machine);
    let whole = breakdown.native_s.map(|native| breakdown.machine_s - native);
    let mut columns = vec![Column::words(unit(plan)).broken(20, 12), Column::figures(breakdown.machine.as_str())];
    if whole.is_some() {
        columns.extend([
            Column::figures("native").spare(2),
            Column::figures("difference"),
            Column::figures("share").spare(1),
        ]);
    }
    let line = |label: &str, native: Option<f64>, machine: f64| {
        // What only a guest has is all difference.
        let more = breakdown.native_s.map(|_| machine - native.unwrap_or(0.0));
        let share = more.zip(whole.filter(|w| w.abs() > 1e-6)).map(|(more, whole)| more / whole);
        let share = share.map_or(String::new(), |s| if s < 0.0 { format!("−{}", percent(-s)) } else { percent(s) });
        let native = native.map_or(String::new(), seconds);
        let more = more.map_or(String::new(), |s| difference(Unit::Seconds, s));
        vec![label.into(), Cell::strong(seconds(machine)), native.into(), more.into(), share.into()]
    };
    let mut table = Table::new(title.clone(), columns);
    breakdown.rows.iter().for_each(|row| table.row(line(row.part.label(), row.native_s, row.machine_s)));
    table.row(line("unexplained", None, breakdown.unexplained_s));
    table.first(line("sum", breakdown.native_s, breakdown.machine_s));
    Section::new(title, vec![Block::Table(table)])
}

fn seconds(s: f64) -> String {
    if s < 0.0 { difference(Unit::Seconds, s) } else { value(Unit::Seconds, s) }
}

/// What the seconds are of.
fn unit(plan: &Plan) -> String {
    match plan.guest.cpus {
        1 => "wall time".to_owned(),
        cpus => format!("wall time × {cpus} CPUs"),
    }
}

/// How the guests had the host's files, and what the parts mean.
fn about(plan: &Plan, findings: &ExecFindings) -> Vec<String> {
    let mut all = Vec::new();
    if !findings.breakdowns.is_empty() {
        all.push(
            "User and kernel: the command's own, by its machine's account; what translation, nested paging and exits add \
             to them is in them. Waiting for threads: at most, as long as these worked."
                .to_owned(),
        );
    }
    let layer = match plan.command().and_then(|command| command.scratch_mib) {
        Some(mib) => format!("on a disk of {mib} MiB"),
        None => "in their memory".to_owned(),
    };
    all.extend(findings.root.as_ref().map(|root| {
        format!(
            "Guests had the host's files by {} ({}), read-only, below a layer {layer}: its cost is the share's, not the \
             CPU's.",
            root.method, root.mount
        )
    }));
    all
}
