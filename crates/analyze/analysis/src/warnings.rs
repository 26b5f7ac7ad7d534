//! Warnings about conditions that weaken the figures of a run.

use crate::reference;
use crate::trials::Trials;
use vmtax_model::FEWEST_ROUNDS;
use vmtax_model::{
    HostFacts, Machine, OverheadRow, Plan, TimerSource, TrialRecord, Verdict, Warning,
};

pub(crate) fn warnings(
    plan: &Plan,
    host: &HostFacts,
    trials: &[TrialRecord],
    done: &Trials,
    rows: &[OverheadRow],
) -> Vec<Warning> {
    let mut all = Vec::new();
    for &machine in &plan.machines {
        all.extend(missing(plan, machine, trials, done));
    }
    all.extend(too_few_rounds(rows));
    for &machine in plan.machines.iter().filter(|m| m.is_guest()) {
        all.extend(kernels_differ(host, machine, done));
    }
    // A command is timed as a whole: the timer's own cost is nothing in it.
    for &machine in plan.machines.iter().filter(|_| plan.command().is_none()) {
        all.extend(no_tsc(machine, done));
    }
    all.extend(reference::smaller(plan, done).map(|what| Warning::SmallerThanReference { what }));
    for warning in trials.iter().flat_map(|t| &t.warnings) {
        add(&mut all, warning);
    }
    all
}

/// Adds a trial's warning unless it is there already; of stolen time only the largest share counts.
pub fn add(all: &mut Vec<Warning>, warning: &Warning) {
    if let Warning::StolenTime { percent: new } = warning {
        let known = all.iter_mut().find_map(|w| match w {
            Warning::StolenTime { percent } => Some(percent),
            _ => None,
        });
        match known {
            Some(percent) => *percent = (*percent).max(*new),
            None => all.push(warning.clone()),
        }
    } else if !all.contains(warning) {
        all.push(warning.clone());
    }
}

fn missing(
    plan: &Plan,
    machine: Machine,
    trials: &[TrialRecord],
    done: &Trials,
) -> Option<Warning> {
    let planned = plan.rounds.saturating_mul(plan.workloads.len() as u32);
    let missing = planned
        .checked_sub(done.count(machine))
        .filter(|m| *m > 0)?;
    let reason = trials
        .iter()
        .filter(|t| t.machine == machine)
        .find_map(TrialRecord::failure);
    let reason = reason
        .unwrap_or("it is not in the recording: the run was cut off, or a file is lost")
        .to_owned();
    Some(Warning::TrialsMissing {
        machine,
        missing,
        planned,
        reason,
    })
}

fn too_few_rounds(rows: &[OverheadRow]) -> Option<Warning> {
    let overheads = rows
        .iter()
        .flat_map(|r| &r.machines)
        .filter_map(|m| m.overhead.as_ref());
    let rounds = overheads
        .filter(|t| t.verdict == Verdict::TooFewRounds)
        .map(|t| t.rounds)
        .min()?;
    Some(Warning::TooFewRounds {
        rounds,
        needed: FEWEST_ROUNDS,
    })
}

/// The guest's kernel against the one that native trials ran on.
pub(crate) fn kernels_differ(host: &HostFacts, machine: Machine, done: &Trials) -> Option<Warning> {
    let guest = &done.kernel(machine)?.release;
    let native = done
        .kernel(Machine::NATIVE)
        .map_or(&host.kernel, |k| &k.release);
    (guest != native).then(|| Warning::KernelsDiffer {
        host: native.clone(),
        machine,
        guest: guest.clone(),
    })
}

fn no_tsc(machine: Machine, done: &Trials) -> Option<Warning> {
    let timer = done
        .of_machine(machine)
        .map(|r| &r.timer)
        .find(|t| t.source == TimerSource::ClockGettime)?;
    let reason = timer
        .reason
        .clone()
        .unwrap_or_else(|| "no reason given".to_owned());
    Some(Warning::NoTsc { machine, reason })
}
