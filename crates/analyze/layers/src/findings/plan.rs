//! The findings of a plan's trials. Intervals are over the figures of the rounds.

use super::column_sums::ColumnSums;
use super::column_sums::column;
use crate::LayersError;
use crate::trial::open::{calls, join};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_analysis::{add_warning, paired};
use vmtax_findings::{Difference, LayerColumn, LayerFindings, REPORT_SCHEMA, Summary};
use vmtax_model::{
    FEWEST_ROUNDS, HostFacts, Latency, Machine, Plan, Probes, TrialRecord, TrialResult, Warning,
    WorkloadName,
};
use vmtax_rules::Evidence;

/// The findings of a plan's trials on a host, each given with its folder. Trials that are not part of the plan are ignored; a trial
/// whose traces cannot be read counts as missing, with the reason in a warning.
///
/// # Errors
/// [`LayersError`] when no trial was traced, or none can be read.
pub fn findings<'a>(
    plan: &Plan,
    measured_on: &HostFacts,
    trials: impl Iterator<Item = (&'a TrialRecord, PathBuf)>,
) -> Result<LayerFindings, LayersError> {
    let mut all: BTreeMap<(Machine, &str), ColumnSums> = BTreeMap::new();
    let mut host = Latency::new();
    let (mut warnings, mut failed, mut read) = (Vec::new(), Vec::new(), 0);
    for (record, folder) in trials {
        let Some(variant) = variant(plan, record) else {
            continue;
        };
        let machine = record.machine;
        for warning in &record.warnings {
            add_warning(&mut warnings, warning);
        }
        let Some(result) = record.result() else {
            failed.extend(record.failure().map(|why| Failed {
                machine,
                why: why.to_owned(),
                error: None,
            }));
            continue;
        };
        let latency = operations(result);
        if !machine.is_guest() {
            host.add(&latency);
            continue;
        }
        let sums = all.entry((machine, variant)).or_default();
        match add(sums, record, &folder, &latency) {
            Ok(is_joined) => read += u32::from(is_joined),
            Err(error) => failed.push(Failed {
                machine,
                why: error.to_string(),
                error: Some(error),
            }),
        }
    }
    if read == 0 {
        return Err(nothing_read(failed));
    }
    missing(plan, &failed, &mut warnings);
    Ok(together(plan, measured_on, &all, &host, warnings))
}

/// Adds a guest's trial to the sums of its column; true if its requests were joined.
fn add(
    sums: &mut ColumnSums,
    record: &TrialRecord,
    folder: &Path,
    latency: &Latency,
) -> Result<bool, LayersError> {
    match record.probes {
        Probes::None => {
            sums.control.add(latency);
            sums.control_medians.add(record.round, latency);
        }
        Probes::Layers | Probes::Network => {
            sums.add(record.round, &join(folder, record)?);
            sums.traced_medians.add(record.round, latency);
            sums.add_fio(record, latency);
            return Ok(true);
        }
        Probes::Calls => sums.add_calls(&calls(folder)?),
        // It has no requests.
        Probes::Inside(_) => {}
    }
    Ok(false)
}

/// A trial without a result, or whose traces cannot be read.
struct Failed {
    machine: Machine,
    why: String,
    /// Error of the traces.
    error: Option<LayersError>,
}

/// The error that no trial was read.
fn nothing_read(failed: Vec<Failed>) -> LayersError {
    let first = failed.first().map(|failed| failed.why.clone());
    match (failed.into_iter().find_map(|failed| failed.error), first) {
        (Some(error), _) => LayersError::Nothing(Box::new(error)),
        (None, Some(why)) => LayersError::Failed(why),
        (None, None) => LayersError::Unobserved,
    }
}

/// Latency of all operations of a trial.
fn operations(result: &TrialResult) -> Latency {
    let mut all = Latency::new();
    result.operations.iter().for_each(|o| all.add(&o.latency));
    all
}

/// The plan's name of a trial's variant, if the trial is part of the plan.
fn variant<'p>(plan: &'p Plan, record: &TrialRecord) -> Option<&'p str> {
    let planned = record.round < plan.rounds
        && plan.machines.contains(&record.machine)
        && plan
            .workloads
            .iter()
            .any(|w| w.name == record.workload.name);
    let known = plan
        .variants
        .iter()
        .find(|v| v.name == record.variant)
        .map(|v| v.name.as_str());
    // The host has no variants.
    known
        .or((!record.machine.is_guest()).then_some(""))
        .filter(|_| planned)
}

