//! Claims about habits of guest kernels against what was found.

use crate::reproduce::judge::{Found, untestable, within};
use vmtax_model::{CaseUnit, Estimate, Habit, HabitFindings, HabitForm, HabitRow, Machine};

/// A habit on a machine; `None` where the machine had no trial.
pub(crate) fn row(findings: &HabitFindings, machine: Machine, habit: Habit) -> Option<&HabitRow> {
    let rows = &findings.machines.iter().find(|m| m.machine == machine)?.rows;
    rows.iter().find(|row| row.habit == habit)
}

/// What it costs over its cure.
pub(crate) fn ratio(row: Option<&HabitRow>, at_least: f64) -> Option<Found> {
    Some(match row? {
        row if row.emulated => emulated(),
        HabitRow { ratio: Some(ratio), .. } => within(*ratio, CaseUnit::Ratio, Some(at_least), None),
        row => untestable(row.why.clone()),
    })
}

/// How many exits its cure spares.
pub(crate) fn spared(row: Option<&HabitRow>, at_least: f64) -> Option<Found> {
    let row = row?;
    let exits = |form: &Option<HabitForm>| form.as_ref().and_then(|form| form.exits);
    Some(match (row.emulated, exits(&row.before), exits(&row.after)) {
        (true, ..) => emulated(),
        (_, Some(before), Some(after)) => {
            let spared = Estimate { median: before - after, interval: None };
            within(spared, CaseUnit::Count, Some(at_least), None)
        }
        _ if !row.why.is_empty() => untestable(row.why.clone()),
        _ => untestable("this QEMU does not tell KVM's counters: it takes 7.1 or newer".to_owned()),
    })
}

fn emulated() -> Found {
    untestable("it takes the guest's kernel mode, which this host's KVM emulates instruction by instruction".to_owned())
}
