//! `run`: what each metric costs in a guest against native.

use super::metric_rows::{self, MetricRow};
use crate::charts::bars::{self, Bars, Lane};
use crate::charts::densities::{self, Densities};
use crate::charts::rounds::{self, Rounds, Values};
use crate::engine::{Block, Cell, Column, Figure, Notice, Report, Section, Table, Tone};
use crate::number::{
    NONE, count, counted, difference, difference_range, half_width, nanoseconds, percent,
    plus_minus, range, ratio, value,
};
use crate::sysbench;
use crate::text::when;
use crate::view::{self, absence, guests, host, machines, origin, rounds_text, verdict};
use vmtax_analysis::distributions;
use vmtax_model::{
    Comparison, Estimate, Findings, Latency, Machine, MachineColumn, Metric, Outcome, Spread,
    TrialRecord, Verdict, WorkloadName,
};
use vmtax_recording::Recording;

/// Rounds below which a picture of them shows no more than their table.
const FEWEST_DOTS: u32 = 3;

/// Makes the report of the virtualization overhead.
pub fn report<'a>(recording: &'a Recording, findings: &'a Findings) -> Report<'a> {
    let rows = metric_rows::of(findings);
    let own = sections(recording, findings, &rows);
    Report {
        study: "overhead",
        title: "Virtualization overhead".to_owned(),
        basis: [basis(recording, findings), verdicts(findings)].concat(),
        origin: origin(recording),
        answer: answer(findings),
        next: next(recording, findings),
        advice: findings.advice.clone(),
        notices: vec![Notice::warnings(view::warnings(
            recording,
            &findings.warnings,
        ))],
        sections: own
            .into_iter()
            .chain([trials(recording)])
            .chain(view::facts(recording, &findings.kernels))
            .collect(),
        method: vec![findings.method.clone()],
        ..Report::default()
    }
}

/// The run in short.
pub fn basis(recording: &Recording, findings: &Findings) -> Vec<String> {
    let (plan, cpus) = (&recording.plan, recording.plan.guest.cpus);
    let run = vec![
        plan.name.clone(),
        when(&recording.manifest.started),
        rounds_text(findings),
    ];
    let each = format!(
        "native and guests with {}, {} MiB each",
        counted(cpus.into(), "CPU"),
        plan.guest.memory_mib
    );
    [run, host(recording), vec![each]].concat()
}

fn answer(findings: &Findings) -> String {
    let guests = guests(findings);
    let each: Vec<String> = guests
        .iter()
        .filter_map(|machine| overhead(findings, *machine))
        .collect();
    match (findings.rows.is_empty(), guests.is_empty(), each.is_empty()) {
        (true, ..) => "No trial gave a value: there is nothing to compare.".to_owned(),
        (false, true, _) => {
            "Only native was measured: there is no guest to compare it with.".to_owned()
        }
        (.., true) => {
            "No metric has a value on both native and a guest: there is no overhead to state."
                .to_owned()
        }
        _ => format!("{}.", each.join("; ")),
    }
}

/// "tcg is slower than native in 18 of 19 metrics; largest overhead: cpu event rate: ×14.4 (95 % CI 13.9–15.1)"; without intervals
/// "tcg: ×3.03 (stat) to ×14.4 (cpu event rate) relative to native, 19 metrics".
fn overhead(findings: &Findings, machine: Machine) -> Option<String> {
    let view::Summary {
        least,
        worst,
        metrics,
        costs,
        ..
    } = view::summary(findings, machine)?;
    let named = |(metric, cost): (Metric, &Comparison)| {
        format!("{} ({})", ratio(cost.ratio.median), metric.label())
    };
    let most = format!(
        "{}: {}{}",
        worst.0.label(),
        ratio(worst.1.ratio.median),
        ci(&worst.1.ratio)
    );
    Some(match (metrics, costs) {
        (1, _) if !view::has_intervals(findings) => {
            format!("{machine}: {} relative to native", named(worst))
        }
        (_, _) if !view::has_intervals(findings) => {
            format!(
                "{machine}: {} to {} relative to native, {metrics} metrics",
                named(least),
                named(worst)
            )
        }
        (_, 0) => format!(
            "no metric is significantly slower on {machine} than natively, largest ratio in {most}"
        ),
        (1, _) => format!("{machine} is slower than native in {most}"),
        _ => format!(
            "{machine} is slower than native in {costs} of {metrics} metrics; largest overhead: {most}"
        ),
    })
}

