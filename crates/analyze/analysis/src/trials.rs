//! The trials that were done, found by machine, workload and round, and warnings about conditions that weaken their figures.

use std::collections::BTreeMap;
use vmtax_findings::{OverheadRow, Verdict};
use vmtax_model::{
    FEWEST_ROUNDS, HostFacts, KernelIdentity, Latency, Machine, Metric, Plan, TimerSource,
    TrialRecord, TrialResult, Warning, WorkloadName, parse_size,
};

/// The smallest part of the time in which vCPUs could run that they waited for a host CPU and a warning names, percent.
const NOTABLE_WAIT_PERCENT: u32 = 10;

/// A metric by round. A value that is no measurement (negative, infinite, NaN) counts as missing.
pub(crate) fn values<'a>(
    results: impl Iterator<Item = (u32, &'a TrialResult)>,
    metric: Metric,
) -> BTreeMap<u32, f64> {
    let values = results.filter_map(|(round, result)| Some((round, result.value(metric)?)));
    values
        .filter(|(_, value)| value.is_finite() && *value >= 0.0)
        .collect()
}

/// Why there is no value for a metric, when the system lacks what it takes.
pub(crate) fn unsupported<'a>(
    mut results: impl Iterator<Item = &'a TrialResult>,
    metric: Metric,
) -> Option<String> {
    results.find_map(|r| {
        r.unsupported
            .iter()
            .find(|u| u.metric == metric)
            .map(|u| u.reason.clone())
    })
}

/// The latencies behind a metric, of these results of its workload together; `None` where there are none.
pub(crate) fn latency<'a>(
    results: impl Iterator<Item = &'a TrialResult>,
    metric: Metric,
) -> Option<Latency> {
    let operation = metric.operation()?;
    // `disk` either reads or writes: its figures stand for whichever it was.
    let named = |name: &str| name == operation || metric.workload() == WorkloadName::Disk;
    let mut operations = results
        .flat_map(|r| &r.operations)
        .filter(|o| named(&o.name));
    let mut all = operations.next()?.latency.clone();
    for more in operations {
        all.add(&more.latency);
    }
    Some(all)
}

/// Returns each item once, in the order of their first occurrences.
pub(crate) fn each_once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut all, item| {
        if !all.contains(&item) {
            all.push(item);
        }
        all
    })
}

/// The results of a plan's trials.
pub(crate) struct Trials<'a> {
    plan: &'a Plan,
    results: BTreeMap<(Machine, WorkloadName, u32), &'a TrialResult>,
}

impl<'a> Trials<'a> {
    pub fn new(plan: &'a Plan, trials: &'a [TrialRecord]) -> Self {
        let meant = |t: &&TrialRecord| {
            t.round < plan.rounds
                && plan.machines.contains(&t.machine)
                && plan.workloads.iter().any(|w| w.name == t.workload.name)
        };
        let key = |t: &TrialRecord| (t.machine, t.workload.name, t.round);
        let results = trials
            .iter()
            .filter(meant)
            .filter_map(|t| Some((key(t), t.result()?)))
            .collect();
        Trials { plan, results }
    }

    /// Every result of a machine.
    pub fn of_machine(&self, machine: Machine) -> impl Iterator<Item = &'a TrialResult> + '_ {
        self.results
            .iter()
            .filter(move |((m, _, _), _)| *m == machine)
            .map(|(_, result)| *result)
    }

    /// Every result of a workload.
    pub fn of_workload(
        &self,
        workload: WorkloadName,
    ) -> impl Iterator<Item = &'a TrialResult> + '_ {
        self.results
            .iter()
            .filter(move |((_, w, _), _)| *w == workload)
            .map(|(_, result)| *result)
    }

    /// A metric on a machine by round.
    pub fn values(&self, machine: Machine, metric: Metric) -> BTreeMap<u32, f64> {
        let of_row = self
            .results
            .iter()
            .filter(|((m, w, _), _)| *m == machine && *w == metric.workload());
        values(
            of_row.map(|((_, _, round), result)| (*round, *result)),
            metric,
        )
    }

    /// Why a machine has no value for a metric, when its system lacks what it takes.
    pub fn unsupported(&self, machine: Machine, metric: Metric) -> Option<String> {
        unsupported(self.of_machine(machine), metric)
    }

