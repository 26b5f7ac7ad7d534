//! A line of a report's tables and pictures: a metric, or a figure that a command printed of itself.

use crate::number::ratio;
use crate::text::Joined;
use crate::view::by_workload;
use crate::view::verdict::Pair;
use vmtax_findings::{Estimate, Findings, MachineColumn, PrintedRow};
use vmtax_model::{Machine, Metric, TrialRecord, Unit};

/// Heading of figures that a person named.
const NAMED: &str = "--metric";

/// A line, and how it was found.
#[derive(Clone, Copy)]
pub struct MetricRow<'a> {
    /// Heading of the row, common to the rows of its group.
    pub group: &'a str,
    /// Name of the row below its heading.
    pub label: &'a str,
    /// The unit of its figures.
    pub unit: Unit,
    /// Figures of the row, by machine.
    pub machines: &'a [MachineColumn],
    what: What<'a>,
}

#[derive(Clone, Copy)]
enum What<'a> {
    Metric(Metric),
    Printed(&'a PrintedRow),
}

/// The metrics of findings, workload by workload.
pub fn metrics(findings: &Findings) -> Vec<MetricRow<'_>> {
    let groups = by_workload(&findings.rows, |row| row.metric).into_iter();
    let rows = groups.flat_map(|(_, rows)| rows).map(|row| MetricRow {
        group: row.metric.workload().as_str(),
        label: row.metric.label(),
        unit: row.metric.unit(),
        machines: &row.machines,
        what: What::Metric(row.metric),
    });
    rows.collect()
}

/// Returns the metrics of findings and, below them, the figures that a command printed.
pub fn with_printed<'a>(findings: &'a Findings, printed: &'a [PrintedRow]) -> Vec<MetricRow<'a>> {
    let row = |row: &'a PrintedRow| MetricRow {
        group: if row.of.is_empty() { NAMED } else { &row.of },
        label: &row.name,
        unit: row.unit,
        machines: &row.machines,
        what: What::Printed(row),
    };
    let all = metrics(findings).into_iter();
    all.chain(printed.iter().map(row)).collect()
}

/// Returns the rows in groups: neighbors with the same heading.
pub fn groups<'r, 'a>(
    rows: &'r [MetricRow<'a>],
) -> impl Iterator<Item = (&'a str, &'r [MetricRow<'a>])> {
    rows.chunk_by(|a, b| a.group == b.group)
        .filter_map(|rows| Some((rows.first()?.group, rows)))
}

/// A note on those of which nobody said which way is better, and which are compared with native all the same.
pub fn undirected(rows: &[MetricRow]) -> Option<String> {
    let undirected =
        |row: &&MetricRow| matches!(row.what, What::Printed(printed) if printed.better.is_none());
    let rows = rows
        .iter()
        .filter(undirected)
        .filter(|row| row.is_compared());
    let labels = rows.map(|row| row.label).joined(", ");
    let which = "which way is better is not known: × is the guest's figure over native's. NAME:higher or NAME:lower says it";
    (!labels.is_empty()).then(|| format!("Of {labels} {which}."))
}

impl<'a> MetricRow<'a> {
    /// A machine's cost by the rounds, native's median and the machine's.
    fn pair(&self, column: &MachineColumn) -> Option<Pair> {
        Some(Pair {
            cost: column.overhead.as_ref()?.ratio.median,
            base: self.column(Machine::NATIVE)?.spread.as_ref()?.median,
            other: column.spread.as_ref()?.median,
            better: match self.what {
                What::Metric(metric) => Some(metric.better()),
                What::Printed(printed) => printed.better,
            },
        })
    }

    /// A machine's cost over native's, marked where the two medians differ the other way.
    pub fn paired(&self, column: &MachineColumn, cost: &Estimate) -> String {
        let pair = self.pair(column);
        pair.map_or_else(|| ratio(cost.median), Pair::text)
    }

    /// Returns true if [`MetricRow::paired`] marks any machine's cost.
    pub fn is_opposed(&self) -> bool {
        let mut pairs = self.machines.iter().filter_map(|column| self.pair(column));
        pairs.any(Pair::is_opposed)
    }

    /// Returns true if a machine is compared with native.
    pub fn is_compared(&self) -> bool {
        self.machines.iter().any(|column| column.overhead.is_some())
    }

    /// A machine's column.
    pub fn column(&self, machine: Machine) -> Option<&'a MachineColumn> {
        self.machines.iter().find(|c| c.machine == machine)
    }

    /// The values on a machine with their rounds, as the trials gave them.
    pub fn rounds(&self, trials: &[TrialRecord], machine: Machine) -> Vec<(u32, f64)> {
        let trials = trials.iter().filter(|trial| trial.machine == machine);
        let values = trials.filter_map(|trial| {
            let result = trial.result()?;
            let value = match self.what {
                What::Metric(metric) => result.value(metric)?,
                What::Printed(row) => {
                    let mut printed = trial.execution.iter().flat_map(|e| &e.printed);
                    printed
                        .find(|p| p.of == row.of && p.name == row.name)?
                        .value
                }
            };
            Some((trial.round, value))
        });
        values.filter(|(_, v)| v.is_finite()).collect()
    }
}