/// " (95 % CI 1.02–1.05)"; nothing where there is no interval.
pub fn ci(ratio: &Estimate) -> String {
    ratio
        .interval
        .as_ref()
        .map_or(String::new(), |i| format!(" (95\u{a0}% CI {})", range(i)))
}

/// Returns the number of metrics of each guest with each result.
fn verdicts(findings: &Findings) -> Vec<String> {
    let machine_verdicts = |machine: Machine| {
        let view::Summary {
            costs,
            gains,
            undecided,
            ..
        } = view::summary(findings, machine)?;
        let counts = [
            (costs, "slower"),
            (gains, "faster"),
            (undecided, "inconclusive"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, verdict)| format!("{n} {verdict}"))
            .collect();
        Some(format!("{machine}: {}", counts.join(", "))).filter(|_| !counts.is_empty())
    };
    if !view::has_intervals(findings) {
        return Vec::new();
    }
    guests(findings)
        .into_iter()
        .filter_map(machine_verdicts)
        .collect()
}

/// More rounds where there are too few, else where the time of the largest overhead goes.
fn next(recording: &Recording, findings: &Findings) -> Vec<String> {
    let worst = guests(findings)
        .into_iter()
        .filter_map(|m| Some((m, view::summary(findings, m)?.worst)));
    let Some((machine, (metric, _))) =
        worst.max_by(|a, b| a.1.1.ratio.at_least().total_cmp(&b.1.1.ratio.at_least()))
    else {
        return Vec::new();
    };
    if !view::has_intervals(findings) {
        return view::with_more_rounds(recording).into_iter().collect();
    }
    let workload = metric.workload();
    let line = match workload {
        WorkloadName::Disk | WorkloadName::Fileio => format!("vmtax layers --machine {machine}"),
        _ => format!("vmtax profile --machine {machine} -- {workload}"),
    };
    vec![recording.plan.on_same_guests(&line)]
}

/// The figures: costs against native, every figure, latencies, rounds.
pub fn sections<'a>(
    recording: &'a Recording,
    findings: &'a Findings,
    rows: &[MetricRow<'a>],
) -> Vec<Section<'a>> {
    if rows.is_empty() {
        return Vec::new();
    }
    let latencies = latencies(recording, findings);
    let mut all = vec![
        Section::new(
            if view::is_compared(findings) {
                "Compared with native"
            } else {
                "Results"
            },
            vec![costs(findings, rows)],
        ),
        Section::detail(
            "Every figure",
            vec![Block::Table(every_figure(findings, rows))],
        ),
    ];
    if !latencies.is_empty() {
        let blocks = vec![
            Block::Text(densities::INTRO.to_owned()),
            Block::Figures("", latencies),
        ];
        all.push(Section::detail("Latency of one operation", blocks));
    }
    all.push(round_by_round(recording, findings, rows));
    all
}

