//! No page contradicts itself: each ratio on it follows from figures beside it or is marked as paired, shares of one table
//! have one basis, a verdict agrees with the interval beside it. Read from the tables as every format gets them.

use crate::common::layers::{layers_recording, plain, varied};
use crate::common::studies::{
    antipatterns, command, compared, exits, grown, regressed, reproduced, shared, states,
};
use crate::common::{THREE, findings, recording};
use vmtax_analysis::Side;
use vmtax_findings::*;
use vmtax_model::*;
use vmtax_recording::Recording;
use vmtax_report::{Block, Cell, Report, Row, Table};

const PAIRED: &str = "paired";

/// Each table of a report, with the texts that stand by it.
fn tables<'r>(report: &'r Report<'_>) -> Vec<(&'r Table, Vec<&'r str>)> {
    fn walk<'r>(
        blocks: &'r [Block<'_>],
        beside: &[&'r str],
        found: &mut Vec<(&'r Table, Vec<&'r str>)>,
    ) {
        for block in blocks {
            let table_with_notes = |table: &'r Table, caption: Option<&'r String>| {
                let notes = table.notes.iter().chain(caption).map(String::as_str);
                (table, beside.iter().copied().chain(notes).collect())
            };
            match block {
                Block::Table(table) => found.push(table_with_notes(table, None)),
                Block::Figure(figure) => found.extend(
                    figure
                        .table
                        .iter()
                        .map(|t| table_with_notes(t, Some(&figure.caption))),
                ),
                Block::Folded(_, blocks) => walk(blocks, beside, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for section in &report.sections {
        let beside: Vec<&str> = section
            .blocks
            .iter()
            .filter_map(text)
            .chain([section.title.as_str()])
            .collect();
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
    let text = text
        .trim()
        .replace(['\u{a0}', '\u{202f}'], " ")
        .replace(',', "");
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let value: f64 = digits.parse().ok()?;
    let places = digits
        .split_once('.')
        .map_or(0, |(_, places)| places.len() as i32);
    let unit = unit.trim();
    let (scale, unit) = match unit {
        "ns" => (1e-9, "s"),
        "µs" => (1e-6, "s"),
        "ms" => (1e-3, "s"),
        _ => (1.0, unit),
    };
    Some((
        value * scale,
        0.5 * 10_f64.powi(-places) * scale,
        unit.to_owned(),
    ))
}

/// Each "×1.28" of a text. The ends of an interval are no ratio of two figures.
fn ratios(text: &str) -> Vec<(f64, f64)> {
    let mut found = Vec::new();
    let mut is_end = false;
    for rest in text.split('×').skip(1) {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ','))
            .unwrap_or(rest.len());
        let is_begin = rest[end..].starts_with('–') || rest[end..].trim_end() == " to";
        let ratio = figure(rest[..end].trim_end_matches(['.', ',']));
        found.extend(
            ratio
                .filter(|_| !is_begin && !is_end)
                .map(|(value, half, _)| (value, half)),
        );
        is_end = is_begin && rest[end..].trim_end() == " to";
    }
    found
}

/// The figures of a sentence.
fn figures_in(text: &str) -> Vec<Cell> {
    let text = text.replace(['\u{a0}', '\u{202f}'], " ");
    let words: Vec<&str> = text
        .split(' ')
        .map(|word| word.trim_matches(['.', ',', ';', '(', ')']))
        .collect();
    words
        .windows(2)
        .filter(|pair| figure(pair[0]).is_some())
        .map(|pair| Cell::from(pair.join(" ")))
        .collect()
}

/// Returns true if two figures of the row have this ratio, either way round, as far as their digits go.
fn follows((value, half): (f64, f64), row: &[Cell]) -> bool {
    let figures: Vec<_> = row
        .iter()
        .filter_map(|cell| figure(cell.text.split('×').next()?))
        .collect();
    let quotients = figures.iter().enumerate().flat_map(|(i, a)| {
        let others = figures
            .iter()
            .enumerate()
            .filter(move |(j, b)| i != *j && a.2 == b.2 && b.0 - b.1 > 0.0);
        others.map(move |(_, b)| ((a.0 - a.1) / (b.0 + b.1), (a.0 + a.1) / (b.0 - b.1)))
    });
    quotients
        .into_iter()
        .any(|(low, high)| low <= value + half && high >= value - half)
}

/// The ratios that follow from nothing.
fn unfounded(report: &Report<'_>) -> Vec<String> {
    // What a ratio is compared with is asked for, not measured.
    const NOT_MEASURED: [&str; 2] = ["limit", "criterion"];
    // A statement that has both figures has their ratio.
    const BESIDE: [&str; 2] = [" instead of ", " natively"];
    let mut found = Vec::new();
    for (table, beside) in tables(report) {
        let is_marked = beside
            .iter()
            .any(|text| text.contains(PAIRED) || text.contains("Paired"));
        for row in rows(table) {
            for (at, cell) in row.iter().enumerate() {
                let head = table
                    .columns
                    .get(at)
                    .map_or("", |column| column.name.as_str());
                let stands = |ratio| is_marked || head.contains(PAIRED) || follows(ratio, row);
                if !NOT_MEASURED.contains(&head)
                    && ratios(&cell.text).into_iter().any(|ratio| !stands(ratio))
                {
                    found.push(format!(
                        "{}: {head} {} of {}",
                        table.label, cell.text, row[0].text
                    ));
                }
            }
        }
    }
    let in_tables: Vec<(f64, f64)> = tables(report)
        .iter()
        .flat_map(|(table, _)| rows(table))
        .flatten()
        .flat_map(|cell| ratios(&cell.text))
        .collect();
    for text in sentences(report) {
        let is_in_a_table = |ratio: &(f64, f64)| {
            in_tables
                .iter()
                .any(|of| (of.0 - ratio.0).abs() <= of.1 + ratio.1)
        };
        let stands = |ratio: &(f64, f64)| {
            text.to_lowercase().contains(PAIRED)
                || follows(*ratio, &figures_in(text))
                || (!BESIDE.iter().any(|beside| text.contains(beside)) && is_in_a_table(ratio))
        };
        if ratios(text).iter().any(|ratio| !stands(ratio)) {
            found.push(text.to_owned());
        }
    }
    found
}

/// Returns the text about the figures outside of tables.
fn sentences<'r>(report: &'r Report<'_>) -> impl Iterator<Item = &'r str> {
    let tiles = report
        .tiles
        .iter()
        .flat_map(|tile| [&tile.figure, &tile.text, &tile.limits]);
    let notices = report.notices.iter().flat_map(|notice| &notice.items);
    let advice = report.advice.iter().map(|advice| &advice.finding);
    [&report.answer]
        .into_iter()
        .chain(tiles)
        .chain(notices)
        .chain(advice)
        .map(String::as_str)
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
            let is_share =
                unit == "%" || (unit.is_empty() && matches!(head, "%" | "of it service time, %"));
            (is_share && !NO_PARTS.contains(&head)).then_some((value, half))
        };
        let sum =
            |cells: Vec<(f64, f64)>| cells.iter().map(|(value, half)| value - half).sum::<f64>();
        let of_column = |at: usize| {
            sum(rows(table)
                .filter_map(|row| share(at, row.get(at)?))
                .collect())
        };
        let of_row = |row: &Vec<Cell>| {
            sum(row
                .iter()
                .enumerate()
                .filter_map(|(at, cell)| share(at, cell))
                .collect())
        };
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
        let column =
            |is: &dyn Fn(&str) -> bool| table.columns.iter().position(|column| is(&column.name));
        let Some(verdict) = column(&|name| name == "result") else {
            continue;
        };
        let before = &table.columns[..verdict];
        let Some(interval) = before.iter().rposition(|c| c.name == "95 % CI") else {
            continue;
        };
        for row in rows(table) {
            let (Some(said), Some(range)) = (row.get(verdict), row.get(interval)) else {
                continue;
            };
            let ends: Vec<f64> = range
                .text
                .split('–')
                .filter_map(|end| Some(figure(end.trim_start_matches('×'))?.0))
                .collect();
            // A rate that is lower is a larger cost.
            let is_rate = row[0]
                .text
                .parse()
                .is_ok_and(|metric: Metric| metric.better() == Better::Higher);
            let word = match said.text.split_whitespace().next_back().unwrap_or_default() {
                "lower" if is_rate => "slower",
                "higher" | "high" if is_rate => "faster",
                "lower" => "faster",
                "higher" | "high" => "slower",
                _ => said.text.split_whitespace().next().unwrap_or_default(),
            };
            let agrees = match (word, ends.as_slice()) {
                ("slower", [low, _]) => *low >= 1.0,
                ("faster", [_, high]) => *high <= 1.0,
                ("equivalent", [low, high]) => *low > 0.8 && *high < 1.2,
                // Marked: of this metric alone, and a note says so.
                ("inconclusive", _) if range.text.starts_with('†') => table
                    .notes
                    .iter()
                    .any(|note| note.starts_with("† Excludes ×1 for this metric alone")),
                ("inconclusive", [low, high]) => *low <= 1.0 && *high >= 1.0,
                ("slower" | "faster" | "equivalent", _) => false,
                (_, ends) => ends.is_empty() || said.text.is_empty(),
            };
            if !agrees {
                found.push(format!(
                    "{}: {}, {} of {}",
                    table.label, said.text, range.text, row[0].text
                ));
            }
        }
    }
    found
}

