//! No page contradicts itself: each ratio on it follows from figures beside it or is marked as paired, shares of one table
//! have one basis, a verdict agrees with the interval beside it. Read from the tables as every format gets them.

#![allow(clippy::unwrap_used)]

mod common;

use common::layers::{layers_recording, plain, varied};
use common::{THREE, exits::exits, findings, recording};
use vmtax_model::*;
use vmtax_recording::Recording;
use vmtax_report::{Block, Cell, Report, Row, Table};

const PAIRED: &str = "paired";

/// Each table of a report, with the texts that stand by it.
fn tables<'r>(report: &'r Report<'_>) -> Vec<(&'r Table, Vec<&'r str>)> {
    fn walk<'r>(blocks: &'r [Block<'_>], beside: &[&'r str], found: &mut Vec<(&'r Table, Vec<&'r str>)>) {
        for block in blocks {
            let of = |table: &'r Table, caption: Option<&'r String>| {
                let notes = table.notes.iter().chain(caption).map(String::as_str);
                (table, beside.iter().copied().chain(notes).collect())
            };
            match block {
                Block::Table(table) => found.push(of(table, None)),
                Block::Figure(figure) => found.extend(figure.table.iter().map(|t| of(t, Some(&figure.caption)))),
                Block::Folded(_, blocks) => walk(blocks, beside, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for section in &report.sections {
        let beside: Vec<&str> = section.blocks.iter().filter_map(text).chain([section.title.as_str()]).collect();
        walk(&section.blocks, &beside, &mut found);
    }
    found
}

fn text<'r>(block: &'r Block<'_>) -> Option<&'r str> {
    match block {
        Block::Text(text) => Some(text),
        _ => None,
    }
}

fn rows(table: &Table) -> impl Iterator<Item = &Vec<Cell>> {
    table.rows.iter().filter_map(|row| match row {
        Row::Cells(cells) | Row::First(cells) => Some(cells),
        Row::Group(_) => None,
    })
}

/// A figure as it is printed: its value, half a unit of its last place, and its unit. Of times and sizes with prefixes, in
/// the unit without.
fn figure(text: &str) -> Option<(f64, f64, String)> {
    let text = text.trim().replace(['\u{a0}', '\u{202f}'], " ").replace(',', "");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let value: f64 = digits.parse().ok()?;
    let places = digits.split_once('.').map_or(0, |(_, places)| places.len() as i32);
    let unit = unit.trim();
    let (scale, unit) = match unit {
        "ns" => (1e-9, "s"),
        "µs" => (1e-6, "s"),
        "ms" => (1e-3, "s"),
        _ => (1.0, unit),
    };
    Some((value * scale, 0.5 * 10_f64.powi(-places) * scale, unit.to_owned()))
}

/// "×1.28", in a cell of its own.
fn ratio(cell: &Cell) -> Option<(f64, f64)> {
    let (value, half, unit) = figure(cell.text.trim().strip_prefix('×')?)?;
    unit.is_empty().then_some((value, half))
}

/// Whether two figures of the row have this ratio, either way round, as far as their digits go.
fn follows((value, half): (f64, f64), row: &[Cell]) -> bool {
    let figures: Vec<_> = row.iter().filter_map(|cell| figure(&cell.text)).collect();
    let quotients = figures.iter().enumerate().flat_map(|(i, a)| {
        let others = figures.iter().enumerate().filter(move |(j, b)| i != *j && a.2 == b.2 && b.0 - b.1 > 0.0);
        others.map(move |(_, b)| ((a.0 - a.1) / (b.0 + b.1), (a.0 + a.1) / (b.0 - b.1)))
    });
    quotients.into_iter().any(|(low, high)| low <= value + half && high >= value - half)
}

/// The ratios that follow from nothing.
fn unfounded(report: &Report<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (table, beside) in tables(report) {
        let is_marked = beside.iter().any(|text| text.contains(PAIRED) || text.contains("Paired"));
        for row in rows(table) {
            for (at, cell) in row.iter().enumerate() {
                let head = table.columns.get(at).map_or("", |column| column.name.as_str());
                let stands = |ratio| is_marked || head.contains(PAIRED) || follows(ratio, row);
                if ratio(cell).is_some_and(|ratio| !stands(ratio)) {
                    found.push(format!("{}: {head} {} of {}", table.label, cell.text, row[0].text));
                }
            }
        }
    }
    found
}

/// Tables of shares of which neither each column nor each row is within a whole.
fn exceeding(report: &Report<'_>) -> Vec<String> {
    // Not parts of a whole: how often rounds were slower.
    const NO_PARTS: [&str; 1] = ["slower in"];
    let mut found = Vec::new();
    for (table, _) in tables(report) {
        let share = |at: usize, cell: &Cell| {
            let head = table.columns.get(at)?.name.as_str();
            let (value, half, unit) = figure(&cell.text)?;
            let is_share = unit == "%" || (unit.is_empty() && matches!(head, "%" | "in service %"));
            (is_share && !NO_PARTS.contains(&head)).then_some((value, half))
        };
        let sum = |cells: Vec<(f64, f64)>| cells.iter().map(|(value, half)| value - half).sum::<f64>();
        let of_column = |at: usize| sum(rows(table).filter_map(|row| share(at, row.get(at)?)).collect());
        let of_row = |row: &Vec<Cell>| sum(row.iter().enumerate().filter_map(|(at, cell)| share(at, cell)).collect());
        let columns = (0..table.columns.len()).all(|at| of_column(at) <= 100.0);
        if !columns && !rows(table).all(|row| of_row(row) <= 100.0) {
            found.push(table.label.clone());
        }
    }
    found
}

/// Rows whose verdict is not that of the interval beside it.
fn contradicting(report: &Report<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (table, _) in tables(report) {
        let column = |is: &dyn Fn(&str) -> bool| table.columns.iter().position(|column| is(&column.name));
        let Some(verdict) = column(&|name| name == "verdict") else { continue };
        let before = &table.columns[..verdict];
        let Some(interval) = before.iter().rposition(|c| c.name == "95 % CI") else { continue };
        for row in rows(table) {
            let (Some(said), Some(range)) = (row.get(verdict), row.get(interval)) else { continue };
            let ends: Vec<f64> =
                range.text.split('–').filter_map(|end| Some(figure(end.trim_start_matches('×'))?.0)).collect();
            let agrees = match (said.text.split_whitespace().next().unwrap_or_default(), ends.as_slice()) {
                ("slower", [low, _]) => *low >= 1.0,
                ("faster", [_, high]) => *high <= 1.0,
                ("equivalent", [low, high]) => *low > 0.8 && *high < 1.2,
                // Marked: of this metric alone, and a note says so.
                ("inconclusive", _) if range.text.starts_with('†') => {
                    table.notes.iter().any(|note| note.starts_with("† Excludes ×1 for this metric alone"))
                }
                ("inconclusive", [low, high]) => *low <= 1.0 && *high >= 1.0,
                ("slower" | "faster" | "equivalent", _) => false,
                (_, ends) => ends.is_empty() || said.text.is_empty(),
            };
            if !agrees {
                found.push(format!("{}: {}, {} of {}", table.label, said.text, range.text, row[0].text));
            }
        }
    }
    found
}

fn is_consistent(name: &str, report: &Report<'_>) {
    assert!(!tables(report).is_empty(), "{name} has no tables");
    let found = [unfounded(report), exceeding(report), contradicting(report)].concat();
    assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
}

/// A comparison of variants that cost so many times the first, with the rounds' noise.
fn compared(rounds: u32, costs: &[f64]) -> Recording {
    let mut recording = recording(&[Machine::TCG], rounds);
    let variants: Vec<Variant> =
        (0..=costs.len()).map(|i| Variant { name: format!("v{i}"), ..Variant::default() }).collect();
    let base = std::mem::take(&mut recording.trials);
    for (variant, cost) in variants.iter().zip([&1.0].into_iter().chain(costs)) {
        for trial in &base {
            let mut trial = trial.clone();
            trial.variant.clone_from(&variant.name);
            if let Outcome::Done { result } = &mut trial.outcome {
                for (i, measure) in result.measures.iter_mut().enumerate() {
                    let drift = 1.0 + 0.3 * f64::from((trial.round * 7 + i as u32) % 5);
                    let noise = 1.0 + 0.01 * f64::from((trial.round * 3 + variant.name.len() as u32 + i as u32) % 4);
                    let cost = drift * if variant.name == "v0" { 1.0 } else { cost * noise };
                    let is_rate = measure.metric.better() == Better::Higher;
                    measure.value = if is_rate { measure.value / cost } else { measure.value * cost };
                }
            }
            recording.trials.push(trial);
        }
    }
    let settings = Compare { min_effect: 0.02, budget_s: None };
    recording.plan.study = Study::Compare(CompareSpec { settings, command: None });
    recording.plan.variants = variants;
    recording
}

fn golden() -> Recording {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/recording/tests/golden/schema-1");
    vmtax_recording::open(folder.as_ref()).unwrap()
}

#[test]
fn an_overhead_is_founded() {
    for recording in [golden(), recording(THREE, 8), recording(THREE, 1)] {
        let found = findings(&recording);
        is_consistent("overhead", &vmtax_report::overhead::report(&recording, &found));
    }
}

#[test]
fn a_comparison_is_founded() {
    for (rounds, costs) in [(20, &[1.0, 1.3, 0.7][..]), (7, &[1.05]), (2, &[3.0])] {
        let recording = compared(rounds, costs);
        let found = vmtax_analysis::compare(&recording.plan, &recording.trials);
        assert_eq!(found.against.len(), costs.len());
        is_consistent("compare", &vmtax_report::compare::report(Some(&recording), &found, None));
    }
}

#[test]
fn what_is_found_by_layer_has_one_basis() {
    for (rounds, found) in [(8, varied(8)), (1, plain(1))] {
        let recording = layers_recording(rounds);
        is_consistent("layers", &vmtax_report::layers::report(&recording, &found));
    }
    is_consistent("exits", &vmtax_report::exits::report(&exits()));
}

#[test]
fn states_of_threads_are_of_the_same_time() {
    let wait = |fraction| StateWait { reason: WaitFor::Io, call: "ppoll".into(), below: String::new(), fraction };
    let thread = |tid, running, runnable: f64| ThreadStates {
        tid,
        name: "vCPU".into(),
        running,
        runnable: Some(runnable),
        waits: vec![wait(1.0 - running - runnable)],
        ..ThreadStates::default()
    };
    let threads = vec![thread(1, 0.25, 0.6), thread(2, 0.9, 0.05)];
    let states = StateFindings { seconds: 1.0, threads, ..StateFindings::default() };
    let found = ProfileFindings { samples: 7, states: Some(states), ..ProfileFindings::default() };
    let pictures = vmtax_report::profile::Pictures::default();
    is_consistent("profile", &vmtax_report::profile::report(&found, &pictures, vmtax_report::Origin::default()));
}

/// What each rule is for is found.
#[test]
fn what_contradicts_itself_is_found() {
    let recording = compared(20, &[1.3]);
    let found = vmtax_analysis::compare(&recording.plan, &recording.trials);
    let mut report = vmtax_report::compare::report(Some(&recording), &found, None);
    assert!(unfounded(&report).is_empty() && contradicting(&report).is_empty());
    for table in tables_mut(&mut report) {
        table.columns.iter_mut().for_each(|column| column.name = column.name.replace("paired median", "cost"));
        table.notes.clear();
        for row in &mut table.rows {
            if let Row::Cells(cells) = row {
                cells
                    .iter_mut()
                    .filter(|cell| cell.text.starts_with("slower by"))
                    .for_each(|cell| cell.text = "faster".into());
            }
        }
    }
    assert!(!unfounded(&report).is_empty() && !contradicting(&report).is_empty());

    let row = |cells: &[&str]| Row::Cells(cells.iter().map(|text| Cell::from(*text)).collect());
    let columns = ["thread", "running", "runnable"].map(vmtax_report::Column::figures).to_vec();
    let of = |first: &[&str]| {
        let rows = vec![row(first), row(&["b", "50 %", "50 %"])];
        let table = Table { rows, ..Table::new("states", columns.clone()) };
        let sections = vec![vmtax_report::Section::new("", vec![Block::Table(table)])];
        Report { sections, ..Report::default() }
    };
    assert!(exceeding(&of(&["a", "84 %", "16 %"])).is_empty(), "each row is a whole");
    assert_eq!(exceeding(&of(&["a", "84 %", "60 %"])), ["states"]);
    assert!(follows((1.22, 0.005), &["160.9 µs", "196.7 µs"].map(Cell::from)));
    assert!(!follows((1.125, 0.0005), &["160.9 µs", "196.7 µs"].map(Cell::from)));
    assert!(follows((2.0, 0.05), &["500 µs", "1 ms"].map(Cell::from)), "units are of one scale");
}

fn tables_mut<'r>(report: &'r mut Report<'_>) -> Vec<&'r mut Table> {
    fn walk<'r>(blocks: &'r mut [Block<'_>], found: &mut Vec<&'r mut Table>) {
        for block in blocks {
            match block {
                Block::Table(table) => found.push(table),
                Block::Figure(figure) => {
                    figure.caption.clear();
                    found.extend(figure.table.as_mut());
                }
                Block::Folded(_, blocks) => walk(blocks, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    report.sections.iter_mut().for_each(|section| walk(&mut section.blocks, &mut found));
    found
}
