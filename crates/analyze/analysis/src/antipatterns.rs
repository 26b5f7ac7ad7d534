//! Costs of the antipatterns of guest kernels, compared with their fixes.

use crate::estimate::{estimate, median_of, paired};
use crate::trials::add_warnings;
use std::collections::BTreeMap;
use vmtax_findings::{
    AntipatternFindings, AntipatternForm, AntipatternRow, Estimate, MachineAntipatterns,
};
use vmtax_model::{Antipattern, HostFacts, KvmClass, Machine, Plan, TrialRecord, TrialResult};

const METHOD: &str = "Timed by rdtsc in the micro-guest: a round's figure is the median interval divided by its number of \
                      operations. Each ratio is of figures of one round, then the median over rounds (paired). Exits: KVM's \
                      counters.";

/// Analyzes the trials of `guest-antipatterns`: each antipattern's cost on each machine.
pub fn antipatterns(plan: &Plan, host: &HostFacts, trials: &[TrialRecord]) -> AntipatternFindings {
    let mut warnings = Vec::new();
    add_warnings(&mut warnings, trials);
    AntipatternFindings {
        schema: vmtax_findings::REPORT_SCHEMA,
        rounds_planned: plan.rounds,
        method: METHOD.to_owned(),
        machines: plan
            .machines
            .iter()
            .map(|&m| machine(m, host, trials))
            .collect(),
        warnings,
    }
}

fn machine(machine: Machine, host: &HostFacts, trials: &[TrialRecord]) -> MachineAntipatterns {
    let results = trials
        .iter()
        .filter(|t| t.machine == machine)
        .filter_map(|t| Some((t.round, t.result()?)));
    let results: Vec<(u32, &TrialResult)> = results.collect();
    let emulates = machine == Machine::MICRO_KVM && host.kvm.class == KvmClass::EmulatesKernels;
    MachineAntipatterns {
        machine,
        rows: Antipattern::ALL
            .into_iter()
            .map(|antipattern| row(antipattern, emulates, &results))
            .collect(),
    }
}

fn row(
    antipattern: Antipattern,
    emulates: bool,
    results: &[(u32, &TrialResult)],
) -> AntipatternRow {
    let [(before, of_before), (after, of_after)] =
        [false, true].map(|fixed| form(antipattern, fixed, results));
    let noted = |fixed: bool| {
        let name = format!("{}: ", antipattern.label(fixed));
        results
            .iter()
            .flat_map(|(_, result)| &result.notes)
            .find_map(|note| note.strip_prefix(&name))
    };
    let why = match (&before, &after) {
        (Some(_), Some(_)) => "",
        _ => noted(false)
            .or(noted(true))
            .unwrap_or("no trial gave a value"),
    };
    AntipatternRow {
        antipattern,
        ratio: paired(&of_after, &of_before).map(|pair| pair.ratio),
        exits_saved: exits_saved(antipattern, results),
        before,
        after,
        emulated: emulates
            && (antipattern.in_kernel_mode(false) || antipattern.in_kernel_mode(true)),
        why: why.to_owned(),
    }
}

/// By how many exits an antipattern has more than its fix, in each round.
fn exits_saved(antipattern: Antipattern, results: &[(u32, &TrialResult)]) -> Option<Estimate> {
    let exits = |result: &TrialResult, fixed: bool| {
        let mut exits = result.exits.iter();
        let own = exits.find(|exits| exits.operation == antipattern.label(fixed));
        own.map(|exits| exits.each)
    };
    let saved = results
        .iter()
        .filter_map(|(_, result)| Some(exits(result, false)? - exits(result, true)?));
    let saved: Vec<f64> = saved.collect();
    (!saved.is_empty()).then(|| estimate(saved))
}

/// One form over all rounds, and its figure in each.
fn form(
    antipattern: Antipattern,
    fixed: bool,
    results: &[(u32, &TrialResult)],
) -> (Option<AntipatternForm>, BTreeMap<u32, f64>) {
    let name = antipattern.label(fixed);
    let (mut n, mut rounds) = (0, BTreeMap::new());
    for (round, result) in results {
        let mut operations = result.operations.iter();
        let Some(own) = operations.find(|o| o.name == name && o.latency.count() > 0) else {
            continue;
        };
        n += own.latency.count();
        let median = own.latency.quantile(0.5) as f64;
        rounds.insert(*round, median / f64::from(antipattern.batch()));
    }
    let exits = results.iter().flat_map(|(_, result)| &result.exits);
    let exits = exits.filter(|e| e.operation == name).map(|e| e.each);
    let exits: Vec<f64> = exits.collect();
    let ns = estimate(rounds.values().copied().collect());
    let exits = (!exits.is_empty()).then(|| median_of(exits));
    ((n > 0).then_some(AntipatternForm { ns, exits, n }), rounds)
}
