//! Costs of each method of sharing a tree with guests.

use crate::options::values::bytes;
use crate::options::{
    CommonOptions, LazyHost, OptionsError, StudyOptions, share_variant, with_help,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use std::path::PathBuf;
use vmtax_findings::{ClaimUnit, ClaimVerdict, ShareColumn, ShareFindings};
use vmtax_model::{
    FEWEST_ROUNDS, HostFacts, KvmClass, Machine, Missing, Plan, Share, Study, Tree, Variant,
    WorkloadName, WorkloadSpec,
};
use vmtax_vm::MachineError;
use vmtax_workload::CheckedPlan;

/// The share methods that are compared where none is named; QEMU's default, the baseline, first. 512000 is the largest
/// message size of virtio-9p, `PAGE_SIZE * (VIRTQUEUE_NUM - 3)` in the kernel's `net/9p/trans_virtio.c`, which caps a larger one.
const METHODS: &[&str] = &[
    "9p",
    "9p,msize=512000",
    "9p,msize=512000,cache=loose",
    "virtiofs",
    "virtiofs,cache=always",
    "nfs4",
    "disk",
    "erofs",
];
const QUICK_METHODS: &[&str] = &[
    "9p",
    "9p,msize=512000,cache=loose",
    "virtiofs",
    "nfs4",
    "disk",
    "erofs",
];

/// The options of `vmtax share`.
#[derive(Debug, Args)]
#[command(
    mut_arg(
        "machine",
        with_help(
            "The guest: kvm or tcg; native is always measured [default: kvm if usable, else tcg]"
        )
    ),
    mut_arg(
        "rounds",
        with_help(
            "Rounds: each method once, in random order; a 95 % confidence interval (CI) needs at least 6 [default: 6]"
        )
    ),
    after_help = "METHOD is 9p, virtiofs, nfs3, nfs4, disk, erofs or squashfs, with options: 9p,msize=512000,cache=loose or \
virtiofs,cache=always or 9p,qemu=5.2. Mount options are verified in the guest. See docs/shares.md.

Examples:
  vmtax share --quick
  vmtax share 9p 9p,cache=loose virtiofs --details
  vmtax share --tree ~/src/project 9p,cache=loose virtiofs erofs"
)]
pub struct ShareOptions {
    /// Share methods (the first is the baseline): METHOD[,OPTION=VALUE...] [default: those of 9p 9p,msize=512000
    /// 9p,msize=512000,cache=loose virtiofs virtiofs,cache=always nfs4 disk erofs that this host supports]
    #[arg(value_name = "METHOD")]
    methods: Vec<String>,
    /// Fewer methods and a smaller tree: under 4 minutes on 2 idle cores
    #[arg(long)]
    quick: bool,
    /// Share this directory read-only, instead of a generated tree
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "bytes"])]
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
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let usual = if self.quick { QUICK_METHODS } else { METHODS };
        let named: Vec<&str> = self.methods.iter().map(String::as_str).collect();
        let methods = if named.is_empty() { usual } else { &named };
        let (files, bytes) = if self.quick {
            (200, 16 << 20)
        } else {
            (2000, 64 << 20)
        };
        let files = self.files.unwrap_or(files);
        let bytes = self
            .bytes
            .unwrap_or(bytes)
            .max(files.saturating_mul(Tree::SMALL));
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
        if machines.as_ref().is_some_and(|named| named.len() != 2) {
            return OptionsError::usage(
                "share measures on one guest: name one with --machine, as in --machine tcg",
            );
        }
        let variants = methods
            .iter()
            .map(|method| share_variant(method))
            .collect::<Result<Vec<_>, _>>()?;
        let (variants, not_measured) =
            available(variants, !named.is_empty(), &vmtax_vm::check_share)?;
        let default = |class: KvmClass| vec![Machine::NATIVE, class.default_guest()];
        let plan = Plan {
            study: Study::Share,
            tree: Some(Tree {
                files,
                bytes,
                path: self.tree.clone(),
            }),
            variants,
            not_measured,
            ..Plan::new(
                "share",
                FEWEST_ROUNDS,
                machines.unwrap_or_default(),
                workloads,
            )
        };
        self.common.complete_on(host, default, plan)
    }
}

