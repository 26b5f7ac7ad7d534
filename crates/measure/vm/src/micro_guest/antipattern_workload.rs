//! `antipatterns`: what guest kernels do at a cost, and the fixes, with the exits that KVM counts meanwhile.

use super::guest::MicroGuest;
use super::result::{ns, result};
use super::{Failure, MicroError};
use crate::MachineError;
use std::time::{Duration, Instant};
use vmtax_model::{Antipattern, Latency, Operation, OperationExits, TrialResult, WorkloadSpec};
use vmtax_workload::AntipatternWork;

/// Of what takes milliseconds each.
const MAX_LONG: u32 = 50;
/// Approximate duration of an order while an antipattern is repeated; an order has at most `MAX_REPEATED` repetitions.
const LONG_ORDER: Duration = Duration::from_millis(20);
const MAX_REPEATED: u32 = 100_000;

/// Antipatterns and their fixes, as often and as long as asked for.
pub(super) fn antipatterns(
    guest: &mut MicroGuest<'_>,
    workload: &WorkloadSpec,
    work: AntipatternWork,
    mhz: f64,
    timeout: Duration,
) -> Result<TrialResult, MachineError> {
    let (mut operations, mut exits, mut notes, mut total) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (antipattern, fixed) in Antipattern::forms() {
        let name = antipattern.label(fixed).to_owned();
        if !work.forms[usize::from(fixed)] {
            notes.push(format!("{name}: not asked for"));
            continue;
        }
        let long = matches!(antipattern, Antipattern::FastTick | Antipattern::TraceLine);
        let work = AntipatternWork {
            count: if long {
                work.count.min(MAX_LONG)
            } else {
                work.count
            },
            ..work
        };
        let made = match made(guest, antipattern, fixed, work, timeout) {
            Ok(made) => made,
            Err(MachineError::Micro(MicroError::Failed(
                why @ (Failure::NoX2apic | Failure::NoHpet),
            ))) => {
                notes.push(format!("{name}: {why}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut latency = Latency::new();
        made.ticks
            .iter()
            .for_each(|&ticks| latency.record(ns(ticks, mhz)));
        total += made.ticks.iter().map(|&ticks| ns(ticks, mhz)).sum::<u64>();
        exits.extend(made.exits.map(|each| OperationExits {
            operation: name.clone(),
            each,
        }));
        operations.push(Operation { name, latency });
    }
    Ok(TrialResult {
        exits,
        notes,
        ..result(workload, operations, total, mhz)
    })
}

struct Made {
    ticks: Vec<u64>,
    exits: Option<f64>,
}

/// An order has exits of its own; once and then `count` times shows how many each antipattern has. What is repeated for longer
/// is for others to observe.
fn made(
    guest: &mut MicroGuest<'_>,
    antipattern: Antipattern,
    fixed: bool,
    AntipatternWork { count, time, .. }: AntipatternWork,
    timeout: Duration,
) -> Result<Made, MachineError> {
    let counted = |guest: &mut MicroGuest<'_>, count| {
        let before = guest.exits_by_now();
        let ticks = guest.antipattern(antipattern, fixed, count, timeout)?;
        let exits = guest
            .exits_by_now()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before) as f64);
        Ok::<_, MachineError>((ticks, exits))
    };
    counted(guest, count)?; // the table's pages are new to the host the first time
    let (_, once) = counted(guest, 1)?;
    let (ticks, all) = counted(guest, count)?;
    let (mut more, begun) = (count, Instant::now());
    while begun.elapsed() < time {
        let order = Instant::now();
        guest.antipattern(antipattern, fixed, more, timeout)?;
        // Between orders it waits for the next one.
        if order.elapsed() < LONG_ORDER {
            more = (more * 2).min(MAX_REPEATED).max(count);
        }
    }
    let exits = all
        .zip(once)
        .map(|(all, once)| ((all - once) / f64::from(count - 1)).max(0.0));
    Ok(Made { ticks, exits })
}
