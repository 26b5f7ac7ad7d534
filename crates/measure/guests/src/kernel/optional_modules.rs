//! Modules that a guest loads only when it is given a shared tree or a command's root, each in a list of their own, since
//! loading all of them takes longer than its whole boot.

use crate::kernel::error::KernelError;
use crate::kernel::modules::{Module, Tree};
use std::collections::HashSet;
use vmtax_model::{KernelFacts, ShareMethod};

/// Returns the modules that a guest needs for a share method; a disk with ext4 takes nothing that a guest has not
/// anyway.
const fn wanted(method: ShareMethod) -> &'static [&'static str] {
    match method {
        ShareMethod::NineP => &["9pnet_virtio", "9p"],
        ShareMethod::Virtiofs => &["virtiofs"],
        ShareMethod::Nfs3 => &[CARD, "nfsv3"],
        ShareMethod::Nfs4 => &[CARD, "nfsv4"],
        ShareMethod::Disk => &[],
        ShareMethod::Erofs => &["erofs"],
        ShareMethod::Squashfs => &["squashfs"],
    }
}

/// The list of a method's modules in the initramfs.
pub(crate) fn share_list(method: ShareMethod) -> String {
    format!("vmtax/modules-{method}.list")
}

/// The list of the modules of a command's root in the initramfs.
pub(crate) const COMMAND_LIST: &str = "vmtax/modules-command.list";
/// The layer above the host's files.
const LAYER: &str = "overlay";
/// A network card's driver.
pub(crate) const CARD: &str = "virtio_net";

/// The modules of each share method in load order, those that are loaded in any case left out; or why it is not available.
pub(crate) fn of_shares(
    tree: &Tree,
    kernel: &KernelFacts,
    methods: &[ShareMethod],
    base: &[Module],
) -> Vec<(ShareMethod, Result<Vec<Module>, KernelError>)> {
    let modules_to_load = |&method: &ShareMethod| {
        let order = tree.load_order(kernel, wanted(method));
        (method, order.map(|order| without(order, base)))
    };
    methods.iter().map(modules_to_load).collect()
}

/// The modules of a command's root in load order, those that are loaded in any case left out.
pub(crate) fn of_command(
    tree: &Tree,
    kernel: &KernelFacts,
    base: &[Module],
    network: bool,
) -> Result<Vec<Module>, KernelError> {
    let order = tree.load_order(kernel, if network { &[LAYER, CARD] } else { &[LAYER] })?;
    Ok(without(order, base))
}

fn without(order: Vec<Module>, base: &[Module]) -> Vec<Module> {
    let loaded: HashSet<&str> = base.iter().map(|m| m.name.as_str()).collect();
    let is_new = |module: &Module| !loaded.contains(module.name.as_str());
    order.into_iter().filter(is_new).collect()
}
