//! The tables `facts`: what is known of the host of a run, and of its guests; `exits` and `samples`: what was observed of guests
//! and of VMs that ran already; `figures`: every measure of every trial that was not observed; `comparisons`: what runs of `run`,
//! `exec` and `compare` found, each figure beside its baseline.

use crate::table::{Cell, Column, Rows, maybe, text, words};
use crate::{ExportError, Run};
use jiff::Timestamp;
use std::collections::BTreeMap;
use vmtax_findings::{Comparison, ExitActivity, MachineColumn};
use vmtax_model::{Accelerator, Better, Machine, Metric, Probes, Study, Unit, Variant, VmFacts};
use vmtax_profile::{ObservedRows, Sampling, observed_rows};
use vmtax_recording::Recording;

pub fn fact_rows(recording: &Recording, run: &Run) -> Rows {
    let columns = ["run", "machine", "variant", "name", "value"];
    let mut rows = Rows::new(columns.map(text).into());
    let mut push = |machine: &str, variant: &str, name: &str, value: &str| {
        let row = [run.id.as_str(), machine, variant, name, value];
        rows.push(row.map(words).into());
    };
    for (name, value) in of_host(recording, run) {
        push("", "", name, &value);
    }
    for ((machine, variant, name), value) in of_guests(recording) {
        push(machine, variant, name, &value);
    }
    rows
}

fn of_host(recording: &Recording, run: &Run) -> Vec<(&'static str, String)> {
    let Recording {
        manifest,
        plan,
        host,
        ..
    } = recording;
    let cpu = &host.cpu;
    let name = host.identity.name.clone().filter(|_| !run.is_hashed);
    let facts = [
        ("vmtax_version", Some(manifest.vmtax.clone())),
        ("study", Some(plan.study.name().to_owned())),
        ("host_id", host.identity.id.clone()),
        ("host_name", name),
        ("host_cpu_model_name", Some(cpu.model.clone())),
        ("host_cpu_microcode", cpu.microcode.clone()),
        ("host_cpus", Some(cpu.online.to_string())),
        (
            "host_threads_per_core",
            Some(cpu.threads_per_core.to_string()),
        ),
        ("host_memory_mib", Some(host.memory_mib.to_string())),
        ("virtualization", cpu.virtualisation.clone()),
        ("hypervisor", cpu.hypervisor.clone()),
        ("clocksource", Some(cpu.clocksource.clone())),
        ("invariant_tsc", Some(cpu.invariant_tsc.to_string())),
        ("cpu_governor", cpu.governor.clone()),
        ("transparent_hugepage", host.transparent_hugepage.clone()),
        ("halt_poll_ns", host.halt_poll_ns.map(|ns| ns.to_string())),
        ("os_description", Some(host.distribution.clone())),
        ("kernel_release", Some(host.kernel.clone())),
        ("kvm", Some(<&str>::from(host.kvm.class).to_owned())),
        (
            "qemu_version",
            host.qemu.first().map(|qemu| qemu.version.clone()),
        ),
    ];
    let known = facts.into_iter();
    known
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Machine, variant and name of a fact.
type Of<'a> = (&'a str, &'a str, &'static str);

/// The QEMU and the kernel of each guest that had a trial.
fn of_guests(recording: &Recording) -> BTreeMap<Of<'_>, String> {
    let Recording {
        plan, host, trials, ..
    } = recording;
    let mut all = BTreeMap::new();
    for trial in trials.iter().filter(|t| t.machine.is_guest()) {
        let variant = plan.variant_of(trial);
        // Of one that nothing is known of, what it was called.
        let named = || Some(variant.and_then(Variant::qemu)?.display().to_string());
        let qemu = host.qemu_of(variant).map(|qemu| qemu.version.clone());
        let kernel = trial.result().filter(|_| trial.machine.has_kernel());
        for (name, value) in [
            ("qemu_version", qemu.or_else(named)),
            (
                "guest_kernel_release",
                kernel.map(|r| r.kernel.release.clone()),
            ),
        ] {
            if let Some(value) = value {
                all.entry((trial.machine.as_str(), trial.variant.as_str(), name))
                    .or_insert(value);
            }
        }
    }
    all
}

