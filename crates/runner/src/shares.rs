//! How each of a plan's variants gives its guests the plan's tree.

use crate::images::Images;
use std::collections::BTreeMap;
use vmtax_machine::{Scratch, Sharing};
use vmtax_model::{Plan, PlanError, Share, ShareMethod, Variant};

/// A variant, ready to be used.
pub(crate) struct Way {
    /// Settings of the measured disk.
    pub disk: BTreeMap<String, String>,
    /// The share, if it has one; or why it cannot be had.
    pub share: Result<Option<Sharing>, String>,
}

/// The shares that a plan asks for, each once.
pub(crate) fn methods(plan: &Plan) -> Result<Vec<ShareMethod>, PlanError> {
    let mut methods = Vec::new();
    for variant in &plan.variants {
        methods.extend(variant.share()?.map(|share| share.method));
    }
    methods.sort();
    methods.dedup();
    Ok(methods)
}

/// Each variant of the plan, in order.
pub(crate) fn ways(plan: &Plan, images: &Images, scratch: &Scratch) -> Vec<Way> {
    plan.variants.iter().map(|v| Way { disk: v.disk(), share: sharing(plan, v, images, scratch) }).collect()
}

fn sharing(plan: &Plan, variant: &Variant, images: &Images, scratch: &Scratch) -> Result<Option<Sharing>, String> {
    let Some(share) = variant.share().map_err(|e| e.to_string())? else { return Ok(None) };
    let (Some(tree), Some(folder)) = (&plan.tree, scratch.tree()) else { return Ok(None) };
    if let Some((_, why)) = images.refused.iter().find(|(method, _)| *method == share.method) {
        return Err(why.to_string());
    }
    let read_only = share.read_only(tree);
    Ok(Some(from_folder(share, folder, read_only)))
}

fn from_folder(share: Share, folder: &std::path::Path, read_only: bool) -> Sharing {
    Sharing { share, source: folder.to_path_buf(), read_only, image: None }
}
