//! What can go wrong with a QEMU that is fetched, each with the way out.

use std::io;
use std::path::{Path, PathBuf};
use vmtax_apt::AptError;

/// A QEMU cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// Neither a version nor a suite.
    #[error("{name:?} is neither a QEMU version, such as 5.2, nor a suite of the distribution, such as trixie")]
    BadName {
        /// What was given.
        name: String,
    },
    /// No suite has that version.
    #[error(
        "no suite that was asked has QEMU {version}; there are {}: take one of these by its suite, or name another \
         suite of the archive",
        offered.join(", ")
    )]
    NotOffered {
        /// What was asked for.
        version: String,
        /// What there is, each with its suite.
        offered: Vec<String>,
    },
    /// The suite has no QEMU for x86.
    #[error("{suite} has no package qemu-system-x86 for amd64: take another suite (`vmtax get` lists them)")]
    NoQemu {
        /// The suite.
        suite: String,
    },
    /// It came, but does not run.
    #[error("QEMU of {suite} does not start here ({said}): take one of another suite (`vmtax get` lists them)")]
    DoesNotStart {
        /// The suite.
        suite: String,
        /// The last that it said.
        said: String,
    },
    /// The packages are not as expected.
    #[error("QEMU's packages of {suite} have no {missing}: take one of another suite (`vmtax get` lists them)")]
    Lacks {
        /// The suite.
        suite: String,
        /// What is not there.
        missing: String,
    },
    /// A file or folder of the cache.
    #[error("{}: {source}: check who may write it, or put the cache elsewhere with XDG_CACHE_HOME", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// apt does not bring it.
    #[error("{0}, or name a QEMU of your own with --qemu /path/to/qemu-system-x86_64")]
    Apt(#[from] AptError),
}

impl QemuError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> QemuError + '_ {
        move |source| QemuError::File { path: path.into(), source }
    }
}
