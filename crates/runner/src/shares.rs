//! How each of a plan's variants gives its guests the plan's tree.

use crate::images::Images;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_machine::{MachineError, Scratch, Sharing, image_mib, make_image, tree_room};
use vmtax_model::{ImageFacts, Plan, PlanError, Share, ShareMethod, Tree};

/// A variant, ready to be used.
pub(crate) struct Way {
    /// Settings of the measured disk.
    pub disk: BTreeMap<String, String>,
    /// The share, if it has one; or why it cannot be had.
    pub share: Result<Option<Sharing>, String>,
}

/// The shares that a plan asks for, each method once.
pub(crate) fn methods(plan: &Plan) -> Result<Vec<ShareMethod>, PlanError> {
    let mut methods = Vec::new();
    for variant in &plan.variants {
        methods.extend(variant.share()?.map(|share| share.method));
    }
    methods.sort();
    methods.dedup();
    Ok(methods)
}

/// MiB that the images made from the plan's tree take, with a copy for a machine that writes to it.
pub(crate) fn images_mib(plan: &Plan) -> Result<u64, crate::RunError> {
    let Some(tree) = &plan.tree else { return Ok(0) };
    let mut images: BTreeMap<(ShareMethod, Option<String>), bool> = BTreeMap::new();
    for variant in &plan.variants {
        if let Some(share) = variant.share()?.filter(|share| share.method.is_image()) {
            *images.entry(kind(&share)).or_default() |= !share.read_only(tree);
        }
    }
    if images.is_empty() {
        return Ok(0);
    }
    let (bytes, files) = tree_room(tree)?;
    let mib = |(method, writable): (ShareMethod, bool)| image_mib(method, bytes, files) * (1 + u64::from(writable));
    Ok(images.into_iter().map(|((method, _), writable)| mib((method, writable))).sum())
}

/// What makes one image another.
fn kind(share: &Share) -> (ShareMethod, Option<String>) {
    (share.method, share.option("compress").map(str::to_owned))
}

/// Each variant of the plan, in order; images that they need are made.
pub(crate) fn ways(plan: &Plan, images: &Images, scratch: &Scratch) -> Vec<Way> {
    let mut ready = Ready { images, scratch, made: BTreeMap::new() };
    let way = |variant: &vmtax_model::Variant| {
        let share = variant.share().map_err(|e| e.to_string()).and_then(|share| match (share, &plan.tree) {
            (Some(share), Some(tree)) => ready.sharing(share, tree).map(Some),
            _ => Ok(None),
        });
        Way { disk: variant.disk(), share }
    };
    plan.variants.iter().map(way).collect()
}

/// An image, and how it was made; or why it was not.
type Made = Result<(PathBuf, ImageFacts), String>;

struct Ready<'a> {
    images: &'a Images,
    scratch: &'a Scratch,
    made: BTreeMap<(ShareMethod, Option<String>), Made>,
}

impl Ready<'_> {
    fn sharing(&mut self, share: Share, tree: &Tree) -> Result<Sharing, String> {
        if let Some((_, why)) = self.images.refused.iter().find(|(method, _)| *method == share.method) {
            return Err(format!("share={}: {why}", share.method));
        }
        let folder = self.scratch.tree().ok_or("the plan has no tree")?;
        let (read_only, users) = (share.read_only(tree), tree.path.is_some());
        let (mut source, mut image, mut server, mut copy) = (folder.to_path_buf(), None, None, None);
        match share.method {
            ShareMethod::NineP => {}
            ShareMethod::Virtiofs | ShareMethod::Nfs4 => server = Some(program(&share)?),
            ShareMethod::Nfs3 => {
                return Err("share=nfs3 has no server here: nfs-ganesha serves version 3 only with an rpcbind of the \
                            host's; use share=nfs4"
                    .to_owned());
            }
            ShareMethod::Disk | ShareMethod::Erofs | ShareMethod::Squashfs => {
                let (path, facts) = self.image(&share, tree, folder)?;
                copy = (!read_only).then(|| self.scratch.folder().join("share.raw"));
                (source, image) = (path, Some(facts));
            }
        }
        Ok(Sharing { share, source, read_only, users, server, image, copy })
    }

    /// The image of the tree, made by the first variant that needs it.
    fn image(&mut self, share: &Share, tree: &Tree, folder: &Path) -> Made {
        if let Some(made) = self.made.get(&kind(share)) {
            return made.clone();
        }
        let path = self.scratch.folder().join(format!("share-{}.{}", self.made.len(), share.method));
        let make = || -> Result<ImageFacts, MachineError> {
            let program = program(share).map_err(MachineError::NoShare)?;
            make_image(share, &program, folder, tree_room(tree)?, &path)
        };
        let made = make().map(|facts| (path.clone(), facts)).map_err(|e| e.to_string());
        self.made.insert(kind(share), made.clone());
        made
    }
}

/// The program that serves or makes what is shared.
fn program(share: &Share) -> Result<PathBuf, String> {
    let (name, package) = match share.method {
        ShareMethod::Virtiofs => ("virtiofsd", "virtiofsd` (on Debian 12 `apt-get install qemu-system-common"),
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
        ShareMethod::Disk | ShareMethod::NineP => ("mkfs.ext4", "e2fsprogs"),
        ShareMethod::Erofs => ("mkfs.erofs", "erofs-utils"),
        ShareMethod::Squashfs => ("mksquashfs", "squashfs-tools"),
    };
    if let Some(named) = share.option("server").map(PathBuf::from) {
        let lacking = || format!("share.server={} is no file: name the {name} to use", named.display());
        return if named.is_file() { Ok(named.clone()) } else { Err(lacking()) };
    }
    vmtax_host::find_program(name)
        .ok_or_else(|| format!("share={} needs {name}, which is not here: `apt-get install {package}`", share.method))
}
