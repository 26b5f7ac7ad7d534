//! Runs as rows of a table, one for each figure, and back. docs/history.md is the schema.

use super::entry::{Entry, Figure};
use std::path::Path;
use vmtax_export::table::{Cell, Column, Group, Problem, Rows, Texts, for_each_group, text, words};
use vmtax_model::{Estimate, Interval};

const TEXTS: [&str; 13] = [
    "run", "folder", "started", "plan", "cpu", "vm", "kept", "metric", "machine", "variant",
    "step", "settings", "facts",
];
/// A figure's interval.
const LIMITS: [&str; 3] = ["low", "high", "coverage"];

pub fn rows(runs: &[Entry]) -> Rows {
    let mut columns: Vec<_> = TEXTS.map(text).into();
    columns.push(("rounds", Column::Int(vec![])));
    columns.push(("median", Column::Float(vec![])));
    columns.extend(LIMITS.map(|name| (name, Column::MaybeFloat(vec![]))));
    let mut rows = Rows::new(columns);
    for (run, f) in runs
        .iter()
        .flat_map(|run| run.figures.iter().map(move |f| (run, f)))
    {
        let texts = [
            &run.id,
            &run.folder,
            &run.started,
            &run.plan,
            &run.cpu,
            &run.vm,
            &run.kept,
            &f.metric,
            &f.machine,
            &f.variant,
            &f.step,
            &f.settings,
            &f.facts,
        ];
        let mut row: Vec<Cell> = texts.map(|text| words(text)).into();
        row.extend([Cell::Int(f.n), Cell::Float(f.value.median)]);
        let limits = f.value.interval.map(|i| [i.low, i.high, i.coverage]);
        row.extend((0..LIMITS.len()).map(|i| Cell::MaybeFloat(limits.map(|limits| limits[i]))));
        rows.push(row);
    }
    rows
}

/// Reads the runs of a file. Nothing in it is trusted: what is no figure is passed over.
///
/// # Errors
/// [`Problem`] of the file, from which nothing is taken then.
pub fn read(path: &Path, texts: &mut Texts) -> Result<Vec<Entry>, Problem> {
    let mut runs = Vec::new();
    for_each_group(path, |group| read_group(group, texts, &mut runs))?;
    Ok(runs)
}

fn read_group(group: &mut Group, texts: &mut Texts, runs: &mut Vec<Entry>) -> Result<(), Problem> {
    let columns = TEXTS
        .into_iter()
        .map(|name| group.needed_texts(name, texts));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rounds = group.longs("rounds")?.ok_or(Problem::Column("rounds"))?;
    let median = group.floats("median")?;
    let limits = LIMITS.into_iter().map(|name| group.floats(name));
    let limits = limits.collect::<Result<Vec<_>, _>>()?;
    for row in 0..group.rows {
        // In the order of `TEXTS`.
        let mut row_texts = columns.iter().map(|column| texts.shared(column[row]));
        let mut next = || row_texts.next().unwrap_or_default();
        let run = Entry {
            id: next(),
            folder: next(),
            started: next(),
            plan: next(),
            cpu: next(),
            vm: next(),
            kept: next(),
            figures: Vec::new(),
        };
        // Runs of one command that began in one second share the ID, as copies do.
        let is_same = |last: &Entry| last.id == run.id && last.folder == run.folder;
        if !runs.last().is_some_and(is_same) {
            runs.push(run);
        }
        let number = rounds[row].and_then(|n| u32::try_from(n).ok());
        let value =
            median[row].and_then(|median| estimate(median, [0, 1, 2].map(|i| limits[i][row])));
        if let (Some(run), Some(n), Some(value)) = (runs.last_mut(), number, value) {
            run.figures.push(Figure {
                metric: next(),
                machine: next(),
                variant: next(),
                step: next(),
                settings: next(),
                facts: next(),
                n,
                value,
            });
        }
    }
    Ok(())
}

fn estimate(median: f64, limits: [Option<f64>; 3]) -> Option<Estimate> {
    let interval = match limits {
        [Some(low), Some(high), Some(coverage)] => Some(Interval {
            low,
            high,
            coverage,
        }),
        _ => None,
    };
    let is_sound =
        median.is_finite() && interval.is_none_or(|i| i.low <= i.high && i.coverage.is_finite());
    is_sound.then_some(Estimate { median, interval })
}
