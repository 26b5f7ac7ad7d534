//! `run`: what each metric costs in a guest against native.

mod details;

pub use details::trials;

use super::metric_rows::{self, MetricRow};
use crate::charts::bars::{self, Bars, Lane};
use crate::engine::{Block, Cell, Figure, Notice, Report, Section, Table, Tone, figures, words};
use crate::number::{NONE, counted, half_width, percent, plus_minus, range, ratio, value};
use crate::text::{Joined, grouped, only_if};
use crate::view::{self, absence, guests, host, machines, origin, rounds_text, verdict};
use vmtax_findings::{Comparison, Estimate, Findings, MachineColumn, Spread, Verdict};
use vmtax_model::{Machine, Metric, WorkloadName};
use vmtax_recording::Recording;

/// Makes the report of the virtualization overhead.
pub fn report<'a>(recording: &'a Recording, findings: &'a Findings) -> Report<'a> {
    let rows = metric_rows::metrics(findings);
    let warnings = view::warnings(recording, &findings.warnings);
    Report {
        study: "overhead",
        title: "Virtualization overhead".to_owned(),
        basis: [basis(recording, findings), verdicts(findings)].concat(),
        origin: origin(recording),
        answer: answer(findings),
        next: next(recording, findings),
        advice: findings.advice.clone(),
        notices: vec![Notice::warnings(warnings)],
        sections: sections(recording, findings, &rows)
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
    let guest = &recording.plan.guest;
    let (cpus, mib) = (counted(guest.cpus.into(), "CPU"), guest.memory_mib);
    let each = match recording
        .plan
        .machines
        .iter()
        .any(|machine| machine.is_guest())
    {
        true => format!("native and guests with {cpus}, {mib} MiB each"),
        false => format!("native with {cpus}, {mib} MiB"),
    };
    let run = view::run(recording, rounds_text(findings));
    [run, host(recording), vec![each]].concat()
}

fn answer(findings: &Findings) -> String {
    let guests = guests(findings);
    let each = guests.iter();
    let each: Vec<String> = each
        .filter_map(|machine| overhead(findings, *machine))
        .collect();
    let none = match (findings.rows.is_empty(), guests.is_empty(), each.is_empty()) {
        (true, ..) => "No trial gave a value: there is nothing to compare.",
        (false, true, _) => "Only native was measured: there is no guest to compare it with.",
        (.., true) => {
            "No metric has a value on both native and a guest: there is no overhead to state."
        }
        _ => return format!("{}.", each.join("; ")),
    };
    none.to_owned()
}

/// "tcg is slower than native in 18 of 19 metrics; largest overhead ×14.4 (cpu event rate, 95 % CI 13.9–15.1)"; without intervals
/// "tcg: ×3.03 (stat) to ×14.4 (cpu event rate) relative to native, 19 metrics".
fn overhead(findings: &Findings, machine: Machine) -> Option<String> {
    let summary = view::summary(findings, machine)?;
    let (metrics, costs) = (summary.metrics, summary.costs);
    let named = |(metric, cost): (Metric, &Comparison)| {
        format!("{} ({})", ratio(cost.ratio.median), metric.label())
    };
    let (least, worst) = (named(summary.least), named(summary.worst));
    let (metric, Comparison { ratio: cost, .. }) = summary.worst;
    let of_ci = cost.interval.as_ref();
    let of_ci = of_ci.map_or(String::new(), |i| format!(", 95\u{a0}% CI {}", range(i)));
    let most = format!("{} ({}{of_ci})", ratio(cost.median), metric.label());
    Some(match (metrics, costs) {
        (1, _) if !view::has_intervals(findings) => {
            format!("{machine}: {worst} relative to native")
        }
        (_, _) if !view::has_intervals(findings) => {
            format!("{machine}: {least} to {worst} relative to native, {metrics} metrics")
        }
        (_, 0) => format!(
            "no metric is significantly slower on {machine} than natively, largest ratio {most}"
        ),
        (1, _) => format!(
            "{machine} is slower than native in {}, {}{}",
            metric.label(),
            ratio(cost.median),
            ci(cost)
        ),
        _ => format!(
            "{machine} is slower than native in {costs} of {metrics} metrics; largest overhead {most}"
        ),
    })
}

/// " (95 % CI 1.02–1.05)"; nothing where there is no interval.
pub fn ci(ratio: &Estimate) -> String {
    let interval = ratio.interval.as_ref();
    interval.map_or(String::new(), |i| format!(" (95\u{a0}% CI {})", range(i)))
}

/// Returns the number of metrics of each guest with each result.
fn verdicts(findings: &Findings) -> Vec<String> {
    let machine_verdicts = |machine: Machine| {
        let summary = view::summary(findings, machine)?;
        let counts = [
            (summary.costs, "slower"),
            (summary.gains, "faster"),
            (summary.undecided, "inconclusive"),
        ];
        let counts = counts.into_iter().filter(|(n, _)| *n > 0);
        let counts = counts.enumerate().map(|(i, (n, verdict))| match i {
            0 => format!("{} {verdict}", counted(n as u64, "metric")),
            _ => format!("{n} {verdict}"),
        });
        let counts = counts.joined(", ");
        (!counts.is_empty()).then(|| format!("{counts} on {machine}"))
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
    if view::has_no_working_guest(recording) {
        return vec![view::CHECK_HOST.to_owned()];
    }
    let worst = guests(findings).into_iter().filter_map(|machine| {
        let (metric, cost) = view::summary(findings, machine)?.worst;
        Some((machine, metric, cost.ratio.at_least()))
    });
    let Some((machine, metric, _)) = worst.max_by(|a, b| a.2.total_cmp(&b.2)) else {
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
    let title = match view::is_compared(findings) {
        true => "Compared with native",
        false => "Results",
    };
    let mut all = vec![
        Section::new(title, [costs(findings, rows)]),
        Section::detail("All figures", [details::every_figure(findings, rows)]),
    ];
    all.extend(details::latencies(recording, findings));
    all.push(details::round_by_round(recording, findings, rows));
    all
}

fn costs<'a>(findings: &Findings, rows: &[MetricRow<'a>]) -> Block<'a> {
    let guests = guests(findings);
    let table = costs_table(findings, rows);
    let bar = |row: &MetricRow| bars::Row {
        name: row.label.to_owned(),
        more: "",
        lanes: guests.iter().map(|machine| lane(row, *machine)).collect(),
    };
    let groups = metric_rows::groups(rows).map(|(group, rows)| {
        let compared = rows.iter().filter(|row| row.is_compared());
        (group.to_owned(), compared.map(bar).collect::<Vec<_>>())
    });
    let legend = guests.iter().map(|one| (one.as_str(), one.to_string()));
    let native = ("native", "native = ×1".to_owned());
    let mut legend: Vec<(&str, String)> = legend.chain([native]).collect();
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
    let sure = only_if(intervals, "The whisker is the 95 % CI.");
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

/// The bar of a metric on a guest.
fn lane(row: &MetricRow, machine: Machine) -> Lane {
    let column = row.column(machine);
    let overhead = column.and_then(|c| c.overhead.as_ref());
    let missing = match column.is_some_and(|c| c.unsupported.is_some()) {
        true => "unsupported",
        false => "no figure",
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
}

/// A row for each metric: what it is natively and on each guest, and the guest's cost over native's.
fn costs_table(findings: &Findings, rows: &[MetricRow]) -> Table {
    let machines = machines(findings);
    let (compared, intervals) = (view::is_compared(findings), view::has_intervals(findings));
    let mut columns = vec![words("metric").broken(22, 12)];
    for machine in &machines {
        columns.push(figures(machine.as_str()).spare(if machine.is_guest() { 4 } else { 6 }));
        columns.push(figures("spread").spare(1));
        if compared && machine.is_guest() {
            let whose = only_if(machines.len() > 2, format!(" {machine}"));
            columns.push(figures(format!("overhead{whose}")));
            let sure = [
                figures("95 % CI").shorten(3).spare(5),
                words("result").spare(2),
            ];
            columns.extend(only_if(intervals, sure.to_vec()));
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
                let relative = spread.and_then(|s| s.relative_spread);
                cells.push(median(row, found).into());
                cells.push(relative.map_or(String::new(), plus_minus).into());
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
    let Some(column) = found else {
        return NONE.to_owned();
    };
    match (&column.spread, &column.unsupported) {
        (Some(spread), _) => value(row.unit, spread.median),
        (None, Some(_)) => "n/a".to_owned(),
        (None, None) => NONE.to_owned(),
    }
}

/// A guest's cost over native's, its interval and the verdict; a small cost is marked less.
fn overhead_cells(
    cells: &mut Vec<Cell>,
    row: &MetricRow,
    column: Option<&MachineColumn>,
    intervals: bool,
) {
    let shown = if intervals { 3 } else { 1 };
    let overhead = column.and_then(|column| Some((column, column.overhead.as_ref()?)));
    let Some((column, overhead)) = overhead else {
        let none = [NONE.into(), Cell::default(), Cell::default()];
        cells.extend(none.into_iter().take(shown));
        return;
    };
    let (cost, verdict) = (&overhead.ratio, overhead.verdict);
    let tone = if verdict == Verdict::Slower && cost.median < 2.0 {
        Tone::Warn
    } else {
        verdict::tone(verdict)
    };
    let ends = cost.interval.as_ref();
    let interval = Cell::from(ends.map_or(String::new(), range))
        .short(ends.map_or(String::new(), |i| half_width(cost.median, i)));
    let paired = verdict::in_parentheses(row.paired(column, cost), verdict);
    let result = verdict::label(verdict, row.unit);
    let all = [paired.into(), interval, result.into()].into_iter();
    cells.extend(all.take(shown).map(|cell| cell.tone(tone)));
}

/// Returns the meaning of the table's signs, and what the table leaves out.
fn notes(findings: &Findings, rows: &[MetricRow]) -> Vec<String> {
    let mut notes = vec!["Medians over rounds.".to_owned()];
    if view::is_compared(findings) {
        let sure = only_if(
            view::has_intervals(findings),
            " In parentheses: inconclusive, the 95 % CI contains ×1.",
        );
        notes[0] += &format!(
            " Overhead: the median of the rounds' ratios guest ÷ native (paired), for a rate: native ÷ guest; above ×1 \
             the guest is slower, or uses more of a resource.{sure}"
        );
    }
    let machines = machines(findings).into_iter();
    let each = machines
        .filter_map(|machine| spread_note(rows, machine))
        .joined("; ");
    if !each.is_empty() {
        notes.push(format!("Spread (IQR/2 ÷ median): {each}."));
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
    let without = columns(rows).filter(|(_, c)| c.spread.is_none() && c.unsupported.is_some());
    let reasons = grouped(without.map(|(label, c)| ((c.machine, absence(c)), label)));
    let note = |((machine, reason), labels): ((Machine, String), Vec<&str>)| {
        let labels = labels.join(", ");
        format!("n/a: no figure for {labels} on {machine}: {reason}.")
    };
    reasons.into_iter().map(note).collect()
}

/// Every machine's column of every metric, with the metric's label.
fn columns<'a>(rows: &'a [MetricRow]) -> impl Iterator<Item = (&'a str, &'a MachineColumn)> {
    let of_row = |row: &'a MetricRow| row.machines.iter().map(|column| (row.label, column));
    rows.iter().flat_map(of_row)
}

/// The metrics with native figures and a guest's, of which a 0 leaves no ratio.
fn without_ratio(rows: &[MetricRow]) -> Option<String> {
    let zero = |spread: &Spread| spread.values.contains(&0.0);
    let has_zero = |row: &&MetricRow| {
        let native = row.column(Machine::NATIVE);
        let Some(native) = native.and_then(|column| column.spread.as_ref()) else {
            return false;
        };
        let guests = row.machines.iter();
        let guests = guests.filter(|one| one.machine.is_guest() && one.overhead.is_none());
        let mut spreads = guests.filter_map(|one| one.spread.as_ref());
        spreads.any(|spread| zero(native) || zero(spread))
    };
    let labels = rows
        .iter()
        .filter(has_zero)
        .map(|row| row.label)
        .joined("; ");
    (!labels.is_empty()).then(|| format!("No ratio, because a round's value is 0: {labels}."))
}

fn spread_note(rows: &[MetricRow], machine: Machine) -> Option<String> {
    let spread = |r: &MetricRow| r.column(machine)?.spread.as_ref()?.relative_spread;
    let all = rows
        .iter()
        .filter_map(|row| Some((spread(row)?, row.label)));
    let mut all: Vec<(f64, &str)> = all.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (largest, label) = *all.last()?;
    let [typical, largest] = [all[all.len() / 2].0, largest].map(percent);
    Some(format!(
        "{machine} typically {typical}, maximum {largest} ({label})"
    ))
}

/// The figures that rest on fewer rounds than the rest.
fn fewer_rounds(findings: &Findings, rows: &[MetricRow]) -> Option<String> {
    let planned = findings.rounds_planned;
    let fewer = columns(rows).filter_map(|(label, column)| {
        let n = column.spread.as_ref()?.n;
        (n < planned).then(|| format!("{label} on {} ({n})", column.machine))
    });
    let mut fewer: Vec<String> = fewer.collect();
    let more = fewer.len().saturating_sub(4);
    let more = only_if(more > 0, format!(", and {more} more"));
    fewer.truncate(4);
    let fewer = fewer.join(", ");
    (!fewer.is_empty()).then(|| format!("Fewer than {planned} rounds: {fewer}{more}."))
}