/// Both tables of a recording.
pub struct Observed {
    pub exits: Rows,
    pub samples: Rows,
}

impl Observed {
    /// Reads what was observed in each trial.
    pub fn read(recording: &Recording, run: &Run) -> Result<Observed, ExportError> {
        let mut observed = Observed {
            exits: Rows::new(exits()),
            samples: Rows::new(samples()),
        };
        for trial in &recording.trials {
            let rows = observed_rows(&recording.trial_folder(trial.number))?;
            observed.push(run, trial.machine, &trial.variant, trial.number, rows);
        }
        if recording.trials.is_empty() {
            // What ran already has no trial, its files are where those of the first would be.
            let rows = observed_rows(&recording.trial_folder(0))?;
            let machine = machine(rows.vm.as_ref());
            observed.push(run, machine, "", 0, rows);
        }
        Ok(observed)
    }

    fn push(&mut self, run: &Run, machine: Machine, variant: &str, trial: u32, rows: ObservedRows) {
        let vm = rows.vm.and_then(|vm| vm.name);
        let identity = || {
            [
                words(&run.id),
                words(machine.as_str()),
                words(variant),
                Cell::Int(trial),
                maybe(vm.as_deref()),
            ]
        };
        for exits in &rows.exits {
            let access = exits.access;
            // Addresses have at most 52 bits; what is larger is no address.
            let address = access.map(|access| access.address);
            let of_exits = [
                Cell::Maybe(exits.vcpu.map(u64::from)),
                words(&exits.reason),
                words(ExitActivity::from_reason(&exits.reason).into()),
                maybe(access.map(|access| access.space.into())),
                Cell::Maybe(address.filter(|address| i64::try_from(*address).is_ok())),
                maybe(access.map(|access| if access.write { "write" } else { "read" })),
                words(&exits.device),
                words(&exits.register),
                Cell::Long(exits.count),
                Cell::Maybe(exits.user),
                Cell::Long(exits.timed),
                Cell::Float(exits.total_ns),
                Cell::Float(rows.seconds),
            ];
            let row = identity().into_iter().chain(of_exits);
            self.exits.push(row.collect());
        }
        for stack in &rows.stacks {
            let of_stack = [
                words(sampling(stack.sampling)),
                words(&stack.thread),
                words(&stack.function),
                words(stack.origin.into()),
                words(&stack.stack),
                Cell::Long(stack.count),
            ];
            let row = identity().into_iter().chain(of_stack);
            self.samples.push(row.collect());
        }
    }
}

/// A Linux guest stands for any, as for requests: what it is the host does not know. A process that is no VM is native.
fn machine(vm: Option<&VmFacts>) -> Machine {
    match vm {
        Some(vm) if vm.accelerator == Some(Accelerator::Tcg) => Machine::TCG,
        Some(_) => Machine::KVM,
        None => Machine::NATIVE,
    }
}

fn sampling(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::OnCpu => "on-cpu",
        Sampling::WallClock => "wall-clock",
        Sampling::Guest => "guest",
    }
}

fn identity() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("machine"),
        text("variant"),
        ("trial", Column::Int(vec![])),
        ("vm", Column::MaybeText(vec![])),
    ]
}

fn exits() -> Vec<(&'static str, Column)> {
    let mut columns = identity();
    columns.extend([
        ("vcpu", Column::Maybe(vec![])),
        text("reason"),
        text("activity"),
        ("space", Column::MaybeText(vec![])),
        ("address", Column::Maybe(vec![])),
        ("access", Column::MaybeText(vec![])),
        text("device"),
        text("register"),
        ("count", Column::Long(vec![])),
        ("user", Column::Maybe(vec![])),
        ("timed", Column::Long(vec![])),
        ("total_ns", Column::Float(vec![])),
        ("seconds", Column::Float(vec![])),
    ]);
    columns
}

