//! From trials to findings: medians, overheads, intervals, warnings, advice. Pure: the same trials give the same findings,
//! on any machine. `docs/statistics.md` says why it is done this way.

mod compare;
#[cfg(test)]
mod coverage;
mod diagnosis;
mod estimate;
mod exec;
mod exits;
mod fleet;
mod growth;
mod history;
mod host_rates;
mod pairs;
mod rates;
mod shares;
mod trials;
mod tune;
mod tune_guest;

pub use compare::{
    MAX_ROUNDS, MIN_ROUNDS, Side, check, compare, compare_recordings, from_the_past, is_look,
};
pub use diagnosis::diagnosis;
pub use estimate::{estimate, paired};
pub use exec::exec;
pub use exits::{antipatterns, exits};
pub use fleet::fleet;
pub use growth::growth;
pub use history::{FEWEST_RUNS, history};
pub use host_rates::host_rates;
pub use rates::rates;
pub use shares::shares;
pub use trials::add_warning;
pub use tune::{next_step, tune};
pub use tune_guest::{next_guest_step, tune_guest};

use estimate::{overhead, spread};
use trials::{Trials, warnings};
use vmtax_findings::{Findings, MachineColumn, OverheadRow, REPORT_SCHEMA};
use vmtax_model::{FEWEST_ROUNDS, HostFacts, Latency, Machine, Metric, Plan, TrialRecord};
use vmtax_rules::Evidence;

/// Analyzes the trials of a plan: the overhead of each machine. Trials that the plan does not contain are ignored.
pub fn findings(plan: &Plan, host: &HostFacts, trials: &[TrialRecord]) -> Findings {
    let done = Trials::new(plan, trials);
    let rows: Vec<OverheadRow> = Metric::ALL
        .iter()
        .filter_map(|metric| row(*metric, plan, &done, trials))
        .collect();
    let warnings = warnings(plan, host, trials, &done, &rows);
    let mut findings = Findings {
        schema: REPORT_SCHEMA,
        rounds_planned: plan.rounds,
        rounds_complete: done.rounds_complete(),
        method: method(rows.iter().flat_map(|row| &row.machines)),
        kernels: plan
            .machines
            .iter()
            .filter_map(|m| Some((*m, done.kernel(*m)?.clone())))
            .collect(),
        advice: Vec::new(),
        rows,
        warnings,
    };
    let evidence = Evidence {
        plan: Some(plan),
        host: Some(host),
        overhead: Some(&findings),
        ..Evidence::default()
    };
    findings.advice = vmtax_rules::advice(&evidence);
    findings
}

/// The latencies behind a metric on a machine, all rounds together; `None` where there are none.
pub fn distributions(trials: &[TrialRecord], metric: Metric, machine: Machine) -> Option<Latency> {
    let of_machine = trials
        .iter()
        .filter(|t| t.machine == machine && t.workload.name == metric.workload());
    trials::latency(of_machine.filter_map(TrialRecord::result), metric)
}

/// A metric's row; `None` when no machine has anything to say about it.
fn row(metric: Metric, plan: &Plan, done: &Trials, trials: &[TrialRecord]) -> Option<OverheadRow> {
    let native = done.values(Machine::NATIVE, metric);
    let column = |&machine: &Machine| {
        let values = done.values(machine, metric);
        let latency = distributions(trials, metric, machine).and_then(|l| l.summary());
        let better = Some(metric.better());
        MachineColumn {
            machine,
            spread: spread(values.values().copied().collect(), latency),
            overhead: overhead(better, &native, &values).filter(|_| machine.is_guest()),
            unsupported: done.unsupported(machine, metric),
        }
    };
    let machines: Vec<MachineColumn> = plan.machines.iter().map(column).collect();
    let says_something = machines
        .iter()
        .any(|m| m.spread.is_some() || m.unsupported.is_some());
    says_something.then_some(OverheadRow { metric, machines })
}

/// Describes, for people, the method of the intervals in these columns, and their coverage.
fn method<'a>(columns: impl Iterator<Item = &'a MachineColumn>) -> String {
    let overheads: Vec<_> = columns.filter_map(|m| m.overhead.as_ref()).collect();
    let intervals = overheads
        .iter()
        .filter_map(|t| Some((t.rounds, t.ratio.interval?.coverage)));
    let intervals: Vec<_> = intervals.collect();
    let how = "Each overhead is the median of the rounds' ratios guest ÷ native (for rates: native ÷ guest)";
    if overheads.is_empty() {
        return "Figures are medians over rounds; no machine is compared with native.".to_owned();
    }
    let Some((rounds, coverage)) = intervals.iter().copied().max_by_key(|(rounds, _)| *rounds)
    else {
        return format!("{how}. A 95 % CI needs at least {FEWEST_ROUNDS} rounds.");
    };
    let expected = (1.0 - coverage) * intervals.len() as f64;
    let missed = match intervals.len() {
        1 => String::new(),
        n => format!(
            " Expected number of these {n} intervals that miss the true median: {expected:.1}."
        ),
    };
    format!(
        "{how}; the bounds of its 95 % CI are order statistics of these ratios (sign test), which assumes that rounds are independent, and nothing about the distribution of the noise: {:.1} % coverage \
         at {rounds} rounds.{missed}",
        coverage * 100.0,
    )
}