/// Adds a warning for each machine that has failed trials.
fn missing(plan: &Plan, failed: &[Failed], warnings: &mut Vec<Warning>) {
    for &machine in &plan.machines {
        let mut of_machine = failed.iter().filter(|failed| failed.machine == machine);
        let missing = of_machine.clone().count() as u32;
        let Some(first) = of_machine.next() else {
            continue;
        };
        let ways = if machine.is_guest() {
            plan.variants.len() as u32
        } else {
            1
        };
        let planned = plan
            .rounds
            .saturating_mul(plan.workloads.len() as u32)
            .saturating_mul(ways)
            .saturating_mul((plan.probes_on(machine).len() * plan.turns_per_round()) as u32);
        let warning = Warning::TrialsMissing {
            machine,
            missing,
            planned,
            reason: first.why.clone(),
        };
        add_warning(warnings, &warning);
    }
}

pub(crate) fn together(
    plan: &Plan,
    measured_on: &HostFacts,
    all: &BTreeMap<(Machine, &str), ColumnSums>,
    host: &Latency,
    mut warnings: Vec<Warning>,
) -> LayerFindings {
    let guests = || plan.machines.iter().copied().filter(|m| m.is_guest());
    let ways = guests().flat_map(|m| plan.variants.iter().map(move |v| (m, v.name.as_str())));
    let columns: Vec<LayerColumn> = ways
        .filter_map(|(machine, variant)| {
            Some(column(machine, variant, all.get(&(machine, variant))?))
        })
        .filter(|column| column.matched.operations > 0 || column.control.is_some())
        .collect();
    let differences: Vec<Difference> = guests().flat_map(|m| differences(plan, m, all)).collect();
    let rounds = columns.iter().map(|c| c.rounds).min().unwrap_or(0);
    if rounds < FEWEST_ROUNDS {
        add_warning(
            &mut warnings,
            &Warning::TooFewRounds {
                rounds,
                needed: FEWEST_ROUNDS,
            },
        );
    }
    LayerFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: plan.rounds,
        host: Summary::summarize(host),
        advice: vmtax_rules::advice(&Evidence {
            plan: Some(plan),
            host: Some(measured_on),
            columns: &columns,
            differences: &differences,
            ..Evidence::default()
        }),
        columns,
        differences,
        method: method(plan, rounds),
        warnings,
    }
}

/// Each variant compared with the baseline, untraced, within the same rounds.
fn differences(
    plan: &Plan,
    machine: Machine,
    all: &BTreeMap<(Machine, &str), ColumnSums>,
) -> Vec<Difference> {
    let control = |variant: &str| {
        all.get(&(machine, variant))
            .map(|g| g.control_medians.rounds())
    };
    let Some((first, others)) = plan.variants.split_first() else {
        return Vec::new();
    };
    let Some(base) = control(&first.name) else {
        return Vec::new();
    };
    let difference_for = |name: &str| {
        let comparison = paired(&base, &control(name)?)?;
        Some(Difference {
            machine,
            base: first.name.clone(),
            variant: name.to_owned(),
            comparison,
        })
    };
    others
        .iter()
        .filter_map(|v| difference_for(&v.name))
        .collect()
}

fn method(plan: &Plan, rounds: u32) -> String {
    let is_fio = plan.workloads.iter().any(|w| w.name == WorkloadName::Fio);
    let by = if is_fio {
        "fio runs on the measured disk, whatever its filename says. Its requests are those of its system calls in the guest (pread, io_submit, \
         io_uring_enter), each from where fio's completion latency (clat) begins; they are matched across layers by offset and address"
    } else if plan.probes.contains(&Probes::Network) {
        "Round trips are matched within a kernel by their packets' addresses, across the border by the key in their payload, else by length and order"
    } else {
        "Requests are matched across layers by offset and address"
    };
    let unexplained = if is_fio {
        "fio and system call: fio's own mean completion latency without the layers, which is the time between its system calls and its clock"
    } else {
        "Unexplained: the time from when the workload submits a request to its first traced event, and from its last traced event until the workload sees it complete"
    };
    let how = "Means and quantiles are over all matched requests. \
               Tracing overhead and differences between variants are medians of paired ratios: in each round the ratio of two medians, \
               then the median of these ratios; it is not the ratio of the medians in a table";
    if rounds < FEWEST_ROUNDS {
        format!("{by}; segments do not overlap. {unexplained}. {how}.")
    } else {
        format!(
            "{by}; segments do not overlap. {unexplained}. {how}. The ends of each 95 % CI are two of the rounds' sorted values (sign test)."
        )
    }
}
