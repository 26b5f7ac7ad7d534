//! `habits`: what guest kernels do at a cost, and the cures, with the exits that KVM counts meanwhile.

use super::{ns, result};
use std::time::Duration;
use vmtax_machine::{MachineError, MicroSession};
use vmtax_micro::{Failure, MicroError};
use vmtax_model::{Habit, Latency, Operation, OperationExits, TrialResult, WorkloadSpec};

/// Of what takes milliseconds each.
const MOST_LONG: u32 = 50;

/// Every habit and its cure, `count` times each.
pub(super) fn habits(
    session: &mut MicroSession<'_>,
    workload: &WorkloadSpec,
    count: u32,
    mhz: f64,
    deadline: Duration,
) -> Result<TrialResult, MachineError> {
    let (mut operations, mut exits, mut notes, mut total) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (habit, cured) in Habit::forms() {
        let name = habit.label(cured).to_owned();
        let count = if matches!(habit, Habit::FastTick | Habit::TraceLine) { count.min(MOST_LONG) } else { count };
        let made = match made(session, (habit, cured), count, deadline) {
            Ok(made) => made,
            Err(MachineError::Micro(MicroError::Failed(why @ (Failure::NoX2apic | Failure::NoHpet)))) => {
                notes.push(format!("{name}: {why}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut latency = Latency::new();
        made.ticks.iter().for_each(|&ticks| latency.record(ns(ticks, mhz)));
        total += made.ticks.iter().map(|&ticks| ns(ticks, mhz)).sum::<u64>();
        exits.extend(made.exits.map(|each| OperationExits { operation: name.clone(), each }));
        operations.push(Operation { name, latency });
    }
    Ok(TrialResult { exits, notes, ..result(workload, operations, total, mhz) })
}

struct Made {
    ticks: Vec<u64>,
    exits: Option<f64>,
}

/// An order has exits of its own; once and then `count` times shows how many each habit has.
fn made(
    session: &mut MicroSession<'_>,
    (habit, cured): (Habit, bool),
    count: u32,
    deadline: Duration,
) -> Result<Made, MachineError> {
    let counted = |session: &mut MicroSession<'_>, count| {
        let before = session.exits_by_now();
        let ticks = session.habit(habit, cured, count, deadline)?;
        let exits = session.exits_by_now().zip(before).map(|(after, before)| after.saturating_sub(before) as f64);
        Ok::<_, MachineError>((ticks, exits))
    };
    counted(session, count)?; // the table's pages are new to the host the first time
    let (_, once) = counted(session, 1)?;
    let (ticks, all) = counted(session, count)?;
    let exits = all.zip(once).map(|(all, once)| ((all - once) / f64::from(count - 1)).max(0.0));
    Ok(Made { ticks, exits })
}