fn costs<'a>(findings: &Findings, rows: &[MetricRow<'a>]) -> Block<'a> {
    let guests = guests(findings);
    let table = costs_table(findings, rows);
    let lane = |row: &MetricRow, machine: Machine| {
        let column = row.column(machine);
        let overhead = column.and_then(|c| c.overhead.as_ref());
        let missing = if column.is_some_and(|c| c.unsupported.is_some()) {
            "unsupported"
        } else {
            "no figure"
        };
        Lane {
            class: machine.as_str(),
            cost: overhead.map(|t| t.ratio),
            shown: overhead.is_none_or(|t| t.verdict != Verdict::Inconclusive),
            figure: overhead.map_or(NONE.to_owned(), |t| ratio(t.ratio.median)),
            range: overhead.map_or(missing.to_owned(), |t| {
                t.ratio.interval.as_ref().map(range).unwrap_or_default()
            }),
        }
    };
    let bar = |row: &MetricRow| bars::Row {
        name: row.label.to_owned(),
        more: "",
        lanes: guests.iter().map(|machine| lane(row, *machine)).collect(),
    };
    let compared = |rows: &[MetricRow]| {
        let compared = rows
            .iter()
            .filter(|row| row.machines.iter().any(|c| c.overhead.is_some()));
        compared.map(bar).collect::<Vec<_>>()
    };
    let groups = metric_rows::groups(rows).map(|(group, rows)| (group.to_owned(), compared(rows)));
    let mut legend: Vec<(&str, String)> = guests
        .iter()
        .map(|machine| (machine.as_str(), machine.to_string()))
        .collect();
    legend.push(("native", "native = ×1".to_owned()));
    let intervals = view::has_intervals(findings);
    legend.extend(intervals.then(|| ("pale", "pale: inconclusive".to_owned())));
    let bars = Bars {
        class: "",
        legend,
        groups: groups.filter(|(_, rows)| !rows.is_empty()).collect(),
    };
    if bars.is_empty() {
        return Block::Table(table);
    }
    let sure = if intervals {
        "The whisker is the 95 % CI."
    } else {
        ""
    };
    let caption = format!(
        "Cost on the guest ÷ native cost, medians over rounds; right of the line is slower. {} {sure}",
        bars.scale()
    );
    Block::Figure(Figure {
        caption,
        table: Some(table),
        ..Figure::new(bars)
    })
}

/// A row for each metric: what it is natively and on each guest, and the guest's cost over native's.
fn costs_table(findings: &Findings, rows: &[MetricRow]) -> Table {
    let machines = machines(findings);
    let (compared, intervals) = (view::is_compared(findings), view::has_intervals(findings));
    let mut columns = vec![Column::words("metric").broken(22, 12)];
    for machine in &machines {
        columns
            .push(Column::figures(machine.as_str()).spare(if machine.is_guest() { 4 } else { 6 }));
        columns.push(Column::figures("spread").spare(1));
        if compared && machine.is_guest() {
            columns.push(Column::figures(if machines.len() > 2 {
                format!("overhead {machine}")
            } else {
                "overhead".to_owned()
            }));
            columns.extend(intervals.then(|| Column::figures("95 % CI").shorten(3).spare(5)));
            columns.extend(intervals.then(|| Column::words("result").spare(2)));
        }
    }
    let mut table = Table::new("Medians and costs against native", columns);
    for (group, rows) in metric_rows::groups(rows) {
        table.group(group);
        for row in rows {
            let mut cells: Vec<Cell> = vec![row.label.into()];
            for machine in &machines {
                let found = row.column(*machine);
                let spread = found.and_then(|c| c.spread.as_ref());
                cells.push(median(row, found).into());
                cells.push(
                    spread
                        .and_then(|s| s.relative_spread)
                        .map_or(String::new(), plus_minus)
                        .into(),
                );
                if compared && machine.is_guest() {
                    overhead_cells(&mut cells, row, found, intervals);
                }
            }
            table.row(cells);
        }
    }
    table.notes(notes(findings, rows))
}

fn median(row: &MetricRow, found: Option<&MachineColumn>) -> String {
    match found {
        Some(MachineColumn {
            spread: Some(spread),
            ..
        }) => value(row.unit, spread.median),
        Some(MachineColumn {
            unsupported: Some(_),
            ..
        }) => "n/a".to_owned(),
        _ => NONE.to_owned(),
    }
}

