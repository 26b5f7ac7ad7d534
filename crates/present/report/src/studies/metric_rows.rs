//! A line of a report's tables and pictures: a metric, or a figure that a command printed of itself.

use crate::view::{by_workload, verdict};
use vmtax_model::{
    Better, Findings, Machine, MachineColumn, Metric, PrintedRow, TrialRecord, Unit,
};

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
pub fn of(findings: &Findings) -> Vec<MetricRow<'_>> {
    let groups = by_workload(&findings.rows, |r| r.metric);
    let rows = groups
        .into_iter()
        .flat_map(|(workload, rows)| rows.into_iter().map(move |row| (workload, row)));
    rows.map(|(workload, row)| MetricRow {
        group: workload.as_str(),
        label: row.metric.label(),
        unit: row.metric.unit(),
        machines: &row.machines,
        what: What::Metric(row.metric),
    })
    .collect()
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
    of(findings)
        .into_iter()
        .chain(printed.iter().map(row))
        .collect()
}

/// Returns the rows in groups: neighbours with the same heading.
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
    let compared = |row: &&MetricRow| row.machines.iter().any(|c| c.overhead.is_some());
    let labels: Vec<&str> = rows
        .iter()
        .filter(undirected)
        .filter(compared)
        .map(|row| row.label)
        .collect();
    let which = "which way is better is not known: × is the guest's figure over native's. NAME:higher or NAME:lower says it";
    (!labels.is_empty()).then(|| format!("Of {} {which}.", labels.join(", ")))
}

impl<'a> MetricRow<'a> {
    /// Native's median, a machine's, and the machine's cost by the rounds.
    fn pair(&self, column: &MachineColumn) -> Option<(f64, f64, f64)> {
        let native = self.column(Machine::NATIVE)?.spread.as_ref()?.median;
        Some((
            column.overhead.as_ref()?.ratio.median,
            native,
            column.spread.as_ref()?.median,
        ))
    }

    fn better(&self) -> Option<Better> {
        match self.what {
            What::Metric(metric) => Some(metric.better()),
            What::Printed(printed) => printed.better,
        }
    }

    /// A machine's cost over native's, marked where the two medians differ the other way.
    pub fn paired(&self, column: &MachineColumn) -> Option<String> {
        let (cost, native, machine) = self.pair(column)?;
        Some(verdict::paired(cost, native, machine, self.better()))
    }

    /// Returns true if [`MetricRow::paired`] marks any machine's cost.
    pub fn is_opposed(&self) -> bool {
        let mut pairs = self.machines.iter().filter_map(|column| self.pair(column));
        pairs.any(|(cost, native, machine)| {
            verdict::is_opposed(cost, native, machine, self.better())
        })
    }

    /// A machine's column.
    pub fn column(&self, machine: Machine) -> Option<&'a MachineColumn> {
        self.machines.iter().find(|c| c.machine == machine)
    }

    /// The values on a machine with their rounds, as the trials gave them.
    pub fn rounds(&self, trials: &[TrialRecord], machine: Machine) -> Vec<(u32, f64)> {
        let done = trials
            .iter()
            .filter(|t| t.machine == machine)
            .filter_map(|t| Some((t, t.result()?)));
        let values = done.filter_map(|(trial, result)| {
            let value = match self.what {
                What::Metric(metric) => result.value(metric),
                What::Printed(row) => {
                    let mut printed = trial.execution.iter().flat_map(|e| &e.printed);
                    printed
                        .find(|p| p.of == row.of && p.name == row.name)
                        .map(|p| p.value)
                }
            };
            Some((trial.round, value?))
        });
        values.filter(|(_, v)| v.is_finite()).collect()
    }
}
