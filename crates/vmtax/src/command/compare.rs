//! `vmtax compare`: from its command line to a plan whose columns are sides.

mod check;
mod past;
mod recordings;
mod sides;

use super::carry_out::carry_out;
use super::profile::beside;
use super::{doctor, selection};
use crate::cli::CompareArgs;
use crate::fault::Fault;
use recordings::DETECT;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmtax_model::{Compare, HostFacts, Machine, Plan, Probes, Study, WorkloadName};
use vmtax_runner::default_guest;
use vmtax_workload::Preset;

const BUDGET_S: u32 = 600;
const ROUNDS: u32 = 40;
const REPEATS: u32 = 3;
/// Where no workload is named.
const USUAL: [WorkloadName; 4] =
    [WorkloadName::Cpu, WorkloadName::Memory, WorkloadName::Syscalls, WorkloadName::Seqread];

pub fn compare(args: &CompareArgs) -> Result<ExitCode, Fault> {
    if let Some(baseline) = &args.check {
        return check::check(args, baseline);
    }
    let recordings: Vec<PathBuf> = args.sides.iter().filter(|s| is_recording(s)).map(PathBuf::from).collect();
    if recordings.is_empty() {
        let host = doctor::facts(None);
        let plan = plan(args, &host)?;
        if let Some(line) = past::foretold(&plan, &args.record.runs).filter(|_| !args.record.dry_run) {
            eprintln!("{}", vmtax_report::printable(&line));
        }
        let status = carry_out(&plan, host.clone(), &args.record, false)?;
        if args.profile && !args.record.dry_run {
            beside(&plan, &host, &args.record, None)?;
        }
        return Ok(status);
    }
    if recordings.len() != args.sides.len() || !args.qemu.is_empty() || !args.kernel.is_empty() || !args.what.is_empty()
    {
        let what = "recordings can only be held against recordings: give folders alone, or sides alone";
        return Err(Fault::Usage(what.to_owned()));
    }
    recordings::compare(&recordings, args)
}

/// A side that is a folder was measured before.
fn is_recording(side: &str) -> bool {
    !side.contains('=') && (side.contains('/') || Path::new(side).is_dir())
}

fn plan(args: &CompareArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let variants = sides::variants(args)?;
    let machine = args.machine.unwrap_or_else(|| default_guest(host));
    let mut machines: Vec<Machine> = Vec::new();
    for variant in &variants {
        let own = variant.get("machine").map_or(Ok(machine), str::parse);
        let own = own.map_err(|e: vmtax_model::UnknownMachine| Fault::Usage(e.to_string()))?;
        if !own.is_guest() {
            return Err(Fault::Usage("native is no side: `vmtax run` holds guests against it".to_owned()));
        }
        if !machines.contains(&own) {
            machines.push(own);
        }
    }
    let mut variants = variants;
    if machines.len() > 1 {
        for variant in &mut variants {
            variant.set.entry("machine".to_owned()).or_insert_with(|| machine.to_string());
        }
    }
    let mut workloads = selection::workloads(&args.what, Preset::Quick, USUAL)?;
    if machines.iter().any(|m| !m.has_kernel()) && args.what.is_empty() {
        workloads.retain(|w| w.name == WorkloadName::Seqread);
    }
    if let Some(seconds) = args.time {
        selection::time(&mut workloads, seconds, &args.what)?;
    }
    let mut plan = Plan {
        variants,
        probes: vec![Probes::None; args.repeats.unwrap_or(REPEATS) as usize],
        study: Study::Compare(Compare {
            detect: args.detect.unwrap_or(DETECT),
            budget_s: Some(args.budget.unwrap_or(BUDGET_S)),
        }),
        ..Plan::new("compare", args.rounds.unwrap_or(ROUNDS), machines, workloads)
    };
    if args.layers {
        if plan.workloads.iter().any(|w| w.name != WorkloadName::Seqread) {
            return Err(Fault::Usage("--layers follows the requests of seqread alone: write `-- seqread`".to_owned()));
        }
        plan.probes.push(Probes::Layers);
    }
    if args.profile && plan.workloads.len() != 1 {
        return Err(Fault::Usage("--profile looks at one workload: name it, as in `-- seqread`".to_owned()));
    }
    selection::machine(&mut plan, &args.machine_args);
    selection::check(&plan)?;
    Ok(plan)
}
