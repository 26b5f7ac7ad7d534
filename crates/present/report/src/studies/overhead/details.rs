//! Details of `run` beside the costs: every figure, distributions of latency, each round's value, every trial.

use crate::charts::distributions::{DENSITIES_INTRO, Densities, ROUNDS_INTRO, Rounds, Values};
use crate::engine::{Block, Cell, Figure, Section, Table, Tone, figures, words};
use crate::number::{
    NONE, count, difference, difference_range, nanoseconds, plus_minus, range, value,
};
use crate::studies::metric_rows::{self, MetricRow};
use crate::sysbench;
use crate::text::{Joined, grouped, only_if};
use crate::view::{self, absence, machines, verdict};
use vmtax_analysis::distributions;
use vmtax_findings::{Findings, MachineColumn, Verdict};
use vmtax_model::{Latency, Machine, Outcome, TrialRecord, WorkloadName};
use vmtax_recording::Recording;

/// Rounds below which a picture of them shows no more than their table.
const FEWEST_DOTS: u32 = 3;

/// Makes the table of medians, spread, overheads and differences.
pub fn every_figure(findings: &Findings, rows: &[MetricRow]) -> Table {
    let compared = view::is_compared(findings);
    let mut columns = vec![words("metric").broken(18, 12), words("machine")];
    columns.extend(["n", "median", "spread"].map(figures));
    if compared {
        columns.extend(["overhead", "95 % CI", "difference"].map(figures));
        let of_difference = figures("95 % CI of the difference").broken(14, 10);
        columns.extend([of_difference.spare(1), words("result").spare(2)]);
    }
    let mut table = Table::new(
        "Medians, spread, overheads and differences of every metric on every machine",
        columns,
    );
    for (group, rows) in metric_rows::groups(rows) {
        table.group(group);
        for row in rows {
            for (i, column) in row.machines.iter().enumerate() {
                let machine = column.machine.as_str();
                let label = only_if(i == 0, Cell::strong(row.label));
                let mut cells = vec![label, Cell::key(machine, machine)];
                cells.extend(figure_cells(row, column));
                match i {
                    0 => table.first(cells),
                    _ => table.row(cells),
                }
            }
        }
    }
    let overhead = "Overhead: the median of the rounds' ratios machine ÷ native (paired), for a rate: native ÷ machine. For either \
               direction of the metric, above ×1 the machine is slower.";
    let spread = "Medians over n rounds. Spread is IQR/2 ÷ median.";
    let notes = [Some(spread), compared.then_some(overhead)];
    let notes = notes.into_iter().flatten().map(str::to_owned);
    let opposed = verdict::opposed_note(rows.iter().any(MetricRow::is_opposed));
    table.notes(notes.chain(opposed).collect())
}

fn figure_cells(row: &MetricRow, column: &MachineColumn) -> Vec<Cell> {
    let Some(s) = &column.spread else {
        return vec![NONE.into(), Cell::from(absence(column)).tone(Tone::Soft)];
    };
    let spread = s.relative_spread.map_or(NONE.to_owned(), plus_minus);
    let median = Cell::strong(value(row.unit, s.median));
    let mut cells: Vec<Cell> = vec![s.n.to_string().into(), median, spread.into()];
    if let Some(overhead) = &column.overhead {
        let more = overhead.difference;
        let median = more.map_or(f64::NAN, |more| more.median);
        let ends = more.and_then(|more| more.interval);
        let result = match overhead.verdict {
            Verdict::TooFewRounds => Cell::default(),
            verdict => Cell::from(verdict::label(verdict, row.unit)).tone(verdict::tone(verdict)),
        };
        cells.extend([
            Cell::strong(row.paired(column, &overhead.ratio)),
            overhead
                .ratio
                .interval
                .as_ref()
                .map_or(String::new(), range)
                .into(),
            difference(row.unit, median).into(),
            ends.map_or(String::new(), |i| difference_range(row.unit, &i))
                .into(),
            result,
        ]);
    }
    cells
}

/// Makes the section of latencies; `None` where no operation was timed.
pub fn latencies<'a>(recording: &Recording, findings: &Findings) -> Option<Section<'a>> {
    let machines = machines(findings);
    let shared = findings.rows.iter().filter_map(|row| {
        let lane = |machine: &Machine| {
            let latency = distributions(&recording.trials, row.metric, *machine)?;
            Some((*machine, latency))
        };
        let lanes: Vec<(Machine, Latency)> = machines.iter().filter_map(lane).collect();
        let key = (row.metric.workload(), lanes);
        (!key.1.is_empty()).then(|| (key, row.metric.label()))
    });
    // Metrics of a workload that rest on the same operation share a picture.
    let pictures = grouped(shared).into_iter();
    let pictures = pictures.map(|((workload, lanes), labels)| latency(workload, &labels, lanes));
    let pictures: Vec<Figure<'a>> = pictures.collect();
    (!pictures.is_empty()).then(|| {
        let intro = Block::Text(DENSITIES_INTRO.to_owned());
        Section::detail(
            "Latency of one operation",
            [intro, Block::Figures("", pictures)],
        )
    })
}