/// Rows of a check whose outcome is not what the lower end of the interval and the limit beside it say.
fn unchecked(report: &Report<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (table, _) in tables(report) {
        let column =
            |is: &dyn Fn(&str) -> bool| table.columns.iter().position(|column| is(&column.name));
        let (Some(interval), Some(limit)) = (
            column(&|n| n.ends_with(" CI")),
            column(&|n| n == "threshold"),
        ) else {
            continue;
        };
        let outcome = column(&|name| name == "result").unwrap();
        for row in rows(table) {
            let low = row[interval]
                .text
                .split('–')
                .next()
                .and_then(|low| Some(figure(low)?.0));
            let limit = ratios(&row[limit].text)[0].0;
            let agrees = match (row[outcome].text.as_str(), low) {
                ("worse", Some(low)) => low >= limit,
                ("passed", Some(low)) => low <= limit,
                ("too few rounds", None) => true,
                _ => false,
            };
            if !agrees {
                found.push(format!(
                    "{}: {}, {} of {}",
                    table.label, row[outcome].text, row[interval].text, row[0].text
                ));
            }
        }
    }
    found
}

fn is_consistent(name: &str, report: &Report<'_>) {
    assert!(!tables(report).is_empty(), "{name} has no tables");
    let found = [
        unfounded(report),
        exceeding(report),
        contradicting(report),
        unchecked(report),
    ]
    .concat();
    assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
}

