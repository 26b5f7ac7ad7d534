//! Errors of fetching from a distribution's archive, each with the remedy.

use crate::FileError;
use std::path::PathBuf;
use vmtax_trust::Untrusted;

/// Packages cannot be asked for, fetched or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum AptError {
    /// No place for the cache is known.
    #[error(
        "neither XDG_CACHE_HOME nor HOME names a folder for the cache: set one, for example `HOME=/root vmtax …`"
    )]
    NoCacheDir,
    /// This is root, and another user could replace what root would execute.
    #[error(
        "{} is not used as root: {found}, so kernels and QEMUs in it may be of that user's making. Set XDG_CACHE_HOME to a \
         folder of root's, for example `XDG_CACHE_HOME=/root/.cache`",
        cache.display()
    )]
    UntrustedCache {
        /// Folder of the cache.
        cache: PathBuf,
        /// Who can change it, and where.
        found: Untrusted,
    },
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The packages do not fit on the disk.
    #[error(
        "{}: {} MB are free, {} are needed: free some, or move the cache with XDG_CACHE_HOME",
        folder.display(), have / 1_000_000, need / 1_000_000
    )]
    NoRoom {
        /// Where it was to lie.
        folder: PathBuf,
        /// Bytes that are free.
        have: u64,
        /// Bytes that it takes.
        need: u64,
    },
    /// This system has no apt to fetch with.
    #[error("{program} is not installed: vmtax fetches packages with apt (Debian, Ubuntu)")]
    NoApt {
        /// The program that was looked for.
        program: String,
    },
    /// apt's sources name no archive of a distribution.
    #[error(
        "apt's sources have no archive of Debian or Ubuntu to search for other suites: see \
         /etc/apt/sources.list and /etc/apt/sources.list.d"
    )]
    NoArchive,
    /// The archive does not have a suite.
    #[error(
        "the archive {archive} has no suite {suite}: check its name; old suites move to another archive"
    )]
    NoSuite {
        /// The archive's address.
        archive: String,
        /// Name of the suite.
        suite: String,
    },
    /// The suite is signed with a key that is not in the distribution's keyring.
    #[error(
        "{suite} is signed with a key that is not in {keyring}: install the newest {package} \
         (`sudo apt-get install {package}`)"
    )]
    NoKey {
        /// Name of the suite.
        suite: String,
        /// Where its key was looked for.
        keyring: String,
        /// The package that brings keys.
        package: &'static str,
    },
    /// apt or dpkg failed.
    #[error("`{command}` failed:\n{said}\nCheck the network and apt's sources")]
    Failed {
        /// The command line.
        command: String,
        /// The end of its output.
        said: String,
    },
}