/// A guest's cost over native's, its interval and the verdict; a small cost is marked less.
fn overhead_cells(
    cells: &mut Vec<Cell>,
    row: &MetricRow,
    column: Option<&MachineColumn>,
    intervals: bool,
) {
    let overhead = column.and_then(|column| column.overhead.as_ref());
    let Some(Comparison {
        ratio: cost,
        verdict,
        ..
    }) = overhead
    else {
        cells.push(NONE.into());
        cells.extend(
            intervals
                .then(|| [Cell::default(), Cell::default()])
                .into_iter()
                .flatten(),
        );
        return;
    };
    let tone = if *verdict == Verdict::Slower && cost.median < 2.0 {
        Tone::Warn
    } else {
        verdict::tone(*verdict)
    };
    let ends = cost.interval.as_ref();
    let interval = Cell::from(ends.map_or(String::new(), range))
        .short(ends.map_or(String::new(), |i| half_width(cost.median, i)));
    let paired = column
        .and_then(|column| row.paired(column))
        .unwrap_or_else(|| ratio(cost.median));
    let ratio = if *verdict == Verdict::Inconclusive {
        format!("({paired})")
    } else {
        paired
    };
    let ratio = Cell::from(ratio);
    let sure = intervals
        .then(|| [interval, verdict::label(*verdict, row.unit).into()])
        .into_iter()
        .flatten();
    cells.extend([ratio].into_iter().chain(sure).map(|cell| cell.tone(tone)));
}

/// Returns the meaning of the table's signs, and what the table leaves out.
fn notes(findings: &Findings, rows: &[MetricRow]) -> Vec<String> {
    let mut notes = vec!["Medians over rounds.".to_owned()];
    if view::is_compared(findings) {
        let sure = if view::has_intervals(findings) {
            " In parentheses: inconclusive, the 95 % CI contains ×1."
        } else {
            ""
        };
        notes[0] += &format!(
            " Overhead: the median of the rounds' ratios guest ÷ native (paired), for a rate: native ÷ guest; above ×1 \
             the guest is slower, or uses more of a resource.{sure}"
        );
    }
    let each: Vec<String> = machines(findings)
        .into_iter()
        .filter_map(|m| spread_note(rows, m))
        .collect();
    if !each.is_empty() {
        notes.push(format!("Spread (IQR/2 ÷ median): {}.", each.join("; ")));
    }
    notes.extend(verdict::opposed_note(
        rows.iter().any(MetricRow::is_opposed),
    ));
    notes.extend(without_ratio(rows));
    notes.extend(fewer_rounds(findings, rows));
    notes.extend(metric_rows::undirected(rows));
    notes.extend(without_figure(rows));
    notes
}

/// The metrics that a machine has no figure for, together where the reason is the same.
fn without_figure(rows: &[MetricRow]) -> Vec<String> {
    let columns = rows
        .iter()
        .flat_map(|r| r.machines.iter().map(move |c| (r.label, c)));
    let mut reasons: Vec<(Machine, String, Vec<&str>)> = Vec::new();
    for (label, c) in columns.filter(|(_, c)| c.spread.is_none() && c.unsupported.is_some()) {
        let reason = absence(c);
        match reasons
            .iter_mut()
            .find(|(machine, why, _)| *machine == c.machine && *why == reason)
        {
            Some((_, _, labels)) => labels.push(label),
            None => reasons.push((c.machine, reason, vec![label])),
        }
    }
    let note = |(machine, reason, labels): (Machine, String, Vec<&str>)| {
        format!(
            "n/a: no figure for {} on {machine}: {reason}.",
            labels.join(", ")
        )
    };
    reasons.into_iter().map(note).collect()
}

