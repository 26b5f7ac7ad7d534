//! A property of files that is tried.

use std::io;
use std::path::Path;
use vmtax_model::Keeping;

/// Result of an attempt. An error of the system is a refusal.
pub(super) type Found = io::Result<(Keeping, String)>;

/// A property of files that is tried.
pub(super) struct Property {
    pub what: &'static str,
    /// Makes what is checked, in the folder given.
    pub set: fn(&Path) -> io::Result<()>,
    /// Function that checks the property, in the folder given.
    pub check: fn(&Path) -> Found,
}

/// Kept if so.
pub(super) fn kept_if(kept: bool, detail: impl Into<String>) -> Found {
    Ok((
        if kept { Keeping::Kept } else { Keeping::Lost },
        detail.into(),
    ))
}
