//! Cost of a command on each machine, with a breakdown of the difference.

use crate::estimate::{overhead, spread};
use crate::trials::each_once;
use crate::{findings, method};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{
    Breakdown, ExecFindings, MachineColumn, OutlierRun, Part, PartRow, PrintedRow, Statuses,
};
use vmtax_model::{HostFacts, Machine, Metric, Plan, Printed, TrialRecord};
use vmtax_rules::Evidence;

/// Analyzes the trials of a plan's command.
pub fn exec(plan: &Plan, host: &HostFacts, trials: &[TrialRecord]) -> ExecFindings {
    // Where it was only sampled, the look is in the figures.
    let trials: &[TrialRecord] = &trials
        .iter()
        .filter(|t| t.round < plan.rounds)
        .cloned()
        .collect::<Vec<_>>();
    let notes = trials.iter().flat_map(|t| {
        let notes = said(t).into_iter();
        notes.map(|note| format!("{}: {note}", t.machine))
    });
    let guests = plan.machines.iter().filter(|m| m.is_guest());
    let breakdowns: Vec<Breakdown> = guests
        .filter_map(|machine| breakdown(*machine, plan, trials))
        .collect();
    let mut overheads = findings(plan, host, trials);
    overheads.advice.extend(vmtax_rules::advice(&Evidence {
        breakdowns: &breakdowns,
        ..Evidence::default()
    }));
    let printed = printed(plan, trials);
    let measured = overheads.rows.iter().flat_map(|row| &row.machines);
    let of_printed = printed.iter().flat_map(|row| &row.machines);
    overheads.method = method(measured.chain(of_printed));
    ExecFindings {
        overheads,
        printed,
        statuses: plan.machines.iter().map(|m| statuses(*m, trials)).collect(),
        breakdowns,
        outliers: plan
            .machines
            .iter()
            .flat_map(|machine| outliers(*machine, trials))
            .collect(),
        root: trials.iter().find_map(|t| t.share.clone()),
        notes: each_once(notes),
    }
}

/// Fewer runs have no outliers.
const FEWEST_RUNS: usize = 5;
/// Distance from the median above which a run is an outlier, in median absolute deviations: ten standard deviations of a normal
/// distribution, as in hyperfine (`OUTLIER_THRESHOLD`).
const OUTLIER_DEVIATIONS: f64 = 14.826;
/// And as a fraction of the median: less does not matter, however steady the others are.
const OUTLIER_FRACTION: f64 = 0.05;

/// Returns the runs whose wall time is far from that of the machine's others.
fn outliers(machine: Machine, trials: &[TrialRecord]) -> Vec<OutlierRun> {
    let of_machine = trials.iter().filter(|trial| trial.machine == machine);
    let walls: Vec<(u32, f64)> = of_machine
        .filter_map(|trial| Some((trial.round, trial.result()?.value(Metric::ExecWall)?)))
        .collect();
    if walls.len() < FEWEST_RUNS {
        return Vec::new();
    }
    let median = |values: Vec<f64>| spread(values, None).map_or(0.0, |spread| spread.median);
    let median_s = median(walls.iter().map(|(_, wall)| *wall).collect());
    let distance = |wall: f64| (wall - median_s).abs();
    let deviation = median(walls.iter().map(|(_, wall)| distance(*wall)).collect());
    let least = (OUTLIER_DEVIATIONS * deviation).max(OUTLIER_FRACTION * median_s);
    let far = walls
        .into_iter()
        .filter(|(_, wall)| distance(*wall) > least);
    let run = |(round, wall_s)| OutlierRun {
        machine,
        round,
        wall_s,
        median_s,
    };
    far.map(run).collect()
}

fn said(trial: &TrialRecord) -> Vec<String> {
    let mut all = trial.result().map(|r| r.notes.clone()).unwrap_or_default();
    let left = trial.execution.as_ref().map_or(0, |e| e.left);
    if left > 0 {
        let processes = if left == 1 { "a process" } else { "processes" };
        all.push(format!(
            "the command left {processes} running: ended with it"
        ));
    }
    all
}

/// Returns the figures that the command printed itself, in the order of their first occurrence.
fn printed(plan: &Plan, trials: &[TrialRecord]) -> Vec<PrintedRow> {
    let all = || {
        let trials = trials.iter();
        let done = trials.filter(|t| t.round < plan.rounds && t.result().is_some());
        done.flat_map(|t| {
            let printed = t.execution.iter().flat_map(|e| &e.printed);
            printed.map(move |p| (t, p))
        })
    };
    let mut kinds: Vec<&Printed> = Vec::new();
    for (_, printed) in all().filter(|(_, printed)| printed.value.is_finite()) {
        if !kinds.iter().any(|kind| kind.is_like(printed)) {
            kinds.push(printed);
        }
    }
    let values = |kind: &Printed, machine: Machine| -> BTreeMap<u32, f64> {
        let of_kind = all().filter(|(t, printed)| t.machine == machine && printed.is_like(kind));
        of_kind
            .map(|(t, printed)| (t.round, printed.value))
            .collect()
    };
    let column = |kind: &Printed, machine: Machine| {
        let (native, values) = (values(kind, Machine::NATIVE), values(kind, machine));
        MachineColumn {
            machine,
            overhead: overhead(kind.better, &native, &values).filter(|_| machine.is_guest()),
            spread: spread(values.into_values().collect(), None),
            unsupported: None,
        }
    };
    let row = |kind: &Printed| PrintedRow {
        of: kind.of.clone(),
        name: kind.name.clone(),
        unit: kind.unit,
        better: kind.better,
        machines: plan
            .machines
            .iter()
            .map(|machine| column(kind, *machine))
            .collect(),
    };
    kinds.into_iter().map(row).collect()
}

