//! What each method of sharing a tree with guests costs.

use crate::options::values::bytes;
use crate::options::{CommonOptions, OptionsError, StudyOptions, share_variant, with_help};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use std::path::PathBuf;
use vmtax_model::FEWEST_ROUNDS;
use vmtax_model::{
    ClaimUnit, ClaimVerdict, HostFacts, Machine, Plan, ShareFindings, Study, Tree, WorkloadName, WorkloadSpec,
};
use vmtax_workload::CheckedPlan;

/// The share methods that are compared where none is named; QEMU's default, the baseline, first.
const METHODS: &[&str] = &[
    "9p",
    "9p,msize=524288",
    "9p,msize=524288,cache=loose",
    "virtiofs",
    "virtiofs,cache=always",
    "nfs4",
    "disk",
    "erofs",
];
const QUICK_METHODS: &[&str] = &["9p", "9p,msize=524288,cache=loose", "virtiofs", "nfs4", "disk", "erofs"];

/// The options of `vmtax share`.
#[derive(Debug, Args)]
#[command(
    mut_arg(
        "machine",
        with_help("The guest: kvm or tcg; native is always measured [default: kvm if usable, else tcg]")
    ),
    after_help = "METHOD is 9p, virtiofs, nfs3, nfs4, disk, erofs or squashfs, with options: 9p,msize=524288,cache=loose or \
virtiofs,cache=always or 9p,qemu=5.2. Mount options are verified in the guest. See docs/shares.md.

Examples:
  vmtax share --quick
  vmtax share 9p 9p,cache=loose virtiofs --details
  vmtax share --tree ~/src/project 9p,cache=loose virtiofs erofs"
)]
pub struct ShareOptions {
    /// Share methods as METHOD[,OPTION=VALUE...], the first is the baseline [default: 9p 9p,msize=524288 9p,msize=524288,cache=loose virtiofs virtiofs,cache=always nfs4 disk erofs]
    #[arg(value_name = "METHOD")]
    methods: Vec<String>,
    /// Fewer methods and a smaller tree, in four minutes
    #[arg(long)]
    quick: bool,
    /// Share this directory read-only, instead of a generated tree
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["files", "bytes"])]
    tree: Option<PathBuf>,
    /// Number of small files in the generated tree [default: 2000]
    #[arg(long, value_name = "N")]
    files: Option<u64>,
    /// Size of the generated tree: 64M, 5G; the small files, and one large file for the remainder [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    bytes: Option<u64>,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ShareOptions {
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError> {
        let usual = if self.quick { QUICK_METHODS } else { METHODS };
        let named: Vec<&str> = self.methods.iter().map(String::as_str).collect();
        let methods = if named.is_empty() { usual } else { &named };
        let (files, bytes) = if self.quick { (200, 16 << 20) } else { (2000, 64 << 20) };
        let files = self.files.unwrap_or(files);
        let bytes = self.bytes.unwrap_or(bytes).max(files.saturating_mul(Tree::SMALL));
        let mut workloads = vec![WorkloadSpec::new(WorkloadName::Tree)];
        if self.tree.is_none() {
            if !self.quick {
                // An eighth of the usual: eight methods in six rounds, and a call on an uncached share takes milliseconds.
                workloads.push(vmtax_workload::small_bonnie());
            }
            // Last, since a process of it stays for a moment, with a lock for the host to run into.
            workloads.push(vmtax_workload::lingering(3));
        }
        let machines = self.common.measurement.with_native();
        let machines = machines.unwrap_or_else(|| vec![Machine::NATIVE, host.default_guest()]);
        if machines.len() != 2 {
            return OptionsError::usage("share measures on one guest: name one with --machine, as in --machine tcg");
        }
        self.common.complete(Plan {
            study: Study::Share,
            tree: Some(Tree { files, bytes, path: self.tree.clone() }),
            variants: methods.iter().map(|method| share_variant(method)).collect::<Result<_, _>>()?,
            ..Plan::new("share", FEWEST_ROUNDS, machines, workloads)
        })
    }
}

impl Evidence for ShareFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let (Check::Way { variant, .. } | Check::Kept { variant, .. }) = check else { return None };
        let is_column = |c: &vmtax_model::ShareColumn| c.machine.is_guest() && c.variant == *variant;
        let Some(at) = self.columns.iter().position(is_column) else { return Some(Tested::no_value(variant)) };
        let column = &self.columns[at];
        // Why this method, or the one that all are compared with, gave nothing.
        let failed = column.failed.clone().or_else(|| self.columns.get(self.base)?.failed.clone());
        let untestable = |why: &str| Tested::untestable(failed.unwrap_or_else(|| format!("{why} with {variant}")));
        Some(match check {
            Check::Way { metric, at_least, at_most, .. } => {
                let cell = self.rows.iter().find(|r| r.metric == *metric).and_then(|r| r.cells.get(at));
                match cell.and_then(|c| c.against.as_ref()) {
                    Some(overhead) => Tested::within(overhead.ratio, ClaimUnit::Ratio, *at_least, *at_most),
                    None => untestable("no trial gave a value"),
                }
            }
            Check::Kept { property, keeping, .. } => match column.kept.iter().find(|k| k.what == *property) {
                Some(kept) => {
                    let same = kept.keeping == *keeping;
                    let verdict = if same { ClaimVerdict::Reproduced } else { ClaimVerdict::NotReproduced };
                    Tested { measured: None, unit: ClaimUnit::Ratio, verdict, why: kept.detail.clone(), times: None }
                }
                None => untestable("it was not tried"),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_methods_are_share_methods() {
        for method in METHODS.iter().chain(QUICK_METHODS) {
            share_variant(method).unwrap().share().unwrap().unwrap();
        }
    }
}
