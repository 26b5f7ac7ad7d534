//! QEMU's rights on the host. A guest that takes QEMU over has them, so where this program is root, QEMU is not.

use super::logs::events;
use crate::MachineError;
use crate::sandbox::rights::{Rights, RightsOfUser, unprivileged_user};
use crate::setup::Setup;
use crate::share::Sharing;
use rustix::thread::CapabilitySet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use vmtax_model::{QemuFacts, ShareMethod};

/// The first major version with `-run-with user=`, which replaces `-runas`.
const RUN_WITH_USER: u32 = 10;
/// What serving a tree needs in addition to reading it, where guests write: what they make gets their user's number.
const WRITING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::CHOWN).union(CapabilitySet::FOWNER);
/// What only a tree that ends with the run is served with, as others cannot reach it: set-group-ID files, device nodes.
const OWN_TREE: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::MKNOD);
const KVM: &str = "/dev/kvm";

/// QEMU's rights for a guest, and the arguments that go with them.
pub(super) fn rights(setup: &Setup<'_>, qemu: &QemuFacts) -> Result<(Option<Rights>, Vec<String>), MachineError> {
    let users = setup.share.and_then(|sharing| sharing.host_root.as_ref()).map_or(&[][..], |besides| &besides.writable);
    // What a guest makes in the user's folders outlives the run.
    let no_set_uid = !users.is_empty();
    let Some(id) = unprivileged_user() else {
        return Ok((no_set_uid.then_some(Rights { user: None, no_set_uid }), Vec::new()));
    };
    let Some(sharing) = setup.share.filter(|sharing| is_server(sharing)) else {
        // It opens its files as root, and is someone else before the guest runs.
        let major = qemu.version.split('.').next().and_then(|major| major.parse().ok());
        let option = if major >= Some(RUN_WITH_USER) { ["-run-with", "user="] } else { ["-runas", ""] };
        let arguments = vec![option[0].to_owned(), format!("{}{id}:{id}", option[1])];
        return Ok((Some(Rights::default()), arguments));
    };
    let mut capabilities = CapabilitySet::DAC_READ_SEARCH;
    let kvm = setup.machine.is_kvm().then(|| Path::new(KVM).metadata().ok()).flatten();
    let group = kvm.as_ref().filter(|kvm| kvm.mode() & 0o060 == 0o060).map(MetadataExt::gid);
    let is_closed = kvm.is_some_and(|kvm| kvm.mode() & 0o006 != 0o006 && group.is_none());
    if no_set_uid || !sharing.read_only || is_closed {
        capabilities |= WRITING;
        let is_own = !no_set_uid && !sharing.users;
        capabilities |= if is_own { OWN_TREE } else { CapabilitySet::empty() };
    }
    let mut writable = users.to_vec();
    writable.extend([setup.scratch.folder().to_path_buf(), setup.log.to_path_buf()]);
    let writable = capabilities.contains(WRITING).then_some(writable);
    if writable.is_none() {
        hand_over(setup, id)?;
    }
    let user = RightsOfUser { id, groups: group.into_iter().collect(), capabilities: capabilities.bits(), writable };
    Ok((Some(Rights { user: Some(user), no_set_uid }), Vec::new()))
}

/// Whether QEMU itself serves host files to the guest.
fn is_server(sharing: &Sharing) -> bool {
    sharing.share.method == ShareMethod::NineP || !sharing.served_by_qemu().is_empty()
}

/// Gives a user the files that QEMU writes.
fn hand_over(setup: &Setup<'_>, user: u32) -> Result<(), MachineError> {
    let events = setup.events.then(|| events(setup.log));
    let files = [setup.scratch.disk(), setup.scratch.files_image(), events.clone()];
    for path in files.into_iter().flatten() {
        let is_new = events.as_ref() == Some(&path);
        let file = if is_new { File::create(&path) } else { OpenOptions::new().write(true).open(&path) };
        let given = file.and_then(|file| fchown(file, Some(user), Some(user)));
        given.map_err(|e| MachineError::system(format!("giving {} to QEMU's user", path.display()), e))?;
    }
    Ok(())
}
