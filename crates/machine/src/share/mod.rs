//! A tree shared with a guest: QEMU's words for it, the server behind it, what the guest mounts, and what took effect.

mod effect;
mod ganesha;
mod image;
mod mount;
mod server;
mod virtiofsd;
mod words;

use std::path::PathBuf;
use vmtax_model::{ImageFacts, Share, ShareMethod};

pub(crate) use effect::effect;
pub use image::{image_mib, make_image};
pub(crate) use mount::mount;
pub(crate) use server::{Reach, Server};
pub(crate) use words::{Meets, machine, words};

/// A tree to be shared, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharing {
    /// The way and its settings.
    pub share: Share,
    /// The folder, or the image made from it.
    pub source: PathBuf,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// Whether the folder is the user's, and not the run's own.
    pub users: bool,
    /// The server's program, for those that are served by one.
    pub server: Option<PathBuf>,
    /// The port mapper's program, for servers that must register with one.
    pub portmapper: Option<PathBuf>,
    /// The making of the image, for those who need one.
    pub image: Option<ImageFacts>,
    /// Where each machine has its own copy of the image, if it may write to it.
    pub copy: Option<PathBuf>,
    /// Whether it is the host's root, which stands at `source` for who serves it alone.
    pub host_root: bool,
}

impl Sharing {
    /// A folder of the run's own, to be written to, without what only some ways need.
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
            host_root: false,
        }
    }

    /// The host's root, where that is what is shared.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        self.host_root.then(|| self.source.clone())
    }

    /// The folder, where QEMU itself serves it; the host's root is set apart otherwise.
    pub(crate) fn served_by_qemu(&self) -> Option<PathBuf> {
        (self.share.method == ShareMethod::NineP && !self.host_root).then(|| self.source.clone())
    }
}
