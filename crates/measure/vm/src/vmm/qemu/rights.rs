//! QEMU's rights on the host. A guest that takes QEMU over has them, so where this program is root, QEMU is not.

use super::logs::events;
use crate::MachineError;
use crate::sandbox::reach::Reach;
use crate::sandbox::rights::{Rights, RightsOfUser, unprivileged_user};
use crate::setup::{Boot, Setup};
use crate::share::Sharing;
use rustix::thread::CapabilitySet;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use vmtax_model::{QemuFacts, ShareMethod};

/// Capabilities for serving a tree in which guests write, besides those for reading it: new files get their user's
/// number.
const WRITING: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER);
/// Capabilities for serving a tree that ends with the run, as others cannot reach it: set-group-ID files, device
/// nodes.
const OWN_TREE: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::MKNOD);
const KVM: &str = "/dev/kvm";

/// QEMU's rights for a guest; `None` for all of this program's.
pub(super) fn rights(setup: &Setup<'_>, qemu: &QemuFacts) -> Result<Option<Rights>, MachineError> {
    let users = setup
        .share
        .and_then(|sharing| sharing.host_root.as_ref())
        .map_or(&[][..], |besides| &besides.writable);
    // What a guest makes in the user's folders outlives the run.
    let no_set_id = !users.is_empty();
    let Some(id) = unprivileged_user() else {
        return Ok(no_set_id.then_some(Rights {
            user: None,
            no_set_id,
        }));
    };
    let kvm = setup
        .machine
        .is_kvm()
        .then(|| Path::new(KVM).metadata().ok())
        .flatten();
    let group = kvm
        .filter(|kvm| kvm.mode() & 0o060 == 0o060)
        .map(|kvm| kvm.gid());
    let mut user = RightsOfUser {
        id,
        groups: group.into_iter().collect(),
        ..RightsOfUser::default()
    };
    if setup.machine.is_kvm() {
        user.reached.push(KVM.into());
    }
    match setup.share.filter(|sharing| is_server(sharing)) {
        None => {
            hand_over(setup, id)?;
            let reach = Reach {
                user: id,
                groups: &user.groups,
            };
            // A QEMU that was built or fetched may be in a folder of root's.
            let installation = reach.installation(&qemu.path).ok();
            user.reached.extend(
                installation
                    .into_iter()
                    .chain([qemu.path.clone()])
                    .chain(files(setup)),
            );
        }
        Some(sharing) => {
            let mut capabilities = CapabilitySet::DAC_READ_SEARCH;
            if no_set_id || !sharing.read_only {
                capabilities |= WRITING;
                let is_own = !no_set_id && !sharing.users;
                capabilities |= if is_own {
                    OWN_TREE
                } else {
                    CapabilitySet::empty()
                };
                let folders = [
                    setup.scratch.folder().to_path_buf(),
                    setup.log.to_path_buf(),
                ];
                user.writable = Some(users.iter().cloned().chain(folders).collect());
            } else {
                hand_over(setup, id)?;
            }
            user.capabilities = capabilities.bits();
        }
    }
    Ok(Some(Rights {
        user: Some(user),
        no_set_id,
    }))
}

/// The files that QEMU's arguments name.
fn files(setup: &Setup<'_>) -> Vec<PathBuf> {
    let booted = match setup.boot {
        Boot::Host => Vec::new(),
        Boot::Linux(_, image) => vec![image.kernel.clone(), image.initramfs.clone()],
        Boot::Micro(_, rom) => vec![rom.to_path_buf()],
    };
    booted
        .into_iter()
        .chain(setup.guest.firmware.clone())
        .chain(written(setup))
        .collect()
}

/// The files that QEMU writes, and the image of a share.
fn written(setup: &Setup<'_>) -> Vec<PathBuf> {
    let is_disk = |sharing: &&Sharing| {
        matches!(
            sharing.share.method,
            ShareMethod::Disk | ShareMethod::Erofs | ShareMethod::Squashfs
        )
    };
    let image = setup
        .share
        .filter(is_disk)
        .map(|sharing| sharing.own().to_path_buf());
    let events = setup.events.then(|| events(setup.log));
    [
        setup.scratch.image(setup.disk),
        setup.scratch.files_image(),
        image,
        events,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns true if QEMU itself serves host files to the guest.
fn is_server(sharing: &Sharing) -> bool {
    sharing.share.method == ShareMethod::NineP || !sharing.served_by_qemu().is_empty()
}

/// Gives a user the files that QEMU writes.
fn hand_over(setup: &Setup<'_>, user: u32) -> Result<(), MachineError> {
    for path in written(setup) {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let given = file.and_then(|file| fchown(file, Some(user), Some(user)));
        given.map_err(|e| {
            MachineError::system(format!("giving {} to QEMU's user", path.display()), e)
        })?;
    }
    Ok(())
}
