//! What habits of guest kernels cost over their cures.

use crate::{estimate, paired};
use std::collections::BTreeMap;
use vmtax_model::{
    Habit, HabitFindings, HabitForm, HabitRow, HostFacts, KvmClass, Machine, MachineHabits, Plan, TrialRecord,
    TrialResult,
};

const METHOD: &str = "Stamped by the micro-guest itself; a round's figure is the median of its stamps, by the number of \
                      times that a thing was done between two of them. A ratio is of the same round. Exits are KVM's own \
                      count.";

/// What the trials of `habits` say.
pub fn habits(plan: &Plan, host: &HostFacts, trials: &[TrialRecord]) -> HabitFindings {
    let mut warnings = Vec::new();
    trials.iter().flat_map(|t| &t.warnings).for_each(|warning| crate::add_warning(&mut warnings, warning));
    HabitFindings {
        schema: vmtax_model::SCHEMA,
        rounds_planned: plan.rounds,
        method: METHOD.to_owned(),
        machines: plan.machines.iter().map(|&m| machine(m, host, trials)).collect(),
        warnings,
    }
}

fn machine(machine: Machine, host: &HostFacts, trials: &[TrialRecord]) -> MachineHabits {
    let results = trials.iter().filter(|t| t.machine == machine).filter_map(|t| Some((t.round, t.result()?)));
    let results: Vec<(u32, &TrialResult)> = results.collect();
    let emulates = machine == Machine::MICRO_KVM && host.kvm.class == KvmClass::EmulatesKernels;
    MachineHabits { machine, rows: Habit::ALL.into_iter().map(|habit| row(habit, emulates, &results)).collect() }
}

fn row(habit: Habit, emulates: bool, results: &[(u32, &TrialResult)]) -> HabitRow {
    let [(before, of_before), (after, of_after)] = [false, true].map(|cured| form(habit, cured, results));
    let noted = |cured: bool| {
        let name = format!("{}: ", habit.label(cured));
        results.iter().flat_map(|(_, result)| &result.notes).find_map(|note| note.strip_prefix(&name))
    };
    let why = match (&before, &after) {
        (Some(_), Some(_)) => "",
        _ => noted(false).or(noted(true)).unwrap_or("no trial gave a value"),
    };
    HabitRow {
        habit,
        ratio: paired(&of_after, &of_before).map(|pair| pair.ratio),
        before,
        after,
        emulated: emulates && (habit.in_kernel_mode(false) || habit.in_kernel_mode(true)),
        why: why.to_owned(),
    }
}

/// One form over all rounds, and its figure in each.
fn form(habit: Habit, cured: bool, results: &[(u32, &TrialResult)]) -> (Option<HabitForm>, BTreeMap<u32, f64>) {
    let name = habit.label(cured);
    let (mut n, mut rounds) = (0, BTreeMap::new());
    for (round, result) in results {
        let Some(operation) = result.operations.iter().find(|o| o.name == name && o.latency.count() > 0) else {
            continue;
        };
        n += operation.latency.count();
        rounds.insert(*round, operation.latency.quantile(0.5) as f64 / f64::from(habit.batch()));
    }
    let exits: Vec<f64> =
        results.iter().flat_map(|(_, result)| &result.exits).filter(|e| e.operation == name).map(|e| e.each).collect();
    let ns = estimate(rounds.values().copied().collect());
    let exits = (!exits.is_empty()).then(|| estimate(exits).median);
    ((n > 0).then_some(HabitForm { ns, exits, n }), rounds)
}