/// The variants that this host supports, and the others with the reason; one that was `named` must be available.
fn available(
    variants: Vec<Variant>,
    named: bool,
    check: &dyn Fn(&Share) -> Result<(), MachineError>,
) -> Result<(Vec<Variant>, Vec<Missing>), OptionsError> {
    let (mut measured, mut not_measured) = (Vec::new(), Vec::new());
    for variant in variants {
        match variant.share()?.map_or(Ok(()), |share| check(&share)) {
            Ok(()) => measured.push(variant),
            Err(error) if named => {
                let name = &variant.name;
                return OptionsError::usage(format!(
                    "{name} cannot be measured on this host: {error}"
                ));
            }
            Err(error) => not_measured.push(Missing::for_error(&variant.name, &error)),
        }
    }
    if let (true, Some(first)) = (measured.is_empty(), not_measured.first()) {
        let Missing { why, fix, .. } = first;
        return OptionsError::usage(format!(
            "this host can have none of the share methods; {why}: {fix}"
        ));
    }
    Ok((measured, not_measured))
}

impl Evidence for ShareFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        let (Check::Way { variant, .. } | Check::Kept { variant, .. }) = check else {
            return None;
        };
        let is_column = |c: &ShareColumn| c.machine.is_guest() && c.variant == *variant;
        let Some(at) = self.columns.iter().position(is_column) else {
            return Some(Tested::no_value(variant));
        };
        let column = &self.columns[at];
        // Why this method, or the one that all are compared with, gave nothing.
        let failed = column
            .failed
            .clone()
            .or_else(|| self.columns.get(self.base)?.failed.clone());
        let untestable = |why: &str| {
            Tested::untestable(failed.unwrap_or_else(|| format!("{why} with {variant}")))
        };
        Some(match check {
            Check::Way {
                metric,
                at_least,
                at_most,
                ..
            } => {
                let row = self.rows.iter().find(|row| row.metric == *metric);
                let cell = row.and_then(|row| row.cells.get(at));
                match cell.and_then(|cell| cell.against.as_ref()) {
                    Some(overhead) => {
                        Tested::within(overhead.ratio, ClaimUnit::Ratio, *at_least, *at_most)
                    }
                    None => untestable("no trial gave a value"),
                }
            }
            Check::Kept {
                property, keeping, ..
            } => match column.kept.iter().find(|k| k.what == *property) {
                Some(kept) => {
                    let verdict = match kept.keeping == *keeping {
                        true => ClaimVerdict::Reproduced,
                        false => ClaimVerdict::NotReproduced,
                    };
                    Tested::decided(None, ClaimUnit::Ratio, verdict, kept.detail.clone())
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

    fn kept_of(
        names: &[&str],
        named: bool,
        lacks: &[&str],
    ) -> Result<(Vec<String>, Vec<Missing>), String> {
        let variants = names
            .iter()
            .map(|name| share_variant(name).unwrap())
            .collect();
        let check = |share: &Share| match lacks.contains(&share.method.to_string().as_str()) {
            true => Err(MachineError::NoShare(format!(
                "share={} needs a, which is not installed: `apt b`",
                share.method
            ))),
            false => Ok(()),
        };
        let found = available(variants, named, &check).map_err(|error| error.to_string())?;
        Ok((
            found.0.into_iter().map(|variant| variant.name).collect(),
            found.1,
        ))
    }

    #[test]
    fn what_the_host_lacks_is_left_out_unless_it_was_named() {
        let (measured, missing) =
            kept_of(&["9p", "nfs4", "erofs"], false, &["nfs4", "erofs"]).unwrap();
        assert_eq!((measured, missing.len()), (vec!["9p".to_owned()], 2));
        let Missing { what, why, fix } = &missing[0];
        assert_eq!(
            (&**what, &**why, &**fix),
            (
                "nfs4",
                "share=nfs4 needs a, which is not installed",
                "`apt b`"
            )
        );
        assert_eq!(
            kept_of(&["9p", "nfs4"], true, &["nfs4"]).unwrap_err(),
            "nfs4 cannot be measured on this host: share=nfs4 needs a, which is not installed: `apt b`"
        );
        assert_eq!(
            kept_of(&["9p", "nfs4"], true, &["erofs"]).unwrap().0,
            ["9p", "nfs4"]
        );
        let none = kept_of(&["nfs4"], false, &["nfs4"]).unwrap_err();
        assert!(
            none.contains("none of the share methods; share=nfs4 needs a"),
            "{none}"
        );
    }
}
