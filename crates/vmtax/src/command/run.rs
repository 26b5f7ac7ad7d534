//! `vmtax run`: from its command line to a plan.

use super::carry_out::carry_out;
use super::{doctor, selection};
use crate::cli::RunArgs;
use crate::fault::Fault;
use std::process::ExitCode;

pub fn run(args: &RunArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = selection::plan(args, &host)?;
    carry_out(&plan, host, &args.common.record, false)
}
