//! One thing that is tried.

use std::io;
use std::path::Path;
use vmtax_model::Keeping;

/// What an attempt found. An error of the system is a refusal.
pub(super) type Found = io::Result<(Keeping, String)>;

/// One thing that is tried.
pub(super) struct Trial {
    pub what: &'static str,
    /// Makes what is looked at, in the folder given.
    pub set: fn(&Path) -> io::Result<()>,
    /// Looks at it.
    pub look: fn(&Path) -> Found,
}

/// Kept if so.
pub(super) fn kept_if(kept: bool, detail: impl Into<String>) -> Found {
    Ok((if kept { Keeping::Kept } else { Keeping::Lost }, detail.into()))
}
