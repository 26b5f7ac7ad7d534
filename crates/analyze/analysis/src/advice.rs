//! At most five sentences of what to do. Each rests on this recording or on the host's facts, and promises nothing
//! that was not measured.

use crate::trials::Trials;
use crate::warnings::kernels_differ;
use vmtax_model::{HostFacts, KvmClass, Machine, Metric, Plan, SourceOfKernel, Tax, TaxRow, Verdict, WorkloadName};

const MOST: usize = 5;
/// An interval this much wider than its lower end hides differences that people care about.
const WIDE: f64 = 1.2;

/// The advice, most important first.
pub(crate) fn advice(plan: &Plan, host: &HostFacts, done: &Trials, rows: &[TaxRow]) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(accelerator(plan, host, done, rows));
    // A command's figures are parts of one another, so that the largest says little.
    for &machine in plan.machines.iter().filter(|m| m.is_guest() && plan.command().is_none()) {
        all.extend(largest(machine, rows));
        all.extend(waiting_reads(machine, rows));
    }
    all.extend(same_kernel(plan, host, done));
    all.extend(noise(rows));
    all.extend(governor(host));
    all.truncate(MOST);
    all
}

/// The taxes of a machine.
fn taxes(machine: Machine, rows: &[TaxRow]) -> impl Iterator<Item = (Metric, &Tax)> {
    rows.iter().filter_map(move |row| {
        let column = row.machines.iter().find(|c| c.machine == machine)?;
        Some((row.metric, column.tax.as_ref()?))
    })
}

/// What to do about the accelerator, when guests ran by translation, or KVM gave nothing.
fn accelerator(plan: &Plan, host: &HostFacts, done: &Trials, rows: &[TaxRow]) -> Option<String> {
    let kvm_measured = done.count(Machine::KVM) > 0;
    let guest_wanted = plan.machines.iter().any(|m| m.is_guest());
    if kvm_measured || !guest_wanted {
        return None;
    }
    let evidence = &host.kvm.evidence;
    let mend = host.checks.iter().find(|c| c.id == "kvm").and_then(|c| c.mend.as_deref());
    match host.kvm.class {
        KvmClass::Hardware => {
            let tcg_costs = taxes(Machine::TCG, rows).any(|(_, tax)| tax.verdict == Verdict::Costs);
            tcg_costs.then(|| {
                format!(
                    "tcg translates every instruction, while KVM runs kernels at speed on this host ({evidence}): run \
                     guests with `-accel kvm`, and see what is left with `vmtax run --machines native,kvm`."
                )
            })
        }
        KvmClass::EmulatesKernels => Some(format!(
            "This host's KVM emulates guest kernels instruction by instruction ({evidence}), so Linux guests run under \
             tcg only: ask the provider for nested virtualisation, or use bare metal."
        )),
        KvmClass::Broken | KvmClass::NoPermission | KvmClass::Absent => {
            mend.map(|mend| format!("KVM cannot be used here ({evidence}), which leaves guests to tcg: {mend}."))
        }
    }
}

/// Which group of figures pays most on a machine.
fn largest(machine: Machine, rows: &[TaxRow]) -> Option<String> {
    let costs = || taxes(machine, rows).filter(|(_, tax)| tax.verdict == Verdict::Costs);
    // The geometric mean: ratios multiply.
    let mean = |workload: WorkloadName| {
        let logs: Vec<f64> =
            costs().filter(|(m, _)| m.workload() == workload).map(|(_, t)| t.ratio.median.ln()).collect();
        (!logs.is_empty()).then(|| (workload, (logs.iter().sum::<f64>() / logs.len() as f64).exp(), logs.len()))
    };
    let (workload, mean, figures) =
        WorkloadName::ALL.iter().filter_map(|w| mean(*w)).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let of_group = costs().filter(|(m, _)| m.workload() == workload);
    let (worst, tax) = of_group.max_by(|a, b| a.1.ratio.at_least().total_cmp(&b.1.ratio.at_least()))?;
    let most = if figures > 1 {
        format!(
            " (geometric mean of {figures} figures), {} most of all with {}",
            worst.label(),
            times(tax.ratio.median)
        )
    } else {
        format!(" ({})", worst.label())
    };
    Some(format!(
        "On {machine} the largest tax is on {workload}: {} native{most}. Look there first: `vmtax run {workload} \
         --rounds 12` measures it alone and more closely.",
        times(mean)
    ))
}

/// What a program that waits for each read loses, in absolute time.
fn waiting_reads(machine: Machine, rows: &[TaxRow]) -> Option<String> {
    let (_, tax) = taxes(machine, rows).find(|(metric, _)| *metric == Metric::SeqreadMedian)?;
    (tax.verdict == Verdict::Costs).then(|| {
        format!(
            "On {machine} a direct request takes {} µs longer than on native (p50), each time a program waits for \
             one: `vmtax run fileio fileio.test-mode=rndrd fileio.extra-flags=direct fileio.threads=16` shows how much of \
             it parallel requests hide (compare with fileio.threads=1).",
            significant(tax.difference.median / 1000.0)
        )
    })
}

/// The host's own kernel for the guest, when another one ran and the host's can be had.
fn same_kernel(plan: &Plan, host: &HostFacts, done: &Trials) -> Option<String> {
    let syscalls = plan.workloads.iter().any(|w| w.name == WorkloadName::Syscalls);
    let differ = plan.machines.iter().any(|m| m.is_guest() && kernels_differ(host, *m, done).is_some());
    let own = host.kernels.iter().find(|k| k.release == host.kernel && k.source == SourceOfKernel::Running)?;
    (syscalls && differ).then(|| {
        format!(
            "Host and guest ran different kernels, and the host's own is at hand: `--kernel {}` leaves only \
             virtualisation in the system-call figures.",
            own.image.display()
        )
    })
}

/// More rounds, where the noise hides what people would want to know.
fn noise(rows: &[TaxRow]) -> Option<String> {
    let taxes =
        rows.iter().flat_map(|r| r.machines.iter().filter_map(|m| Some((r.metric, m.machine, m.tax.as_ref()?))));
    let wide = taxes
        .filter(|(_, _, tax)| tax.verdict == Verdict::NoDifferenceShown)
        .filter_map(|(metric, machine, tax)| Some((metric, machine, tax.rounds, tax.ratio.interval?)))
        .filter(|(_, _, _, i)| i.high > i.low * WIDE);
    let all: Vec<_> = wide.collect();
    let (metric, machine, rounds, i) =
        all.iter().max_by(|a, b| (a.3.high / a.3.low).total_cmp(&(b.3.high / b.3.low))).copied()?;
    Some(format!(
        "The noise hides differences in {} of the taxes (widest: {} on {machine}, {:.2} to {:.2}): `--rounds {}` on a \
         quieter host narrows them.",
        all.len(),
        metric.label(),
        i.low,
        i.high,
        rounds.saturating_mul(2)
    ))
}

/// A clock frequency that moves with the load.
fn governor(host: &HostFacts) -> Option<String> {
    let governor = host.cpu.governor.as_deref().filter(|g| *g != "performance")?;
    Some(format!(
        "The processors' frequency followed the load (governor '{}'): set it fixed with `cpupower frequency-set -g \
         performance` before comparing runs.",
        governor.escape_default()
    ))
}

/// A ratio for people: `1.28 times`, `33 times`.
fn times(ratio: f64) -> String {
    format!("{} times", significant(ratio))
}

/// About three significant digits.
fn significant(x: f64) -> String {
    let decimals = match x.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        _ => 2,
    };
    format!("{x:.decimals$}")
}
