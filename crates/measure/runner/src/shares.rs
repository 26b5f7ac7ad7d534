//! Shares of a plan's variants: each gives the plan's tree to its guests.

use crate::images::Images;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_model::{
    ImageFacts, Kept, ON_THE_HOST, Plan, PlanError, Share, ShareFacts, ShareMethod, Tree,
    TrialResult, Variant, Warning, WorkloadSpec,
};
use vmtax_vm::{MachineError, RunningMachine, Scratch, Sharing, image_mib, make_image, tree_room};
use vmtax_workload::{Checked, CheckedPlan, GuestState};

/// Memory that a minimal guest needs for itself, MiB.
const SYSTEM_MIB: u64 = 96;

/// A variant with its share.
pub(crate) struct ShareSetup {
    /// Variant of the plan.
    pub variant: Variant,
    /// Settings of the measured disk.
    pub disk: BTreeMap<String, String>,
    /// The share, if it has one; or why it is not available.
    pub share: Result<Option<Sharing>, String>,
}

impl ShareSetup {
    pub fn new(variant: &Variant, share: Result<Option<Sharing>, String>) -> ShareSetup {
        ShareSetup {
            variant: variant.clone(),
            disk: variant.disk(),
            share,
        }
    }
}

/// The share methods of a plan, each once.
pub(crate) fn methods(plan: &Plan) -> Result<Vec<ShareMethod>, PlanError> {
    let mut methods = Vec::new();
    for variant in &plan.variants {
        methods.extend(variant.share()?.map(|share| share.method));
    }
    if plan
        .command()
        .is_some_and(|command| !command.write.is_empty())
    {
        methods.push(ShareMethod::NineP);
    }
    methods.sort();
    methods.dedup();
    Ok(methods)
}

/// MiB that the images made from the plan's tree take, with a copy for a machine that writes to it.
pub(crate) fn images_mib(plan: &CheckedPlan) -> Result<u64, crate::RunError> {
    let Some(tree) = &plan.tree else { return Ok(0) };
    let mut images: BTreeMap<ImageKey, bool> = BTreeMap::new();
    for variant in &plan.variants {
        if let Some(share) = variant.share()? {
            if let Some(kind) = kind(&share) {
                *images.entry(kind).or_default() |= !share.read_only(tree);
            }
        }
    }
    if images.is_empty() {
        return Ok(0);
    }
    let mut sum = 0_u64;
    for (ImageKey { method, .. }, writable) in images {
        let (bytes, files) = image_room(plan, tree, method)?;
        sum = sum.saturating_add(
            image_mib(method, bytes, files).saturating_mul(1 + u64::from(writable)),
        );
    }
    Ok(sum)
}

/// Bytes and files that an image must have room for, including what guests write on a disk.
fn image_room(
    plan: &CheckedPlan,
    tree: &Tree,
    method: ShareMethod,
) -> Result<(u64, u64), crate::RunError> {
    let (bytes, files) = tree_room(tree)?;
    let more = if method == ShareMethod::Disk {
        written(plan)?.share
    } else {
        (0, 0)
    };
    Ok((bytes.saturating_add(more.0), files.saturating_add(more.1)))
}

/// Amount of data that a plan's workloads write.
pub(crate) struct Written {
    /// Bytes of files, of all workloads together.
    pub files_bytes: u64,
    /// Bytes and files that the largest makes in the tree: each removes its own.
    pub share: (u64, u64),
}

/// Returns the amount of data that the plan's workloads write, at the step where it is most.
///
/// # Errors
/// A workload that holds more names open than the machines' memory has room for.
pub(crate) fn written(plan: &CheckedPlan) -> Result<Written, crate::RunError> {
    let tree_files = plan
        .tree
        .as_ref()
        .filter(|tree| tree.path.is_none())
        .map_or(0, |tree| tree.files);
    let mut most = Written {
        files_bytes: 0,
        share: (0, 0),
    };
    for step in plan.checked_steps() {
        let memory_mib = u64::from(step.plan.guest.memory_mib);
        for workloads in step.workloads() {
            let mut files_bytes = 0;
            for workload in workloads {
                let room = workload.room(tree_files);
                files_bytes += room.files_bytes;
                most.share = (
                    room.share_bytes.max(most.share.0),
                    room.share_files.max(most.share.1),
                );
                let (name, held_mib) = (workload.name(), room.held_bytes >> 20);
                let needed = held_mib + SYSTEM_MIB;
                if needed > memory_mib {
                    return Err(crate::RunError::HeldTooMany {
                        workload: name,
                        held_mib,
                        memory_mib,
                        needed,
                    });
                }
            }
            most.files_bytes = files_bytes.max(most.files_bytes);
        }
    }
    Ok(most)
}

/// A warning if the limit of open files of the share's server is less than a guest opens.
pub(crate) fn few_open_files(workload: &Checked, share: &ShareFacts) -> Option<Warning> {
    let room = workload.room(0);
    let needed = match share.method {
        method if method.is_image() => 0,
        // virtiofsd has one open for each name that it ever gave.
        ShareMethod::Virtiofs => room.known_names,
        _ => room.held_files,
    };
    let limit = share.open_files.filter(|limit| *limit < needed)?;
    Some(Warning::FewOpenFiles {
        method: share.method,
        limit,
        needed,
    })
}

/// Identifies an image: how it is made and compressed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ImageKey {
    method: ShareMethod,
    compress: Option<String>,
}