/// The metrics with native figures and a guest's, of which a 0 leaves no ratio.
fn without_ratio(rows: &[MetricRow]) -> Option<String> {
    let zero = |spread: &Spread| spread.values.contains(&0.0);
    let has_zero = |row: &&MetricRow| {
        let Some(native) = row
            .column(Machine::NATIVE)
            .and_then(|column| column.spread.as_ref())
        else {
            return false;
        };
        let mut guests = row
            .machines
            .iter()
            .filter(|column| column.machine.is_guest() && column.overhead.is_none());
        guests.any(|column| {
            column
                .spread
                .as_ref()
                .is_some_and(|spread| zero(native) || zero(spread))
        })
    };
    let labels: Vec<&str> = rows.iter().filter(has_zero).map(|row| row.label).collect();
    (!labels.is_empty()).then(|| {
        format!(
            "No ratio, because a round's value is 0: {}.",
            labels.join("; ")
        )
    })
}

fn spread_note(rows: &[MetricRow], machine: Machine) -> Option<String> {
    let spread = |r: &MetricRow| r.column(machine)?.spread.as_ref()?.relative_spread;
    let mut all: Vec<(f64, &str)> = rows
        .iter()
        .filter_map(|r| Some((spread(r)?, r.label)))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (largest, label) = *all.last()?;
    let typical = all[all.len() / 2].0;
    Some(format!(
        "{machine} typically {}, maximum {} ({label})",
        percent(typical),
        percent(largest)
    ))
}

/// The figures that rest on fewer rounds than the rest.
fn fewer_rounds(findings: &Findings, rows: &[MetricRow]) -> Option<String> {
    let columns = rows
        .iter()
        .flat_map(|row| row.machines.iter().map(move |c| (row.label, c)));
    let rounds = columns.filter_map(|(label, c)| Some((label, c.machine, c.spread.as_ref()?.n)));
    let fewer = rounds.filter(|(_, _, n)| *n < findings.rounds_planned);
    let mut fewer: Vec<String> = fewer
        .map(|(label, machine, n)| format!("{label} on {machine} ({n})"))
        .collect();
    let more = if fewer.len() > 4 {
        format!(", and {} more", fewer.len() - 4)
    } else {
        String::new()
    };
    fewer.truncate(4);
    (!fewer.is_empty()).then(|| {
        format!(
            "Fewer than {} rounds: {}{more}.",
            findings.rounds_planned,
            fewer.join(", ")
        )
    })
}

fn every_figure(findings: &Findings, rows: &[MetricRow]) -> Table {
    let compared = view::is_compared(findings);
    let mut columns = vec![
        Column::words("metric").broken(18, 12),
        Column::words("machine"),
    ];
    columns.extend(["n", "median", "spread"].map(Column::figures));
    if compared {
        columns.extend(["overhead", "95 % CI", "difference"].map(Column::figures));
        columns.extend([
            Column::figures("its 95 % CI").spare(1),
            Column::words("result").spare(2),
        ]);
    }
    let mut table = Table::new(
        "Medians, spread, overheads and differences of every metric on every machine",
        columns,
    );
    for (group, rows) in metric_rows::groups(rows) {
        table.group(group);
        for row in rows {
            for (i, column) in row.machines.iter().enumerate() {
                let label = if i == 0 {
                    Cell::strong(row.label)
                } else {
                    Cell::default()
                };
                let cells = [
                    label,
                    Cell::key(column.machine.as_str(), column.machine.as_str()),
                ]
                .into_iter();
                let cells = cells.chain(figures(row, column)).collect();
                if i == 0 {
                    table.first(cells)
                } else {
                    table.row(cells)
                }
            }
        }
    }
    let overhead = "Overhead: the median of the rounds' ratios machine ÷ native (paired), for a rate: native ÷ machine, whichever way \
               the metric counts: above ×1 the machine is slower.";
    let spread = "Medians over n rounds. Spread is IQR/2 ÷ median.";
    let notes = [Some(spread), compared.then_some(overhead)]
        .into_iter()
        .flatten()
        .map(str::to_owned);
    table.notes(
        notes
            .chain(verdict::opposed_note(
                rows.iter().any(MetricRow::is_opposed),
            ))
            .collect(),
    )
}

