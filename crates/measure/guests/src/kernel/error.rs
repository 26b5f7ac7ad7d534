//! Errors of a guest kernel, each with the remedy.

use crate::FileError;
use crate::apt::AptError;
use crate::kernel::bzimage::NotBzImage;
use std::path::PathBuf;

/// A guest kernel cannot be found, fetched, used or packed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A file or folder cannot be read or written.
    #[error("{0}{more}", more = or_fetch(.0))]
    File(#[from] FileError),
    /// The file is not a kernel that a guest here can boot.
    #[error("{}: {why}", path.display())]
    NotAKernel {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file is not a kernel.
        why: NotBzImage,
    },
    /// Neither a version nor a suite.
    #[error(
        "{name:?} is neither a kernel version, such as 6.12 or 6.1.0-35, nor a suite of the distribution, such as trixie"
    )]
    BadName {
        /// Name that was given.
        name: String,
    },
    /// The suite has no generic kernel for x86-64.
    #[error(
        "{suite} has no package with a generic kernel for amd64: use another suite (`vmtax get` lists them)"
    )]
    NoKernel {
        /// Name of the suite.
        suite: String,
    },
    /// `--modules` names a folder without modules.
    #[error(
        "{} holds no kernel modules: give the folder that has {release} in it (lib/modules of the kernel's package), \
         or leave out --modules if all drivers are built in",
        dir.display()
    )]
    NoModules {
        /// Folder without modules.
        dir: PathBuf,
        /// The image's release.
        release: String,
    },
    /// The modules belong to another kernel.
    #[error(
        "{} is Linux {release}, but the modules in {} are of {found}: give the modules of {release} with --modules, \
         or the image of {found} with --kernel",
        image.display(), dir.display()
    )]
    OtherVersion {
        /// Path of the kernel's image.
        image: PathBuf,
        /// Release of the image.
        release: String,
        /// The folder with the modules.
        dir: PathBuf,
        /// Release of the modules.
        found: String,
    },
    /// A module file is damaged.
    #[error("{}: {why}: unpack the kernel's package again, or fetch another with `vmtax get kernel`", path.display())]
    BadModule {
        /// Path of the module's file.
        path: PathBuf,
        /// Description of what is wrong with the module.
        why: String,
    },
    /// The kernel cannot drive virtio devices.
    #[error(
        "Linux {release} ({}) has no {module}, neither as a module nor built in: a guest needs virtio devices. Use a \
         generic kernel (`vmtax get kernel`), or build this one with it (docs/kernels.md)",
        image.display()
    )]
    NoVirtio {
        /// The kernel's image.
        image: PathBuf,
        /// Release of the kernel.
        release: String,
        /// Name of the missing module.
        module: String,
    },
    /// Something else that the guest needs is neither a module nor built in.
    #[error(
        "Linux {release} ({}) has no {module}, neither as a module nor built in: give a whole module tree with \
         --modules, or use a generic kernel (`vmtax get kernel`)",
        image.display()
    )]
    NoModule {
        /// The kernel's image.
        image: PathBuf,
        /// Release of the kernel.
        release: String,
        /// Name of the missing module.
        module: String,
    },
    /// The distribution's kernel cannot be fetched.
    #[error(
        "{0}. Or use your own kernel with --kernel /boot/vmlinuz-RELEASE --modules /lib/modules/RELEASE"
    )]
    Apt(#[from] AptError),
    /// apt offers no such kernel.
    #[error(
        "apt offers no kernel {version}{}: {}",
        cut_list(offered),
        fix_offer(offered)
    )]
    NotOffered {
        /// Version that was asked for.
        version: String,
        /// Releases that are available, newest first.
        offered: Vec<String>,
    },
}

fn or_fetch(error: &FileError) -> &'static str {
    if error.read {
        ", or take a kernel with `vmtax get kernel`"
    } else {
        ""
    }
}

fn cut_list(offered: &[String]) -> String {
    const SHOWN: usize = 8;
    match offered.len() {
        0 => String::new(),
        n if n <= SHOWN => format!(" but {}", offered.join(", ")),
        n => format!(
            " but {} and {} more",
            offered[..SHOWN].join(", "),
            n - SHOWN
        ),
    }
}

fn fix_offer(offered: &[String]) -> &'static str {
    if offered.is_empty() {
        "check that apt's sources have kernels (`apt-cache pkgnames linux-image-`), or give one with --kernel"
    } else {
        "take one of these"
    }
}
