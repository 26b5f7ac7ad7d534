//! `vmtax exits`: from its command line to a plan.

use super::carry_out::carry_out;
use super::{doctor, selection};
use crate::cli::ExitsArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::{HostFacts, KvmClass, Machine, Plan, UnknownMachine};

/// A fresh QEMU each: what one of them had by luck counts once.
const ROUNDS: u32 = 3;

pub fn exits(args: &ExitsArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    carry_out(&plan, host, &args.common.record, false)
}

fn plan(args: &ExitsArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let unknown = |e: UnknownMachine| Fault::Usage(e.to_string());
    let machines = match &args.guest {
        Some(names) => names.iter().map(|n| n.parse().map_err(unknown)).collect::<Result<_, _>>()?,
        None if matches!(host.kvm.class, KvmClass::Hardware | KvmClass::EmulatesKernels) => {
            vec![Machine::MICRO_KVM, Machine::MICRO_TCG]
        }
        None => vec![Machine::MICRO_TCG],
    };
    let mut plan = Plan::new("exits", ROUNDS, machines, vec![vmtax_workload::exits(args.count)]);
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}