fn figures(row: &MetricRow, column: &MachineColumn) -> Vec<Cell> {
    let Some(s) = &column.spread else {
        return vec![NONE.into(), Cell::from(absence(column)).tone(Tone::Soft)];
    };
    let spread = s
        .relative_spread
        .map_or_else(|| NONE.to_owned(), plus_minus);
    let median = Cell::strong(median(row, Some(column)));
    let mut cells: Vec<Cell> = vec![s.n.to_string().into(), median, spread.into()];
    if let Some(overhead) = &column.overhead {
        let more = overhead.difference.unwrap_or(Estimate {
            median: f64::NAN,
            interval: None,
        });
        cells.extend([
            Cell::strong(
                row.paired(column)
                    .unwrap_or_else(|| ratio(overhead.ratio.median)),
            ),
            overhead
                .ratio
                .interval
                .as_ref()
                .map_or(String::new(), range)
                .into(),
            difference(row.unit, more.median).into(),
            more.interval
                .as_ref()
                .map_or(String::new(), |i| difference_range(row.unit, i))
                .into(),
            match overhead.verdict {
                Verdict::TooFewRounds => Cell::default(),
                verdict => {
                    Cell::from(verdict::label(verdict, row.unit)).tone(verdict::tone(verdict))
                }
            },
        ]);
    }
    cells
}

/// Metrics of a workload that rest on the same operation, and its latencies on each machine.
type Shared = (WorkloadName, Vec<&'static str>, Vec<(Machine, Latency)>);

/// A picture for each latency distribution; metrics that rest on the same operation share one.
fn latencies<'a>(recording: &Recording, findings: &Findings) -> Vec<Figure<'a>> {
    let mut all: Vec<Shared> = Vec::new();
    for row in &findings.rows {
        let lane = |m: Machine| Some((m, distributions(&recording.trials, row.metric, m)?));
        let lanes: Vec<_> = machines(findings).into_iter().filter_map(lane).collect();
        let workload = row.metric.workload();
        match all
            .iter_mut()
            .find(|(w, _, same)| *w == workload && *same == lanes)
        {
            _ if lanes.is_empty() => {}
            Some((_, labels, _)) => labels.push(row.metric.label()),
            None => all.push((workload, vec![row.metric.label()], lanes)),
        }
    }
    let figure = |(workload, labels, lanes): Shared| {
        let summaries = lanes
            .iter()
            .filter_map(|(machine, latency)| Some((machine, latency.summary()?)));
        let table = Table::of(format!("Latency of {}", labels.join(", ")), summaries)
            .column(Column::words("machine"), |(machine, _)| machine.to_string())
            .column(Column::figures("n"), |(_, s)| count(s.count))
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
    };
    all.into_iter().map(figure).collect()
}

fn round_by_round<'a>(
    recording: &'a Recording,
    findings: &Findings,
    rows: &[MetricRow<'a>],
) -> Section<'a> {
    let rounds = findings.rounds_planned.max(1);
    let machines = machines(findings);
    let mut table = rounds_table(rounds);
    let mut figures = Vec::new();
    for row in rows {
        let values = values_of(row, &machines, &recording.trials);
        add_rounds(&mut table, row, &values, rounds);
        if rounds >= FEWEST_DOTS {
            figures.push(dots(row, values, rounds));
        }
    }
    let legend = machines
        .iter()
        .map(|machine| (machine.as_str(), machine.to_string()))
        .collect();
    let values = Block::Folded(
        "The values of every round".to_owned(),
        vec![Block::Table(table)],
    );
    let drawn = [
        Block::Text(rounds::INTRO.to_owned()),
        Block::Legend(legend),
        Block::Figures("small", figures),
    ]
    .into_iter();
    let shown = if rounds < FEWEST_DOTS { 0 } else { 3 };
    Section::detail(
        "Round by round",
        drawn.take(shown).chain([values]).collect(),
    )
}

