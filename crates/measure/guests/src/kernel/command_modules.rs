//! The modules that a command's root takes, in a list of their own as a share's are.

use crate::kernel::error::KernelError;
use crate::kernel::modules::{Module, Tree};
use std::collections::HashSet;
use vmtax_model::KernelFacts;

/// The list in the initramfs.
pub(crate) const LIST: &str = "vmtax/modules-command.list";
/// The layer above the host's files.
const LAYER: &str = "overlay";
/// A network card's driver.
pub(crate) const CARD: &str = "virtio_net";

/// In load order, those that are loaded in any case left out.
pub(crate) fn find(
    tree: &Tree,
    kernel: &KernelFacts,
    base: &[Module],
    network: bool,
) -> Result<Vec<Module>, KernelError> {
    let loaded: HashSet<&str> = base.iter().map(|m| m.name.as_str()).collect();
    let order = tree.load_order(kernel, if network { &[LAYER, CARD] } else { &[LAYER] })?;
    Ok(order
        .into_iter()
        .filter(|m| !loaded.contains(m.name.as_str()))
        .collect())
}