/// The image that a share method needs, if any.
fn kind(share: &Share) -> Option<ImageKey> {
    let (method, compress) = match share.method {
        ShareMethod::NineP | ShareMethod::Virtiofs => return None,
        // A file system of the server's own: the files that a guest asks for by number are then the tree's.
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => (ShareMethod::Disk, None),
        method => (method, share.option("compress").map(str::to_owned)),
    };
    Some(ImageKey { method, compress })
}

/// The share of each variant of the plan, in order; makes the images that they need.
pub(crate) fn share_setups(
    plan: &CheckedPlan,
    images: &Images,
    scratch: &Scratch,
) -> Vec<ShareSetup> {
    let mut ready = ShareBuilder {
        plan,
        images,
        scratch,
        made: BTreeMap::new(),
    };
    let setup = |variant: &Variant| {
        let share = variant
            .share()
            .map_err(|e| e.to_string())
            .and_then(|share| match (share, &plan.tree) {
                (Some(share), Some(tree)) => ready.sharing(share, tree).map(Some),
                _ => Ok(None),
            });
        ShareSetup::new(variant, share)
    };
    plan.variants.iter().map(setup).collect()
}

/// An image, and how it was made; or why it was not.
type MadeImage = Result<(PathBuf, ImageFacts), String>;

struct ShareBuilder<'a> {
    plan: &'a CheckedPlan,
    images: &'a Images,
    scratch: &'a Scratch,
    made: BTreeMap<ImageKey, MadeImage>,
}

impl ShareBuilder<'_> {
    fn sharing(&mut self, share: Share, tree: &Tree) -> Result<Sharing, String> {
        if let Some((_, why)) = self
            .images
            .refused
            .iter()
            .find(|(method, _)| *method == share.method)
        {
            return Err(format!("share={}: {why}", share.method));
        }
        let folder = self.scratch.tree().ok_or("the plan has no tree")?;
        let (read_only, users) = (share.read_only(tree), tree.path.is_some());
        vmtax_vm::check_rights(&share).map_err(|e| e.to_string())?;
        let mut sharing = Sharing {
            read_only,
            users,
            ..Sharing::new(share, folder.to_path_buf())
        };
        if !sharing.share.method.is_image() {
            sharing.server = vmtax_vm::share_program(&sharing.share).map_err(|e| e.to_string())?;
        }
        sharing.portmapper =
            vmtax_vm::portmapper_program(&sharing.share).map_err(|e| e.to_string())?;
        if let Some(kind) = kind(&sharing.share) {
            let (path, facts) = self.image(kind, tree, folder)?;
            sharing.source = path;
            sharing.copy = (!read_only).then(|| self.scratch.folder().join("share.raw"));
            if sharing.share.method.is_image() {
                sharing.image = Some(facts);
            } else {
                sharing.jail = Some(self.place()?);
            }
        }
        Ok(sharing)
    }

    /// Creates the folder that becomes the server's root.
    fn place(&self) -> Result<PathBuf, String> {
        let at = self.scratch.folder().join("jail");
        std::fs::create_dir_all(&at)
            .map_err(|e| format!("{} cannot be created: {e}", at.display()))?;
        Ok(at)
    }

    /// The image of the tree, made by the first variant that needs it.
    fn image(&mut self, kind: ImageKey, tree: &Tree, folder: &Path) -> MadeImage {
        if let Some(made) = self.made.get(&kind) {
            return made.clone();
        }
        let path = self
            .scratch
            .folder()
            .join(format!("share-{}.{}", self.made.len(), kind.method));
        let options = kind
            .compress
            .iter()
            .map(|how| ("compress".to_owned(), how.clone()))
            .collect();
        let share = Share {
            method: kind.method,
            options,
        };
        let make = || -> Result<ImageFacts, MachineError> {
            let no_image = || MachineError::NoShare(format!("share={} has no image", share.method));
            let program = vmtax_vm::share_program(&share)?.ok_or_else(no_image)?;
            let (bytes, files) = image_room(self.plan, tree, share.method)
                .map_err(|e| MachineError::NoShare(e.to_string()))?;
            make_image(&share, &program, folder, bytes, files, &path)
        };
        let made = make()
            .map(|facts| (path.clone(), facts))
            .map_err(|e| e.to_string());
        self.made.insert(kind, made.clone());
        made
    }
}

/// The folder on the host that shows a guest's changes to the run's own tree; `None` for an image, which is a copy.
pub(crate) fn tree_on_host(machine: &dyn RunningMachine, scratch: &Scratch) -> Option<PathBuf> {
    let shared = machine
        .share()
        .is_some_and(|share| !share.method.is_image())
        && scratch.users_tree().is_none();
    machine
        .served()
        .or_else(|| scratch.tree().map(ToOwned::to_owned))
        .filter(|_| shared)
}

/// Checks from the host the files that the trial left in a shared `tree`, while the guest runs.
pub(crate) fn check_on_host(result: &TrialResult, tree: Option<&Path>) -> Vec<Kept> {
    let mut seen = tree.map_or_else(Vec::new, |tree| {
        vmtax_workload::check_from_host(&result.workload, tree, GuestState::Running)
    });
    seen.iter_mut().for_each(|kept| kept.what += ON_THE_HOST);
    seen
}

/// Checks from the host the unlinked files that a guest process held open when the guest was killed.
pub(crate) fn check_after_power_cut(workload: &WorkloadSpec, tree: Option<&Path>) -> Vec<Kept> {
    tree.map_or_else(Vec::new, |tree| {
        vmtax_workload::check_from_host(workload, tree, GuestState::Ended)
    })
}
