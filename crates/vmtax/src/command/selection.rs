//! From a command line to a plan.

use super::setting::setting;
use crate::cli::{CommonArgs, MachineArgs, RunArgs};
use crate::fault::Fault;
use std::fs;
use std::path::Path;
use vmtax_model::{HostFacts, Plan, WorkloadName, WorkloadSpec};
use vmtax_runner::default_machines;
use vmtax_workload::{Preset, descriptor};

/// No plan that a person writes is longer.
const LONGEST_PLAN: u64 = 1 << 20;

/// The plan that the arguments mean on this host.
///
/// # Errors
/// What is unknown, contradictory or out of range.
pub fn plan(args: &RunArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let mut plan = match args.what.iter().find(|w| is_file(w)) {
        Some(file) if args.what.len() > 1 || args.quick || args.full => {
            return Err(Fault::Usage(format!(
                "'{file}' is a whole plan: give it alone, without workloads, --quick or --full"
            )));
        }
        Some(file) => from_file(file)?,
        None => from_words(args, host)?,
    };
    overrule(&mut plan, args)?;
    check(&plan)?;
    Ok(plan)
}

/// Whether the plan can be carried out, as far as can be told without trying: at each rung of its ladder.
pub(super) fn check(plan: &Plan) -> Result<(), Fault> {
    plan.check()?;
    for rung in 0..plan.rungs() {
        for workload in &plan.at_rung(rung).workloads {
            vmtax_workload::check(workload)?;
        }
    }
    Ok(())
}

/// Whether a word of the command line names a plan's file.
fn is_file(what: &str) -> bool {
    !what.contains('=') && (what.ends_with(".toml") || what.contains('/'))
}

/// The plan of the file that the words name; `None` where they name none.
///
/// # Errors
/// When the file is not all that they say, or no plan.
pub(super) fn file_alone(words: &[String]) -> Result<Option<Plan>, Fault> {
    match words.iter().find(|word| is_file(word)) {
        Some(file) if words.len() > 1 => Err(Fault::Usage(format!("'{file}' is a whole plan: give it alone"))),
        Some(file) => from_file(file).map(Some),
        None => Ok(None),
    }
}

fn from_file(file: &str) -> Result<Plan, Fault> {
    let failed = |e| Fault::file(format!("reading the plan {file}"), e);
    if fs::metadata(Path::new(file)).map_err(failed)?.len() > LONGEST_PLAN {
        return Err(Fault::Usage(format!("'{file}' is no plan: it is larger than 1 MiB")));
    }
    let text = fs::read_to_string(file).map_err(failed)?;
    Plan::from_toml(&text).map_err(|e| Fault::Usage(format!("{file}: {e}")))
}

fn from_words(args: &RunArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let (preset, label) = match (args.quick, args.full) {
        (true, _) => (Preset::Quick, "quick"),
        (_, true) => (Preset::Full, "full"),
        _ => (Preset::Default, "default"),
    };
    let workloads = workloads(&args.what, preset, WorkloadName::usual())?;
    Ok(Plan::new(label, preset.rounds(), default_machines(host), workloads))
}

/// The workloads that the words name, or the `usual` ones, with the options that the words set.
pub(super) fn workloads(
    words: &[String],
    preset: Preset,
    usual: impl IntoIterator<Item = WorkloadName>,
) -> Result<Vec<WorkloadSpec>, Fault> {
    let (options, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.contains('='));
    let mut workloads: Vec<WorkloadSpec> = Vec::new();
    for name in names {
        workloads.push(descriptor(name.parse()?).preset(preset));
    }
    if workloads.is_empty() {
        workloads = usual.into_iter().map(|name| descriptor(name).preset(preset)).collect();
    }
    for option in options {
        set(&mut workloads, option)?;
    }
    Ok(workloads)
}

/// Applies `workload.option=value`.
pub(super) fn set(workloads: &mut [WorkloadSpec], text: &str) -> Result<(), Fault> {
    let form = "WORKLOAD.OPTION=VALUE, as in cpu.max-prime=2000";
    let (key, value) = setting(text, form)?;
    let (workload, option) =
        key.split_once('.').ok_or_else(|| Fault::Usage(format!("'{}' is not {form}", text.escape_default())))?;
    let name: WorkloadName = workload.parse()?;
    let spec = workloads
        .iter_mut()
        .find(|w| w.name == name)
        .ok_or_else(|| Fault::Usage(format!("'{text}' is for {name}, which is not run: name {name} too")))?;
    spec.options.insert(option.to_owned(), value.to_owned());
    Ok(())
}

/// Options of the command line stand above the preset's and the plan file's.
fn overrule(plan: &mut Plan, args: &RunArgs) -> Result<(), Fault> {
    if let Some(machines) = &args.machines {
        plan.machines.clone_from(machines);
    }
    common(plan, &args.common);
    if let Some(seconds) = args.time {
        time(&mut plan.workloads, seconds, &args.what)?;
    }
    Ok(())
}

/// Has each trial last so many seconds, where it has a time; what `words` say of a workload alone stands above it.
pub(super) fn time(workloads: &mut [WorkloadSpec], seconds: f64, words: &[String]) -> Result<(), Fault> {
    for workload in workloads {
        let sets = |word: &String| word.split_once(".time=").is_some_and(|(name, _)| name.parse() == Ok(workload.name));
        if !words.iter().any(sets) {
            vmtax_workload::set_duration(workload, seconds)?;
        }
    }
    Ok(())
}

/// What every measuring command can overrule.
pub(super) fn common(plan: &mut Plan, args: &CommonArgs) {
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    machine(plan, &args.machine_args);
    let guest = &mut plan.guest;
    if args.kernel.is_some() {
        guest.kernel.clone_from(&args.kernel);
        guest.modules.clone_from(&args.modules);
    }
    if args.qemu.is_some() {
        guest.qemu.clone_from(&args.qemu);
    }
}

/// What every command that brings machines up can overrule.
pub(super) fn machine(plan: &mut Plan, args: &MachineArgs) {
    plan.seed = args.seed.unwrap_or(plan.seed);
    plan.deadline_s = args.deadline.unwrap_or(plan.deadline_s);
    let guest = &mut plan.guest;
    guest.cpus = args.cpus.unwrap_or(guest.cpus);
    guest.memory_mib = args.memory.unwrap_or(guest.memory_mib);
    guest.boot_deadline_s = args.boot_deadline.unwrap_or(guest.boot_deadline_s);
    for (field, given) in [
        (&mut guest.cpu_model, &args.cpu_model),
        (&mut guest.machine_type, &args.machine_type),
        (&mut guest.kernel_args, &args.kernel_args),
    ] {
        if given.is_some() {
            field.clone_from(given);
        }
    }
    if args.firmware.is_some() {
        guest.firmware.clone_from(&args.firmware);
    }
    if !args.qemu_args.is_empty() {
        guest.qemu_args.clone_from(&args.qemu_args);
    }
}
