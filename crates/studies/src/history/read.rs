//! Reading runs back. Nothing in the file is trusted: what is no figure or has no name here is passed over.

use super::entry::{Entry, Fact, Figure};
use super::ledger::{Ledger, LedgerError, failed};
use super::time_limit::TimeLimit;
use rusqlite::{Connection, Row};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vmtax_model::{
    Estimate, HistoryEntry, Interval, Machine, Metric, PastFigure, PastRun, SeriesKey,
};

/// When a run began, its plan's name, the host's CPU and name.
pub(super) type RunOfHost = (String, String, String, Option<String>);

/// Most rows read of a damaged database, for each table and run; no intact one has nearly as many.
const MAX_ROWS: usize = 100_000;
/// Longest time to read a damaged database.
const SALVAGE_TIME: Duration = Duration::from_secs(5);

impl Ledger {
    /// Returns the metrics in the database by machine, each with its number of runs and series.
    ///
    /// # Errors
    /// [`LedgerError`] when the database is locked or cannot be read.
    pub fn list(&self) -> Result<Vec<HistoryEntry>, LedgerError> {
        let all = "SELECT metric, machine,
                          count(DISTINCT run), count(DISTINCT json_array(variant, rung, settings, cpu, cpus)),
                          min(started), max(started)
                   FROM figure JOIN run ON run.id = figure.run GROUP BY metric, machine";
        let entry = |row: &Row| -> rusqlite::Result<Option<HistoryEntry>> {
            let Some((metric, machine)) = names(row)? else {
                return Ok(None);
            };
            let (runs, series, first, last) = (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
            Ok(Some(HistoryEntry {
                metric,
                machine,
                runs,
                series,
                first,
                last,
            }))
        };
        let mut entries: Vec<HistoryEntry> =
            self.select(all, [], entry)?.into_iter().flatten().collect();
        entries.sort_by_key(|e| (e.metric, e.machine));
        Ok(entries)
    }

    /// A metric's figures with what they were measured under, on one machine or all.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger is locked or cannot be read.
    pub fn figures(
        &self,
        metric: Metric,
        machine: Option<Machine>,
    ) -> Result<Vec<(SeriesKey, PastFigure)>, LedgerError> {
        let facts = self.facts()?;
        let all = "SELECT metric, machine, variant, rung, settings, n, median, low, high, coverage,
                          run, folder, started, name, cpu, cpus
                   FROM figure JOIN run ON run.id = figure.run WHERE metric = ?1";
        let figures = self.select(all, [metric.id()], |row| {
            let figure = figure(row, 0)?;
            let (run, cpu, cpus) = (
                row.get::<_, i64>(10)?,
                row.get::<_, String>(14)?,
                row.get::<_, u32>(15)?,
            );
            let past = PastRun {
                folder: row.get(11)?,
                started: row.get(12)?,
                name: row.get(13)?,
                recorded: true,
            };
            Ok((
                figure,
                run,
                past,
                format!("{cpu}, {cpus} CPU{}", if cpus == 1 { "" } else { "s" }),
            ))
        })?;
        let runs = self.path.parent().unwrap_or(&self.path);
        let past = |(figure, id, run, host): (Option<Figure>, i64, PastRun, String)| {
            let figure = figure?;
            let on: Machine = figure.machine.parse().ok()?;
            let facts_for = |machine: &str, variant: &str| {
                facts.get(&(id, machine.to_owned(), variant.to_owned()))
            };
            let (host_s, own) = (
                facts_for("", ""),
                facts_for(&figure.machine, &figure.variant),
            );
            let facts = host_s
                .into_iter()
                .chain(own)
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let recorded = runs.join(&run.folder).is_dir();
            let settings = serde_json::from_str(&figure.settings).ok()?;
            let key = SeriesKey {
                machine: on,
                variant: figure.variant,
                step: figure.step,
                host,
                settings,
            };
            Some((
                key,
                PastFigure {
                    run: PastRun { recorded, ..run },
                    n: figure.n,
                    value: figure.value,
                    facts,
                },
            ))
        };
        let all = figures.into_iter().filter_map(past);
        Ok(all
            .filter(|(key, _)| machine.is_none_or(|m| m == key.machine))
            .collect())
    }

    /// The folders of the runs that are known.
    pub(crate) fn folders(&self) -> Result<Vec<String>, LedgerError> {
        self.select("SELECT folder FROM run", [], |row| row.get(0))
    }

    /// Of all runs when they began, the plan's name, the host's CPU and, where it is known, its name.
    pub(super) fn runs(&self) -> Result<Vec<RunOfHost>, LedgerError> {
        let all = "SELECT started, run.name, cpu, fact.value FROM run LEFT JOIN fact
                   ON fact.run = run.id AND fact.machine = '' AND fact.variant = '' AND fact.name = 'host'";
        self.select(all, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
    }

    /// Facts of all runs, by run, machine and variant.
    #[allow(clippy::type_complexity)] // a key and its map, used once
    fn facts(
        &self,
    ) -> Result<BTreeMap<(i64, String, String), BTreeMap<String, String>>, LedgerError> {
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let rows = self.select(
            "SELECT run, machine, variant, name, value FROM fact",
            [],
            |row| {
                Ok((
                    (row.get(0)?, row.get(1)?, row.get(2)?),
                    row.get(3)?,
                    row.get(4)?,
                ))
            },
        )?;
        for (key, name, value) in rows {
            all.entry(key).or_default().insert(name, value);
        }
        Ok(all)
    }

    pub(super) fn select<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        row: impl FnMut(&Row) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, LedgerError> {
        let select = || -> rusqlite::Result<Vec<T>> {
            self.connection
                .prepare(sql)?
                .query_map(parameters, row)?
                .collect()
        };
        select().map_err(failed(&self.path))
    }
}

/// Every run of a ledger that can be read, where it may be damaged anywhere.
pub(crate) fn entries(ledger: &Connection) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let _limit = TimeLimit::start(ledger, SALVAGE_TIME);
    // From both ends, since a read ends at what is damaged.
    for (order, next) in [("ASC", Ordering::Greater), ("DESC", Ordering::Less)] {
        let sql = format!(
            "SELECT id, folder, started, name, command, cpu, cpus FROM run ORDER BY id {order}"
        );
        let Ok(mut statement) = ledger.prepare(&sql) else {
            continue;
        };
        let Ok(mut rows) = statement.query([]) else {
            continue;
        };
        let mut last: Option<i64> = None;
        for _ in 0..MAX_ROWS {
            let Ok(Some(row)) = rows.next() else { break };
            let Ok(id) = row.get::<_, i64>(0) else { break };
            // Damaged pages can lead in a circle.
            if last.is_some_and(|last| id.cmp(&last) != next) {
                break;
            }
            last = Some(id);
            found.extend(
                entry(ledger, row)
                    .ok()
                    .filter(|entry| seen.insert(entry.folder.clone())),
            );
        }
    }
    found
}

fn entry(ledger: &Connection, row: &Row) -> rusqlite::Result<Entry> {
    let run: i64 = row.get(0)?;
    let facts = ledger
        .prepare("SELECT machine, variant, name, value FROM fact WHERE run = ?1")?
        .query_map([run], |row| {
            Ok(Fact {
                machine: row.get(0)?,
                variant: row.get(1)?,
                name: row.get(2)?,
                value: row.get(3)?,
            })
        })?
        .take(MAX_ROWS)
        .collect::<Result<_, _>>()?;
    let figures: Vec<Option<Figure>> = ledger
        .prepare(
            "SELECT metric, machine, variant, rung, settings, n, median, low, high, coverage FROM figure WHERE run = ?1",
        )?
        .query_map([run], |row| figure(row, 0))?
        .take(MAX_ROWS)
        .collect::<Result<_, _>>()?;
    Ok(Entry {
        folder: row.get(1)?,
        started: row.get(2)?,
        name: row.get(3)?,
        command: row.get(4)?,
        cpu: row.get(5)?,
        cpus: row.get(6)?,
        facts,
        figures: figures.into_iter().flatten().collect(),
    })
}

/// A figure from ten columns; `None` when it is none.
fn figure(row: &Row, first: usize) -> rusqlite::Result<Option<Figure>> {
    let number = |column: usize| row.get::<_, Option<f64>>(first + column);
    let interval = match (number(7)?, number(8)?, number(9)?) {
        (Some(low), Some(high), Some(coverage)) => Some(Interval {
            low,
            high,
            coverage,
        }),
        _ => None,
    };
    let value = Estimate {
        median: row.get(first + 6)?,
        interval,
    };
    let sound = value.median.is_finite()
        && interval.is_none_or(|i| i.low <= i.high && i.coverage.is_finite());
    let (n, text) = (row.get(first + 5)?, |column: usize| {
        row.get::<_, String>(first + column)
    });
    let figure = Figure {
        metric: text(0)?,
        machine: text(1)?,
        variant: text(2)?,
        step: text(3)?,
        settings: text(4)?,
        n,
        value,
    };
    Ok(Some(figure).filter(|_| sound))
}

/// Metric and machine in the first two columns; `None` for those of another vmtax.
fn names(row: &Row) -> rusqlite::Result<Option<(Metric, Machine)>> {
    let (metric, machine): (String, String) = (row.get(0)?, row.get(1)?);
    Ok(metric.parse().ok().zip(machine.parse().ok()))
}