fn samples() -> Vec<(&'static str, Column)> {
    let mut columns = identity();
    columns.extend(["sampling", "thread", "function", "origin", "stack"].map(text));
    columns.push(("samples", Column::Long(vec![])));
    columns
}

/// Name, unit and direction of a figure.
#[derive(Clone)]
pub struct FigureName {
    pub metric: String,
    pub unit: Unit,
    pub better: Option<Better>,
}

impl FigureName {
    pub fn of_metric(metric: Metric) -> FigureName {
        FigureName {
            metric: metric.id().to_owned(),
            unit: metric.unit(),
            better: Some(metric.better()),
        }
    }

    /// The name of a figure that a command printed: what it is of, if that is known, and its name.
    pub fn of_printed(of: &str, name: &str, unit: Unit, better: Option<Better>) -> FigureName {
        let metric = if of.is_empty() {
            name.to_owned()
        } else {
            format!("{of}: {name}")
        };
        FigureName {
            metric,
            unit,
            better,
        }
    }
}

fn figure_columns() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("plan"),
        text("study"),
        text("workload"),
        text("settings"),
        text("metric"),
        text("unit"),
        ("better", Column::MaybeText(vec![])),
        text("machine"),
        text("variant"),
        ("size", Column::Maybe(vec![])),
        ("round", Column::Int(vec![])),
        ("trial", Column::Int(vec![])),
        ("started", Column::MaybeTime(vec![])),
        ("value", Column::Float(vec![])),
    ]
}

pub fn figure_rows(recording: &Recording, run: &Run) -> Rows {
    let plan = &recording.plan;
    let mut rows = Rows::new(figure_columns());
    // The probes are in the figures of observed trials, and those of the rounds after the plan's are observed, too.
    let plain = recording
        .trials
        .iter()
        .filter(|t| t.probes == Probes::None && t.round < plan.rounds);
    for trial in plain {
        let Some(result) = trial.result() else {
            continue;
        };
        let measures = result.measures.iter();
        let measures = measures.map(|m| (FigureName::of_metric(m.metric), m.value));
        let printed = trial
            .execution
            .iter()
            .flat_map(|execution| &execution.printed);
        let printed = printed.map(|p| {
            let name = FigureName::of_printed(&p.of, &p.name, p.unit, p.better);
            (name, p.value)
        });
        let settings = serde_json::to_string(&plan.settings_of(trial)).unwrap_or_default();
        let started = trial.started.parse().ok().map(Timestamp::as_microsecond);
        let all = measures.chain(printed);
        for (figure, value) in all.filter(|(_, value)| value.is_finite()) {
            rows.push(vec![
                words(&run.id),
                words(&plan.name),
                words(plan.study.name()),
                words(trial.workload.name.as_str()),
                words(&settings),
                words(&figure.metric),
                words(figure.unit.symbol()),
                maybe(figure.better.map(Into::into)),
                words(trial.machine.as_str()),
                words(&trial.variant),
                Cell::Maybe(trial.step),
                Cell::Int(trial.round),
                Cell::Int(trial.number),
                Cell::MaybeTime(started),
                Cell::Float(value),
            ]);
        }
    }
    rows
}

/// Figures that are compared.
struct Compared<'a> {
    figure: FigureName,
    machine: Machine,
    variant: &'a str,
    /// A machine, or a variant.
    baseline: &'a str,
    /// Medians, in the unit.
    baseline_value: Option<f64>,
    value: Option<f64>,
}

