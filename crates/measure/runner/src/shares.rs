//! Shares of a plan's variants: each gives the plan's tree to its guests, or the host's root where they run a command.

use crate::RunError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_guests::kernel::KernelError;
use vmtax_model::{
    ImageFacts, Kept, Net, ON_THE_HOST, Plan, PlanError, Share, ShareFacts, ShareMethod, Tree,
    TrialResult, Variant, Warning, WorkloadSpec,
};
use vmtax_vm::{
    MachineError, RootExtras, RunningMachine, Scratch, Sharing, image_mib, make_image, tree_room,
};
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
    /// Sets each variant of the plan up, in order; `sharing` gives what its share becomes, or why it is not available.
    fn each(
        plan: &Plan,
        mut sharing: impl FnMut(Option<Share>) -> Result<Option<Sharing>, String>,
    ) -> Vec<ShareSetup> {
        let setup = |variant: &Variant| ShareSetup {
            variant: variant.clone(),
            disk: variant.disk(),
            share: variant
                .share()
                .map_err(|e| e.to_string())
                .and_then(&mut sharing),
        };
        plan.variants.iter().map(setup).collect()
    }
}

/// The shares that the guests' kernel cannot mount, with the reason.
type Refused = [(ShareMethod, KernelError)];

/// Checks that the guests' kernel can mount the methods that `is_taken` tells.
fn check_mountable(
    refused: &Refused,
    is_taken: impl Fn(ShareMethod) -> bool,
) -> Result<(), String> {
    match refused.iter().find(|(method, _)| is_taken(*method)) {
        Some((method, why)) => Err(format!("share={method}: {why}")),
        None => Ok(()),
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
pub(crate) fn images_mib(plan: &CheckedPlan) -> Result<u64, RunError> {
    let Some(tree) = &plan.tree else { return Ok(0) };
    let mut images: BTreeMap<ImageKey, bool> = BTreeMap::new();
    for variant in &plan.variants {
        if let Some(share) = variant.share()? {
            if let Some(kind) = kind(&share) {
                *images.entry(kind).or_default() |= !share.read_only(tree);
            }
        }
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
) -> Result<(u64, u64), RunError> {
    let (bytes, files) = tree_room(tree)?;
    let more = if method == ShareMethod::Disk {
        written(plan)?.share
    } else {
        (0, 0)
    };
    Ok((bytes.saturating_add(more.0), files.saturating_add(more.1)))
}

/// Amount of data that a plan's workloads write.
#[derive(Default)]
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
pub(crate) fn written(plan: &CheckedPlan) -> Result<Written, RunError> {
    let tree_files = plan
        .tree
        .as_ref()
        .filter(|tree| tree.path.is_none())
        .map_or(0, |tree| tree.files);
    let mut most = Written::default();
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
                    return Err(RunError::HeldTooMany {
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
    refused: &Refused,
    scratch: &Scratch,
) -> Vec<ShareSetup> {
    let mut ready = ShareBuilder {
        plan,
        refused,
        scratch,
        made: BTreeMap::new(),
    };
    ShareSetup::each(plan, |share| match share.zip(plan.tree.as_ref()) {
        Some((share, tree)) => ready.sharing(share, tree).map(Some),
        None => Ok(None),
    })
}

/// An image, and how it was made; or why it was not.
type MadeImage = Result<(PathBuf, ImageFacts), String>;

struct ShareBuilder<'a> {
    plan: &'a CheckedPlan,
    refused: &'a Refused,
    scratch: &'a Scratch,
    made: BTreeMap<ImageKey, MadeImage>,
}

impl ShareBuilder<'_> {
    fn sharing(&mut self, share: Share, tree: &Tree) -> Result<Sharing, String> {
        check_mountable(self.refused, |method| method == share.method)?;
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

/// The share of the host's root for each variant of a plan with a command, in order.
pub(crate) fn root_setups(
    plan: &Plan,
    refused: &Refused,
    scratch: &Scratch,
) -> Result<Vec<ShareSetup>, RunError> {
    let source = scratch.folder().join("root");
    let making = |source: std::io::Error| MachineError::System {
        what: "making the directory of the guests' root".to_owned(),
        source,
    };
    let source = std::path::absolute(source).map_err(making)?;
    // The parts of a tuning have one scratch folder.
    std::fs::create_dir_all(&source).map_err(making)?;
    let besides = besides(plan)?;
    let unset = "a command in a guest needs the host's files: set share=9p or share=virtiofs";
    Ok(ShareSetup::each(plan, |share| {
        root_sharing(share.ok_or(unset)?, refused, &source, &besides).map(Some)
    }))
}

/// Returns what guests can access in addition to the read-only root.
fn besides(plan: &Plan) -> Result<RootExtras, MachineError> {
    let Some(command) = plan.command() else {
        return Ok(RootExtras::default());
    };
    for folder in &command.write {
        if !folder.is_dir() {
            let source = std::io::ErrorKind::NotADirectory.into();
            return Err(MachineError::NoTree {
                folder: folder.clone(),
                source,
            });
        }
    }
    Ok(RootExtras {
        writable: command.write.clone(),
        network: command.net.map(|Net::User| command.forward.clone()),
    })
}

fn root_sharing(
    share: Share,
    refused: &Refused,
    source: &Path,
    besides: &RootExtras,
) -> Result<Sharing, String> {
    let taken = |method| {
        method == share.method || (method == ShareMethod::NineP && !besides.writable.is_empty())
    };
    check_mountable(refused, taken)?;
    let server = match share.method {
        ShareMethod::NineP | ShareMethod::Virtiofs => {
            vmtax_vm::share_program(&share).map_err(|e| e.to_string())?
        }
        other => {
            return Err(format!(
                "share={other} cannot share the host's root: use 9p or virtiofs"
            ));
        }
    };
    Ok(Sharing {
        read_only: true,
        server,
        host_root: Some(besides.clone()),
        ..Sharing::new(share, source.to_path_buf())
    })
}
