//! The modules that a shared tree takes, in a list of their own: a guest loads them only when it is given such a share,
//! since loading all of them takes longer than its whole boot.

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
        ShareMethod::Nfs3 => &["virtio_net", "nfsv3"],
        ShareMethod::Nfs4 => &["virtio_net", "nfsv4"],
        ShareMethod::Disk => &[],
        ShareMethod::Erofs => &["erofs"],
        ShareMethod::Squashfs => &["squashfs"],
    }
}

/// The list of a method's modules in the initramfs.
pub(crate) fn list(method: ShareMethod) -> String {
    format!("vmtax/modules-{method}.list")
}

/// The modules of each method in load order, those that are loaded in any case left out; or why it is not available.
pub(crate) fn find(
    tree: &Tree,
    kernel: &KernelFacts,
    methods: &[ShareMethod],
    base: &[Module],
) -> Vec<(ShareMethod, Result<Vec<Module>, KernelError>)> {
    let loaded: HashSet<&str> = base.iter().map(|m| m.name.as_str()).collect();
    let modules_to_load = |&method: &ShareMethod| {
        let order = tree.load_order(kernel, wanted(method));
        (
            method,
            order.map(|all| {
                all.into_iter()
                    .filter(|m| !loaded.contains(m.name.as_str()))
                    .collect()
            }),
        )
    };
    methods.iter().map(modules_to_load).collect()
}