fn statuses(machine: Machine, trials: &[TrialRecord]) -> Statuses {
    let of_machine = trials.iter().filter(|t| t.machine == machine);
    let statuses = each_once(of_machine.filter_map(|t| Some(t.execution.as_ref()?.status)));
    Statuses { machine, statuses }
}

/// Where the time of one run went: CPU seconds.
struct Parts {
    total: f64,
    parts: Vec<(Part, f64)>,
}

/// A guest's parts beside native's, from the rounds that have what it takes. Means, since these add up.
fn breakdown(machine: Machine, plan: &Plan, trials: &[TrialRecord]) -> Option<Breakdown> {
    let cpus = f64::from(plan.guest.cpus);
    let trial_of = |machine, round| {
        trials
            .iter()
            .find(move |t: &&TrialRecord| t.machine == machine && t.round == round)
    };
    let has_native = plan.machines.contains(&Machine::NATIVE);
    let rounds: BTreeSet<u32> = trials.iter().map(|t| t.round).collect();
    let mut pairs = Vec::new();
    for round in rounds {
        let Some(guest) = trial_of(machine, round).and_then(|trial| guest(trial, cpus)) else {
            continue;
        };
        let native = trial_of(Machine::NATIVE, round).and_then(|trial| native(trial, cpus));
        if native.is_some() || !has_native {
            pairs.push((guest, native));
        }
    }
    let count = pairs.len() as f64;
    let (first, _) = pairs.first()?;
    let mean =
        |value: &dyn Fn(&Parts) -> f64| pairs.iter().map(|(g, _)| value(g)).sum::<f64>() / count;
    let native_mean = |value: &dyn Fn(&Parts) -> Option<f64>| {
        let values: Option<Vec<f64>> = pairs
            .iter()
            .map(|(_, n)| n.as_ref().and_then(value))
            .collect();
        values.map(|values| values.iter().sum::<f64>() / count)
    };
    let rows: Vec<PartRow> = first
        .parts
        .iter()
        .map(|&(part, _)| PartRow {
            part,
            native_s: native_mean(&|p| p.seconds(part)),
            machine_s: mean(&|p| p.seconds(part).unwrap_or(0.0)),
        })
        .collect();
    let machine_s = mean(&|p| p.total);
    let explained: f64 = rows.iter().map(|r| r.machine_s).sum();
    Some(Breakdown {
        machine,
        rounds: pairs.len() as u32,
        native_s: native_mean(&|p| Some(p.total)),
        machine_s,
        rows,
        unexplained_s: machine_s - explained,
    })
}

impl Parts {
    fn seconds(&self, part: Part) -> Option<f64> {
        self.parts
            .iter()
            .find(|(p, _)| *p == part)
            .map(|(_, seconds)| *seconds)
    }
}

/// Natively what is neither user nor kernel is waiting, for a CPU as far as that was seen. Of several threads that wait for a CPU
/// at once, one could have run on it.
fn native(trial: &TrialRecord, cpus: f64) -> Option<Parts> {
    let result = trial.result()?;
    let (wall, user, kernel) = times(result)?;
    let total = wall * cpus;
    let off_cpu = total - user - kernel;
    let execution = trial.execution.as_ref();
    let waited = execution.and_then(|execution| execution.waited_s);
    let waited = waited.map(|seconds| seconds.min(off_cpu).max(0.0));
    let mut parts = vec![
        (Part::User, user),
        (Part::Kernel, kernel),
        (Part::Waiting, off_cpu - waited.unwrap_or(0.0)),
    ];
    parts.extend(waited.map(|seconds| (Part::Steal, seconds)));
    Some(Parts { total, parts })
}

/// In a guest two accounts meet: its own says what its CPUs did, the host's whether QEMU's threads for them ran,
/// were ready without a CPU, or waited.
fn guest(trial: &TrialRecord, cpus: f64) -> Option<Parts> {
    let (wall, user, kernel) = times(trial.result()?)?;
    let (host, execution) = (trial.cpu_seconds?, trial.execution.as_ref()?);
    let busy = execution.busy_s.unwrap_or(user + kernel).max(user + kernel);
    // A guest that is not told what was stolen counts it as time that its tasks ran; of all that was wanted, this ran.
    let wanted = host.guest + host.ready;
    let ran = if wanted > 0.0 {
        host.guest / wanted
    } else {
        1.0
    };
    let told = execution.stolen_s.unwrap_or(0.0) > 0.0;
    let (user, kernel) = if told {
        (user, kernel)
    } else {
        (user * ran, kernel * ran)
    };
    let other = (busy * ran - user - kernel).max(0.0);
    let beyond = (host.guest - user - kernel - other).max(0.0);
    let blocked = (execution.window_s? * cpus - host.guest - host.ready).max(0.0);
    let qemu = host.qemu.min(blocked);
    let server = host.server.unwrap_or(0.0).min(blocked - qemu);
    let mut parts = vec![
        (Part::User, user),
        (Part::Kernel, kernel),
        (Part::OtherGuest, other),
        (Part::Beyond, beyond),
        (Part::Steal, host.ready),
        (Part::QemuThreads, qemu),
    ];
    parts.extend(host.server.map(|_| (Part::ShareServer, server)));
    parts.push((Part::Waiting, blocked - qemu - server));
    Some(Parts {
        total: wall * cpus,
        parts,
    })
}

fn times(result: &vmtax_model::TrialResult) -> Option<(f64, f64, f64)> {
    Some((
        result.value(Metric::ExecWall)?,
        result.value(Metric::ExecUser)?,
        result.value(Metric::ExecSystem)?,
    ))
}