fn golden() -> Recording {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../base/recording/tests/golden/schema-1"
    );
    vmtax_recording::open(folder.as_ref()).unwrap()
}

#[test]
fn an_overhead_is_founded() {
    for recording in [golden(), recording(THREE, 8), recording(THREE, 1)] {
        let found = findings(&recording);
        is_consistent(
            "overhead",
            &vmtax_report::overhead::report(&recording, &found),
        );
    }
}

#[test]
fn a_comparison_is_founded() {
    for (rounds, costs) in [(20, &[1.0, 1.3, 0.7][..]), (7, &[1.05]), (2, &[3.0])] {
        let recording = compared(rounds, costs);
        let found = vmtax_analysis::compare(&recording.plan, &recording.trials);
        assert_eq!(found.against.len(), costs.len());
        is_consistent(
            "compare",
            &vmtax_report::compare::report(Some(&recording), &found, None),
        );
    }
}

/// Of two recordings there are no rounds to pair by: each round of one with each of the other.
#[test]
fn a_comparison_of_recordings_and_a_check_are_founded() {
    use vmtax_analysis::{check, compare_recordings};
    let [baseline, worse] = regressed();
    let few = recording(THREE, 1);
    fn side<'a>(name: &'a str, recording: &'a Recording) -> Side<'a> {
        Side {
            name,
            plan: &recording.plan,
            trials: &recording.trials,
        }
    }
    let mut one = recording(&[Machine::NATIVE], 8);
    let cpu = one
        .trials
        .iter_mut()
        .filter_map(|trial| match &mut trial.outcome {
            Outcome::Done { result } if trial.workload.name == WorkloadName::Cpu => Some(result),
            _ => None,
        });
    cpu.for_each(|result| result.measures[0].value *= 0.6);
    for now in [&worse, &few, &one] {
        let sides = [side("then", &baseline), side("now", now)];
        is_consistent(
            "compare",
            &vmtax_report::compare::report(None, &compare_recordings(&sides, 0.02), None),
        );
        let found = check(&sides[0], &sides[1], &Thresholds::default());
        assert!(found.rows.len() > 10 && (!std::ptr::eq(now, &one) || found.failed()));
        is_consistent("check", &vmtax_report::check::report(&found));
    }
}

#[test]
fn a_growth_is_founded_and_its_reproduction() {
    for rounds in [7, 2] {
        let (recording, found) = grown(rounds);
        let mut report = vmtax_report::growth::report(&recording, &found);
        is_consistent("scale", &report);
        vmtax_report::reproduction::put_first(&mut report, &reproduced(), &recording);
        is_consistent("reproduction", &report);
    }
}

