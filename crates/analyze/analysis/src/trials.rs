//! The trials that were done, found by machine, workload and round.

use std::collections::BTreeMap;
use vmtax_model::{
    KernelIdentity, Latency, Machine, Metric, Plan, TrialRecord, TrialResult, WorkloadName,
};

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
