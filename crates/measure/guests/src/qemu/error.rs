//! Errors of fetching or building a QEMU, each with the remedy.

use crate::FileError;
use crate::apt::AptError;
use std::io;
use std::path::PathBuf;

/// A QEMU cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// Neither a version nor a suite.
    #[error(
        "{name:?} is neither a QEMU version, such as 5.2, nor a suite of the distribution, such as trixie"
    )]
    BadName {
        /// Name that was given.
        name: String,
    },
    /// No suite has that version.
    #[error(
        "no queried suite has QEMU {version}; available: {}. Use one of these suites, or another suite \
         of the archive",
        offered.join(", ")
    )]
    NotOffered {
        /// Version that was asked for.
        version: String,
        /// Versions that are available, each with its suite.
        offered: Vec<String>,
    },
    /// The suite has no QEMU for x86.
    #[error(
        "{suite} has no package qemu-system-x86 for amd64: use another suite (`vmtax get` lists them)"
    )]
    NoQemu {
        /// Name of the suite.
        suite: String,
    },
    /// It came, but does not run.
    #[error(
        "QEMU of {suite} does not start on this host ({said}): use another suite (`vmtax get` lists them)"
    )]
    DoesNotStart {
        /// Name of the suite.
        suite: String,
        /// The last that it said.
        said: String,
    },
    /// The packages are not as expected.
    #[error(
        "QEMU's packages of {suite} have no {missing}: use another suite (`vmtax get` lists them)"
    )]
    Lacks {
        /// Name of the suite.
        suite: String,
        /// Program or package that is missing.
        missing: String,
    },
    /// Neither a source tree nor a version nor a suite.
    #[error(
        "{given:?} is neither a folder with QEMU's source (its configure is not there), nor a version, such as 7.2, nor a \
         suite of the distribution, such as bookworm"
    )]
    NoSource {
        /// Source that was given.
        given: String,
    },
    /// A patch cannot be read.
    #[error("the patch {given:?} cannot be read ({source}): give a file, or one that comes with vmtax: {}", crate::qemu::Recipe::own_patches().join(", "))]
    NoPatch {
        /// Patch that was given.
        given: String,
        /// Error from reading the patch.
        source: io::Error,
    },
    /// A patch does not fit the source.
    #[error(
        "the patch {given} does not apply to this source:\n{said}\nIt is applied with `patch -p1`: use the version that it was made for"
    )]
    PatchFails {
        /// Patch that was given.
        given: String,
        /// Output of `patch`.
        said: String,
    },
    /// A program that building takes is not there.
    #[error("building needs {program}: `sudo apt-get install {package}`")]
    NoTool {
        /// Name of the program.
        program: &'static str,
        /// The package that brings it.
        package: &'static str,
    },
    /// configure or the compiler failed.
    #[error("{step} failed:\n{said}\nThe whole log is {}{}", log.display(), install(missing))]
    BuildFails {
        /// Step that failed.
        step: &'static str,
        /// The decisive lines.
        said: String,
        /// The whole log.
        log: PathBuf,
        /// Packages that are not there.
        missing: Vec<&'static str>,
    },
    /// It was built to the end, and is not there.
    #[error("the build succeeded but produced {what}: see the log {}", log.display())]
    NotBuilt {
        /// The whole log.
        log: PathBuf,
        /// Description of what is not as expected.
        what: String,
    },
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// apt does not bring it.
    #[error("{0}. Or use your own QEMU with --qemu /path/to/qemu-system-x86_64")]
    Apt(#[from] AptError),
}

/// The step that brings what is missing.
fn install(missing: &[&str]) -> String {
    match missing {
        [] => String::new(),
        some => format!(
            ". These packages are not here, which it may lack: `sudo apt-get install {}`",
            some.join(" ")
        ),
    }
}
