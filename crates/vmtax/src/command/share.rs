//! `vmtax share`: from its command line to a plan whose variants are ways to share a tree.

use super::carry_out::carry_out;
use super::share_method::variant;
use super::{doctor, selection};
use crate::cli::ShareArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_model::{HostFacts, Machine, Plan, Study, Tree, WorkloadName, WorkloadSpec};
use vmtax_runner::default_guest;

/// QEMU's default first: all others are held against it.
const USUAL: &[&str] = &[
    "9p",
    "9p,msize=524288",
    "9p,msize=524288,cache=loose",
    "virtiofs",
    "virtiofs,cache=always",
    "nfs4",
    "disk",
    "erofs",
];
const QUICK: &[&str] = &["9p", "9p,msize=524288,cache=loose", "virtiofs", "nfs4", "disk", "erofs"];

pub fn share(args: &ShareArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    carry_out(&plan, host, &args.common.record, args.details)
}

fn plan(args: &ShareArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let usual = if args.quick { QUICK } else { USUAL };
    let named: Vec<&str> = args.methods.iter().map(String::as_str).collect();
    let ways = if named.is_empty() { usual } else { &named };
    let (files, bytes) = if args.quick { (200, 16 << 20) } else { (2000, 64 << 20) };
    let files = args.files.unwrap_or(files);
    let bytes = args.bytes.unwrap_or(bytes);
    let guest = default_guest(host);
    let mut workloads = vec![WorkloadSpec::new(WorkloadName::Tree)];
    if args.tree.is_none() {
        if !args.quick {
            // An eighth of the usual: eight ways in six rounds, and a call on an uncached share takes milliseconds.
            workloads.push(vmtax_workload::small_bonnie());
        }
        // Last, since a process of it stays for a moment, with a lock for the host to run into.
        workloads.push(vmtax_workload::lingering(3));
    }
    let mut plan = Plan {
        study: Study::Share,
        tree: Some(Tree { files, bytes: bytes.max(files.saturating_mul(Tree::SMALL)), path: args.tree.clone() }),
        variants: ways.iter().map(|way| variant(way)).collect::<Result<_, _>>()?,
        ..Plan::new("share", FEWEST_ROUNDS, vec![Machine::NATIVE, guest], workloads)
    };
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_a_method_with_options() {
        let way = variant("9p,msize=524288,qemu=5.2").unwrap();
        assert_eq!(way.name, "9p,msize=524288,qemu=5.2");
        assert_eq!(way.set["share"], "9p");
        assert_eq!((way.set["share.msize"].as_str(), way.set["qemu"].as_str()), ("524288", "5.2"));
        assert!(variant("9p,msize").is_err() && variant("9p,=1").is_err());
        for way in USUAL.iter().chain(QUICK) {
            variant(way).unwrap().share().unwrap().unwrap();
        }
    }
}
