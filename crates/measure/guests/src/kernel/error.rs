//! What can go wrong with a guest kernel, each with the way out.

use crate::apt::AptError;
use crate::file_error::FileError;
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
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: NotBzImage,
    },
    /// Neither a version nor a suite.
    #[error(
        "{name:?} is neither a kernel version, such as 6.12 or 6.1.0-35, nor a suite of the distribution, such as trixie"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// The suite has no generic kernel for x86-64.
    #[error(
        "{suite} has no package with a generic kernel for amd64: use another suite (`vmtax get` lists them)"
    )]
    NoKernel {
        /// The suite.
        suite: String,
    },
    /// `--modules` names a folder without modules.
    #[error(
        "{} holds no kernel modules: give the folder that has {release} in it (lib/modules of the kernel's package), \
         or leave out --modules if all drivers are built in",
        dir.display()
    )]
    NoModules {
        /// The folder.
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
        /// The image.
        image: PathBuf,
        /// Its release.
        release: String,
        /// The folder with the modules.
        dir: PathBuf,
        /// Their release.
        found: String,
    },
    /// A module file is damaged.
    #[error("{}: {why}: unpack the kernel's package again, or fetch another with `vmtax get kernel`", path.display())]
    BadModule {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
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
        /// Its release.
        release: String,
        /// What is missing.
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
        /// Its release.
        release: String,
        /// What is missing.
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
        /// What was asked for.
        version: String,
        /// What there is, newest first.
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