/// Makes the table of the values of so many rounds, without rows.
fn rounds_table(rounds: u32) -> Table {
    let columns = (1..=rounds).map(|round| Column::figures(format!("round {round}")));
    let columns = [
        Column::words("metric").cut(20, 12),
        Column::words("machine"),
    ]
    .into_iter()
    .chain(columns);
    Table::new("Value of each round", columns.collect()).in_parts()
}

/// Returns the median and the rounds' values of a metric on each machine.
fn values_of(row: &MetricRow, machines: &[Machine], trials: &[TrialRecord]) -> Vec<Values> {
    let values_on_machine = |machine: Machine| {
        let median = row
            .column(machine)
            .and_then(|c| c.spread.as_ref())
            .map(|s| s.median);
        Values {
            machine,
            median,
            rounds: row.rounds(trials, machine),
        }
    };
    machines
        .iter()
        .map(|machine| values_on_machine(*machine))
        .collect()
}

/// Adds the rows of a metric: for each machine the values of so many rounds.
fn add_rounds(table: &mut Table, row: &MetricRow, values: &[Values], rounds: u32) {
    for Values {
        machine,
        rounds: values,
        ..
    } in values
    {
        let values_in_round = |round| {
            values
                .iter()
                .filter(move |(r, _)| *r == round)
                .map(|(_, v)| value(row.unit, *v))
        };
        let figures =
            (0..rounds).map(|round| values_in_round(round).collect::<Vec<_>>().join(" ").into());
        let cells = [
            row.label.into(),
            Cell::key(machine.as_str(), machine.as_str()),
        ]
        .into_iter();
        table.row(cells.chain(figures).collect());
    }
}

/// Makes the picture of a metric: the values of so many rounds as dots.
fn dots<'a>(row: &MetricRow<'a>, values: Vec<Values>, rounds: u32) -> Figure<'a> {
    let chart = Rounds {
        label: row.label,
        unit: row.unit,
        rounds,
        values,
    };
    Figure {
        title: row.label.to_owned(),
        ..Figure::new(chart)
    }
}

/// Every trial in sysbench's figures.
pub fn trials(recording: &Recording) -> Section<'_> {
    let intro = format!(
        "{} trials in the figures that sysbench prints: `{} --details`.",
        recording.trials.len(),
        view::report_command(recording)
    );
    let all = Block::Deferred(Box::new(|| every_trial(&recording.trials)));
    Section::detail("Every trial", vec![Block::Text(intro), all])
}

fn every_trial(trials: &[TrialRecord]) -> Vec<Block<'static>> {
    let trials_on_machine = |(workload, machine): (WorkloadName, Machine)| {
        let some = |t: &&TrialRecord| t.workload.name == workload && t.machine == machine;
        let some: Vec<&TrialRecord> = trials.iter().filter(some).collect();
        let lines = some
            .iter()
            .map(|trial| Block::Lines(sysbench::trial(trial)))
            .collect();
        (!some.is_empty()).then(|| {
            Block::Folded(
                format!("{workload} on {machine}: {}", outcomes(&some)),
                lines,
            )
        })
    };
    let places = WorkloadName::ALL
        .iter()
        .flat_map(|w| Machine::ALL.iter().map(move |m| (*w, *m)));
    places.filter_map(trials_on_machine).collect()
}

fn outcomes(trials: &[&TrialRecord]) -> String {
    let done = trials
        .iter()
        .filter(|t| matches!(t.outcome, Outcome::Done { .. }))
        .count();
    let other = trials.len() - done;
    if other == 0 {
        format!("{done} done")
    } else {
        format!("{done} done, {other} without a result")
    }
}