    /// The kernel a machine ran.
    pub fn kernel(&self, machine: Machine) -> Option<&'a KernelIdentity> {
        self.of_machine(machine).next().map(|r| &r.kernel)
    }

    /// Returns the number of trials of a machine that have a result.
    pub fn count(&self, machine: Machine) -> u32 {
        self.of_machine(machine).count() as u32
    }

    /// Rounds in which every machine finished every workload.
    pub fn rounds_complete(&self) -> u32 {
        let has = |round, machine, workload| self.results.contains_key(&(machine, workload, round));
        let complete = |round: &u32| {
            self.plan
                .machines
                .iter()
                .all(|m| self.plan.workloads.iter().all(|w| has(*round, *m, w.name)))
        };
        (0..self.plan.rounds).filter(complete).count() as u32
    }
}

/// Returns the warnings about conditions that weaken the figures of a run.
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
    all.extend(
        smaller_than_reference(plan, done).map(|what| Warning::SmallerThanReference { what }),
    );
    // Of a command the rows have this wait.
    for &machine in plan.machines.iter().filter(|_| plan.command().is_none()) {
        all.extend(busy_host(machine, trials));
    }
    add_warnings(&mut all, trials);
    all
}

/// A machine whose vCPUs waited for a host CPU for at least [`NOTABLE_WAIT_PERCENT`] of the time in which they could run.
fn busy_host(machine: Machine, trials: &[TrialRecord]) -> Option<Warning> {
    let of_machine = trials.iter().filter(|trial| trial.machine == machine);
    let spent = of_machine.filter_map(|trial| trial.cpu_seconds);
    let (ran, waited) = spent.fold((0.0, 0.0), |(ran, waited), cpu| {
        (ran + cpu.guest, waited + cpu.ready)
    });
    let percent = (100.0 * waited / (ran + waited)).round() as u32; // without trials 0: a cast of no number
    (percent >= NOTABLE_WAIT_PERCENT).then_some(Warning::BusyHost { machine, percent })
}

/// Adds a trial's warning unless it is there already; of stolen time only the largest share counts.
pub fn add_warning(all: &mut Vec<Warning>, warning: &Warning) {
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

/// Adds the warnings of trials, each once.
pub(crate) fn add_warnings<'t>(
    all: &mut Vec<Warning>,
    trials: impl IntoIterator<Item = &'t TrialRecord>,
) {
    for warning in trials.into_iter().flat_map(|trial| &trial.warnings) {
        add_warning(all, warning);
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
fn kernels_differ(host: &HostFacts, machine: Machine, done: &Trials) -> Option<Warning> {
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

/// Describes the totals and times that the run made smaller than the published sysbench report
/// ([`vmtax_model::WorkloadName::reference`]), one phrase for each workload; `None` if there are none.
fn smaller_than_reference(plan: &Plan, done: &Trials) -> Option<String> {
    let mut phrases: Vec<String> = Vec::new();
    for planned in &plan.workloads {
        // The agent says every option as it took effect; the plan only those that differ from the defaults.
        let took_effect = done
            .of_workload(planned.name)
            .next()
            .map_or(planned, |r| &r.workload);
        let reference = planned.name.reference().iter();
        let options: Vec<String> = reference
            .filter_map(|(option, reference)| {
                let used = took_effect.options.get(*option)?;
                (amount(used)? < amount(reference)?)
                    .then(|| format!("{option}={used} (--full: {reference})"))
            })
            .collect();
        if !options.is_empty() {
            phrases.push(format!("{} with {}", planned.name, options.join(", ")));
        }
    }
    (!phrases.is_empty()).then(|| phrases.join("; "))
}

/// A number, with an optional suffix for powers of 1024.
fn amount(text: &str) -> Option<f64> {
    parse_size(text)
        .map(|bytes| bytes as f64)
        .or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::WorkloadSpec;

    #[test]
    fn amounts() {
        assert_eq!(amount("2G"), Some(2_147_483_648.0));
        assert_eq!(amount("8k"), Some(8192.0));
        assert_eq!(amount("0.5"), Some(0.5));
        assert_eq!(amount(""), None);
        assert_eq!(amount("é"), None);
    }

    #[test]
    fn every_option_of_the_reference_is_one_of_its_workload() {
        for &workload in WorkloadName::ALL {
            let reference = workload.reference().iter();
            let spec = reference.fold(WorkloadSpec::new(workload), |spec, (option, value)| {
                spec.with(option, value)
            });
            vmtax_workload::check(&spec).unwrap();
        }
    }
}