#[test]
fn shares_of_a_tree_are_founded() {
    for (rounds, costs) in [(9, &[1.4, 0.6, 1.0][..]), (3, &[0.7, 1.1])] {
        let recording = shared(rounds, costs);
        let found = vmtax_analysis::shares(&recording.plan, &recording.trials);
        assert_eq!(found.columns.len(), costs.len() + 2);
        is_consistent("share", &vmtax_report::shares::report(&recording, &found));
    }
}

#[test]
fn a_command_and_its_parts_are_founded() {
    for rounds in [7, 2, 1] {
        let (recording, found) = command(rounds);
        assert!(!found.breakdowns.is_empty() && !found.printed.is_empty());
        is_consistent(
            "exec",
            &vmtax_report::exec::report(&recording, &found, None),
        );
    }
}

#[test]
fn antipatterns_are_founded() {
    for rounds in [7, 1] {
        let (recording, found) = antipatterns(rounds);
        assert_eq!(
            found.machines[0]
                .rows
                .iter()
                .filter(|row| row.ratio.is_some())
                .count(),
            Antipattern::ALL.len() - 1
        );
        is_consistent(
            "antipatterns",
            &vmtax_report::antipatterns::report(&recording, &found),
        );
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
    let pictures = vmtax_report::profile::Pictures::default();
    is_consistent(
        "profile",
        &vmtax_report::profile::report(&states(), &pictures, vmtax_report::Origin::default()),
    );
}

/// Contradictions that each rule is for are found.
#[test]
fn what_contradicts_itself_is_found() {
    let recording = compared(20, &[1.3]);
    let found = vmtax_analysis::compare(&recording.plan, &recording.trials);
    let mut report = vmtax_report::compare::report(Some(&recording), &found, None);
    assert!(unfounded(&report).is_empty() && contradicting(&report).is_empty());
    for table in tables_mut(&mut report) {
        table
            .columns
            .iter_mut()
            .for_each(|column| column.name = column.name.replace("slowdown (paired)", "slowdown"));
        table.notes.clear();
        for row in &mut table.rows {
            if let Row::Cells(cells) = row {
                cells
                    .iter_mut()
                    .filter(|cell| cell.text.ends_with("higher"))
                    .for_each(|cell| cell.text = "faster".into());
            }
        }
    }
    assert!(!unfounded(&report).is_empty() && !contradicting(&report).is_empty());
    for both in [
        "3.00 ms instead of 2.00 ms",
        "3.00 ms on kvm, 2.00 ms natively (medians)",
    ] {
        report.answer = format!("It takes {both}, ×1.30.");
        assert!(
            unfounded(&report).contains(&report.answer),
            "{both}: a ratio that is in a table, not theirs"
        );
        report.answer = format!("It takes {both}, ×1.50, in rounds ×1.2 to ×1.9.");
        assert!(!unfounded(&report).contains(&report.answer), "{both}");
    }
    let mut found = vmtax_analysis::check(
        &Side {
            name: "then",
            plan: &recording.plan,
            trials: &recording.trials,
        },
        &Side {
            name: "now",
            plan: &recording.plan,
            trials: &recording.trials,
        },
        &Thresholds::default(),
    );
    assert!(unchecked(&vmtax_report::check::report(&found)).is_empty());
    found.rows[0].comparison.verdict = Verdict::Slower;
    assert_eq!(unchecked(&vmtax_report::check::report(&found)).len(), 1);

    let row = |cells: &[&str]| Row::Cells(cells.iter().map(|text| Cell::from(*text)).collect());
    let columns = ["thread", "running", "runnable"]
        .map(vmtax_report::figures)
        .to_vec();
    let report_with = |first: &[&str]| {
        let rows = vec![row(first), row(&["b", "50 %", "50 %"])];
        let table = Table {
            rows,
            ..Table::new("states", columns.clone())
        };
        let sections = vec![vmtax_report::Section::new("", vec![Block::Table(table)])];
        Report {
            sections,
            ..Report::default()
        }
    };
    assert!(
        exceeding(&report_with(&["a", "84 %", "16 %"])).is_empty(),
        "each row is a whole"
    );
    assert_eq!(exceeding(&report_with(&["a", "84 %", "60 %"])), ["states"]);
    assert!(follows(
        (1.22, 0.005),
        &["160.9 µs", "196.7 µs"].map(Cell::from)
    ));
    assert!(!follows(
        (1.125, 0.0005),
        &["160.9 µs", "196.7 µs"].map(Cell::from)
    ));
    assert!(
        follows((2.0, 0.05), &["500 µs", "1 ms"].map(Cell::from)),
        "units are of one scale"
    );
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
    report
        .sections
        .iter_mut()
        .for_each(|section| walk(&mut section.blocks, &mut found));
    found
}