/// Makes the picture of the latencies that metrics with these labels rest on.
fn latency<'a>(
    workload: WorkloadName,
    labels: &[&str],
    lanes: Vec<(Machine, Latency)>,
) -> Figure<'a> {
    let summaries = lanes
        .iter()
        .filter_map(|(machine, latency)| Some((machine, latency.summary()?)));
    let table = Table::of(format!("Latency of {}", labels.join(", ")), summaries)
        .column(words("machine"), |(machine, _)| machine.to_string())
        .column(figures("n").samples(), |(_, s)| count(s.count))
        .figures(["p50", "p95", "p99", "max"], |(_, s)| {
            [s.p50_ns, s.p95_ns, s.p99_ns, s.max_ns].map(|ns| nanoseconds(ns as f64))
        })
        .done();
    Figure {
        title: format!("{} ({workload})", labels.join(" · ")),
        table: Some(table),
        below: true,
        ..Figure::new(Densities(lanes))
    }
}

/// Makes the section of each round's values: a picture of each metric where there are enough rounds, and a table.
pub fn round_by_round<'a>(
    recording: &'a Recording,
    findings: &Findings,
    rows: &[MetricRow<'a>],
) -> Section<'a> {
    let rounds = findings.rounds_planned.max(1);
    let machines = machines(findings);
    let heads = [words("metric").cut(20, 12), words("machine")].into_iter();
    let heads = heads.chain((1..=rounds).map(|round| figures(format!("round {round}"))));
    let mut table = Table::new("Value of each round", heads.collect()).in_parts();
    let mut pictures = Vec::new();
    for row in rows {
        let values = values_of(row, &machines, &recording.trials);
        add_rounds(&mut table, row, &values, rounds);
        pictures.push(dots(row, values, rounds));
    }
    let legend = machines.iter().map(|one| (one.as_str(), one.to_string()));
    let drawn = [
        Block::Text(ROUNDS_INTRO.to_owned()),
        Block::Legend(legend.collect()),
        Block::Figures("small", pictures),
    ];
    let shown = if rounds < FEWEST_DOTS { 0 } else { 3 };
    let values = Block::folded("The values of every round", [table]);
    Section::detail(
        "Round by round",
        drawn.into_iter().take(shown).chain([values]),
    )
}

/// Returns the median and the rounds' values of a metric on each machine.
fn values_of(row: &MetricRow, machines: &[Machine], trials: &[TrialRecord]) -> Vec<Values> {
    let on_machine = |machine: &Machine| {
        let spread = row
            .column(*machine)
            .and_then(|column| column.spread.as_ref());
        Values {
            machine: *machine,
            median: spread.map(|spread| spread.median),
            rounds: row.rounds(trials, *machine),
        }
    };
    machines.iter().map(on_machine).collect()
}

/// Adds the rows of a metric: for each machine the values of so many rounds.
fn add_rounds(table: &mut Table, row: &MetricRow, values: &[Values], rounds: u32) {
    for of_machine in values {
        let machine = of_machine.machine.as_str();
        let values_in = |round| {
            let values = of_machine.rounds.iter().filter(|(r, _)| *r == round);
            values.map(|(_, v)| value(row.unit, *v)).joined(" ")
        };
        let named = [row.label.into(), Cell::key(machine, machine)].into_iter();
        let cells = named.chain((0..rounds).map(|round| values_in(round).into()));
        table.row(cells.collect::<Vec<Cell>>());
    }
}

/// Makes the picture of a metric: the values of so many rounds as dots.
fn dots<'a>(row: &MetricRow<'a>, values: Vec<Values>, rounds: u32) -> Figure<'a> {
    let (label, unit) = (row.label, row.unit);
    let chart = Rounds {
        label,
        unit,
        rounds,
        values,
    };
    Figure {
        title: label.to_owned(),
        ..Figure::new(chart)
    }
}

/// Makes the section of every trial in sysbench's figures.
pub fn trials(recording: &Recording) -> Section<'_> {
    let intro = format!(
        "{} trials, in sysbench's output format: `{} --details`.",
        recording.trials.len(),
        view::report_command(recording)
    );
    let all = Block::Deferred(Box::new(|| every_trial(&recording.trials)));
    Section::detail("Every trial", [Block::Text(intro), all])
}

fn every_trial(trials: &[TrialRecord]) -> Vec<Block<'static>> {
    let on_machine = |workload: WorkloadName, machine: Machine| {
        let some = trials.iter();
        let some = some.filter(|t| t.workload.name == workload && t.machine == machine);
        let done = some
            .clone()
            .filter(|t| matches!(t.outcome, Outcome::Done { .. }));
        let (all, done) = (some.clone().count(), done.count());
        let other = only_if(done < all, format!(", {} without a result", all - done));
        let lines = some.map(|trial| Block::Lines(sysbench::trial(trial)));
        (all > 0).then(|| {
            let title = format!("{workload} on {machine}: {done} done{other}");
            Block::folded(title, lines)
        })
    };
    let workloads = WorkloadName::ALL.iter();
    workloads
        .flat_map(|workload| Machine::ALL.iter().map(|machine| (*workload, *machine)))
        .filter_map(|(workload, machine)| on_machine(workload, machine))
        .collect()
}
