//! `vmtax exits`: from its command line to a plan.

use super::run::carry_out;
use super::{doctor, selection};
use crate::cli::ExitsArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::{
    Guest, HostFacts, KvmClass, MachineName, Plan, Probes, UnknownMachine, Variant, WorkloadName, WorkloadSpec,
};

/// A fresh QEMU each: what one of them had by luck counts once.
const ROUNDS: u32 = 3;

pub fn exits(args: &ExitsArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    carry_out(&plan, host, &args.common, false)
}

fn plan(args: &ExitsArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let unknown = |e: UnknownMachine| Fault::Usage(e.to_string());
    let machines = match &args.guest {
        Some(names) => names.iter().map(|n| n.parse().map_err(unknown)).collect::<Result<_, _>>()?,
        None if matches!(host.kvm.class, KvmClass::Hardware | KvmClass::EmulatesKernels) => {
            vec![MachineName::MicroKvm, MachineName::MicroTcg]
        }
        None => vec![MachineName::MicroTcg],
    };
    let mut plan = Plan {
        schema: vmtax_model::SCHEMA,
        name: "exits".to_owned(),
        rounds: ROUNDS,
        seed: 0,
        deadline_s: 600,
        machines,
        probes: vec![Probes::None],
        guest: Guest::default(),
        tree: None,
        variants: vec![Variant::default()],
        ladder: None,
        case: None,
        workloads: vec![WorkloadSpec::new(WorkloadName::Exits).with("count", args.count)],
    };
    selection::common(&mut plan, &args.common);
    plan.check()?;
    for workload in &plan.workloads {
        vmtax_workload::check(workload)?;
    }
    Ok(plan)
}
