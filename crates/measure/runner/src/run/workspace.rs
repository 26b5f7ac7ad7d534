//! Workspace of a run: the files that its machines work on.

use crate::RunError;
use crate::images::Images;
use crate::requirements::Requirements;
use crate::shares;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{Variant, WorkloadName};
use vmtax_vm::{DiskKind, Needs, Scratch, disk_images_mib};
use vmtax_workload::CheckedPlan;

/// The scratch folder of a run and what its guests boot from; the parts of a tuning share them. Removed with the value.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(super) scratch: Scratch,
    pub(super) images: Images,
}

impl Workspace {
    pub(super) fn create(
        plan: &CheckedPlan,
        requirements: Option<&Requirements>,
        folder: &Path,
    ) -> Result<Workspace, RunError> {
        let scratch = Scratch::create(folder, needs(plan)?)?;
        let images = Images::make(plan, requirements, &shares::methods(plan)?, &scratch)?;
        Ok(Workspace { scratch, images })
    }
}

fn needs(plan: &CheckedPlan) -> Result<Needs, RunError> {
    let shares::Written {
        files_bytes,
        share: written,
    } = shares::written(plan)?;
    let guest = plan.machines.iter().any(|m| m.is_linux_guest());
    let images_mib = if guest { shares::images_mib(plan)? } else { 0 };
    let data = plan
        .workloads
        .iter()
        .any(|w| w.name == WorkloadName::Disk)
        .then_some(DiskKind::Data);
    let layer = plan.command().filter(|_| guest).and_then(|c| c.scratch_mib);
    let disk = data.or(layer.map(|mib| DiskKind::Layer { mib }));
    let disks: Vec<BTreeMap<String, String>> = plan.variants.iter().map(Variant::disk).collect();
    let images_mib = if disk.is_some() {
        images_mib + disk_images_mib(disks.iter())
    } else {
        images_mib
    };
    // A command uses the host's files.
    let files = guest && plan.command().is_none();
    Ok(Needs {
        disk,
        guest,
        files,
        files_bytes,
        tree: plan.tree.clone(),
        written,
        images_mib,
    })
}