fn comparison_columns() -> Vec<(&'static str, Column)> {
    vec![
        text("run"),
        text("study"),
        text("metric"),
        text("unit"),
        ("better", Column::MaybeText(vec![])),
        text("machine"),
        text("variant"),
        text("baseline"),
        ("baseline_value", Column::MaybeFloat(vec![])),
        ("value", Column::MaybeFloat(vec![])),
        ("rounds", Column::Int(vec![])),
        ("ratio", Column::Float(vec![])),
        ("low", Column::MaybeFloat(vec![])),
        ("high", Column::MaybeFloat(vec![])),
        ("coverage", Column::MaybeFloat(vec![])),
        ("p", Column::MaybeFloat(vec![])),
        text("verdict"),
    ]
}

pub fn comparison_rows(recording: &Recording, run: &Run) -> Rows {
    let mut table = Rows::new(comparison_columns());
    let study = recording.plan.study.name();
    let mut push = |of: Compared<'_>, comparison: &Comparison| {
        let interval = comparison.ratio.interval;
        table.push(vec![
            words(&run.id),
            words(study),
            words(&of.figure.metric),
            words(of.figure.unit.symbol()),
            maybe(of.figure.better.map(Into::into)),
            words(of.machine.as_str()),
            words(of.variant),
            words(of.baseline),
            Cell::MaybeFloat(of.baseline_value),
            Cell::MaybeFloat(of.value),
            Cell::Int(comparison.rounds),
            Cell::Float(comparison.ratio.median),
            Cell::MaybeFloat(interval.map(|i| i.low)),
            Cell::MaybeFloat(interval.map(|i| i.high)),
            Cell::MaybeFloat(interval.map(|i| i.coverage)),
            Cell::MaybeFloat(comparison.p),
            words(comparison.verdict.into()),
        ]);
    };
    match &recording.plan.study {
        Study::Overhead => overheads(recording, &mut push),
        Study::Exec(_) => commands(recording, &mut push),
        Study::Compare(_) => variants(recording, &mut push),
        _ => {}
    }
    table
}

/// Each guest beside native.
fn overheads(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::findings(&recording.plan, &recording.host, &recording.trials);
    for row in &findings.rows {
        beside_native(FigureName::of_metric(row.metric), &row.machines, push);
    }
}

/// Each guest beside native for a command, with the figures that it printed.
fn commands(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
    for row in &findings.overheads.rows {
        beside_native(FigureName::of_metric(row.metric), &row.machines, push);
    }
    for row in &findings.printed {
        let figure = FigureName::of_printed(&row.of, &row.name, row.unit, row.better);
        beside_native(figure, &row.machines, push);
    }
}

fn beside_native(
    figure: FigureName,
    machines: &[MachineColumn],
    push: &mut impl FnMut(Compared<'_>, &Comparison),
) {
    let median = |column: &MachineColumn| column.spread.as_ref().map(|spread| spread.median);
    let native = machines
        .iter()
        .find(|column| column.machine == Machine::NATIVE)
        .and_then(median);
    for column in machines {
        let Some(overhead) = &column.overhead else {
            continue;
        };
        let of = Compared {
            figure: figure.clone(),
            machine: column.machine,
            variant: "",
            baseline: Machine::NATIVE.as_str(),
            baseline_value: native,
            value: median(column),
        };
        push(of, overhead);
    }
}

/// Each variant beside the first.
fn variants(recording: &Recording, push: &mut impl FnMut(Compared<'_>, &Comparison)) {
    let findings = vmtax_analysis::compare(&recording.plan, &recording.trials);
    let columns = recording.plan.columns();
    // The first is the baseline.
    for ((machine, variant), against) in columns.into_iter().skip(1).zip(&findings.against) {
        for row in &against.rows {
            let of = Compared {
                figure: FigureName::of_metric(row.metric),
                machine,
                variant,
                baseline: &findings.baseline,
                baseline_value: Some(row.base.median),
                value: Some(row.other.median),
            };
            push(of, &row.comparison);
        }
    }
}
