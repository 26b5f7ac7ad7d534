//! A tree shared with a guest: QEMU's words for it, the server behind it, what the guest mounts, and what took effect.

mod effect;
mod mount;
mod words;

use std::path::PathBuf;
use vmtax_model::{ImageFacts, Share};

pub(crate) use effect::effect;
pub(crate) use mount::mount;
pub(crate) use words::{machine, words};

/// A tree to be shared, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharing {
    /// The way and its settings.
    pub share: Share,
    /// The folder, or the image made from it.
    pub source: PathBuf,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// The making of the image, for those who need one.
    pub image: Option<ImageFacts>,
}
