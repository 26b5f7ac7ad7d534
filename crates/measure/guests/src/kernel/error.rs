//! What can go wrong with a guest kernel, each with the way out.

use crate::apt::AptError;
use crate::kernel::bzimage::NotBzImage;
use std::io;
use std::path::{Path, PathBuf};

/// A guest kernel cannot be found, fetched, used or packed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A file or folder cannot be read.
    #[error("{}: {source}: {}", path.display(), mend_read(source))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("{}: {source}: {}", path.display(), mend_write(source))]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a kernel that a guest here can boot.
    #[error("{}: {why}", path.display())]
    NotAKernel {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: NotBzImage,
    },
    /// A version that no kernel can have.
    #[error("{version:?} is no kernel version: give a release or its beginning, such as 6.12 or 6.1.0-35")]
    BadVersion {
        /// What was given.
        version: String,
    },
    /// `--modules` names a folder without modules.
    #[error(
        "{} holds no kernel modules: give the folder that has {release} in it (lib/modules of the kernel's package), \
         or leave --modules out if all is built in",
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
        "Linux {release} ({}) has no {module}, neither as a module nor built in: a guest needs virtio devices. Take a \
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
         --modules, or take a generic kernel (`vmtax get kernel`)",
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
    #[error("{0}, or give a kernel of your own with --kernel /boot/vmlinuz-RELEASE --modules /lib/modules/RELEASE")]
    Apt(#[from] AptError),
    /// apt offers no such kernel.
    #[error("apt offers no kernel {version}{}: {}", cut_list(offered), mend_offer(offered))]
    NotOffered {
        /// What was asked for.
        version: String,
        /// What there is, newest first.
        offered: Vec<String>,
    },
}

impl KernelError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> KernelError + '_ {
        move |source| KernelError::Read { path: path.into(), source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> KernelError + '_ {
        move |source| KernelError::Write { path: path.into(), source }
    }
}

fn mend_read(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root, or take a kernel of your own with `vmtax get kernel`",
        io::ErrorKind::NotFound => "check the path, or take a kernel with `vmtax get kernel`",
        _ => "check the file, or take a kernel with `vmtax get kernel`",
    }
}

fn mend_write(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or put the cache elsewhere with XDG_CACHE_HOME"
        }
        _ => "choose a folder that you may write, for the cache with XDG_CACHE_HOME",
    }
}

fn cut_list(offered: &[String]) -> String {
    const SHOWN: usize = 8;
    match offered.len() {
        0 => String::new(),
        n if n <= SHOWN => format!(" but {}", offered.join(", ")),
        n => format!(" but {} and {} more", offered[..SHOWN].join(", "), n - SHOWN),
    }
}

fn mend_offer(offered: &[String]) -> &'static str {
    if offered.is_empty() {
        "check that apt's sources have kernels (`apt-cache pkgnames linux-image-`), or give one with --kernel"
    } else {
        "take one of these"
    }
}
