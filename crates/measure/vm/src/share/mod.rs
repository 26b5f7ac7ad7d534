//! A tree shared with a guest: QEMU's arguments for it, the server behind it, what the guest mounts, and what took effect.

pub(crate) mod jail;
mod mount;
mod programs;
mod qemu_arguments;
mod server;

pub(crate) use mount::{effect, mount};
pub use programs::{
    check_rights, check_share, image_mib, make_image, portmapper_program, share_program,
};
pub(crate) use qemu_arguments::{ServerLink, arguments, machine, shares_memory};
pub(crate) use server::{Server, ServerAddress};

use std::path::{Path, PathBuf};
use vmtax_model::{Forward, ImageFacts, Share, ShareMethod};

/// A tree to be shared, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharing {
    /// The share method and its settings.
    pub share: Share,
    /// The folder, or the image made from it.
    pub source: PathBuf,
    /// True if the guest may only read.
    pub read_only: bool,
    /// True if the directory is the user's, and not the run's own.
    pub users: bool,
    /// The server's program, for those that are served by one.
    pub server: Option<PathBuf>,
    /// The port mapper's program, for servers that must register with one.
    pub portmapper: Option<PathBuf>,
    /// The making of the image, for those who need one.
    pub image: Option<ImageFacts>,
    /// Where each machine has its own copy of the image, if it may write to it.
    pub copy: Option<PathBuf>,
    /// The folder that becomes the root of a server that has one of its own, with the image in it as the tree.
    pub jail: Option<PathBuf>,
    /// For the host's root, which stands at `source` for who serves it alone: what a guest is given besides.
    pub host_root: Option<RootExtras>,
}

/// Access of a guest that runs the user's command, in addition to the host's read-only root.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RootExtras {
    /// Folders of the host's that it may write to.
    pub writable: Vec<PathBuf>,
    /// Ports of a network, if it is to have one.
    pub network: Option<Vec<Forward>>,
}

impl Sharing {
    /// A writable folder of the run, without what only some share methods need.
    pub fn new(share: Share, source: PathBuf) -> Sharing {
        Sharing {
            share,
            source,
            read_only: false,
            users: false,
            server: None,
            portmapper: None,
            image: None,
            copy: None,
            jail: None,
            host_root: None,
        }
    }

    /// The image that this machine has, or the folder.
    pub(crate) fn own(&self) -> &Path {
        self.copy.as_deref().unwrap_or(&self.source)
    }

    /// The host's root, where that is what is shared.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        self.host_root.is_some().then(|| self.source.clone())
    }

    /// The folders that QEMU itself serves read-write; the host's root is set apart otherwise.
    pub(crate) fn served_by_qemu(&self) -> Vec<PathBuf> {
        match &self.host_root {
            Some(besides) => besides.writable.clone(),
            None if self.share.method == ShareMethod::NineP => vec![self.source.clone()],
            None => Vec::new(),
        }
    }
}
