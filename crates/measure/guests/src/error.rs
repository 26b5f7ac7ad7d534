//! Errors of finding, fetching, building and packing what guests are made of, each with the remedy.

use crate::FileError;
use crate::kernel::bzimage::NotBzImage;
use std::io;
use std::path::PathBuf;
use vmtax_trust::Untrusted;

/// Packages cannot be asked for, fetched or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum AptError {
    /// No place for the cache is known.
    #[error(
        "neither XDG_CACHE_HOME nor HOME names a directory for the cache: set one, for example `HOME=/root vmtax …`"
    )]
    NoCacheDir,
    /// This is root, and another user could replace what root would execute.
    #[error(
        "{} is not used as root: {found}, so kernels and QEMUs in it may be of that user's making. Set XDG_CACHE_HOME to a \
         directory of root's, for example `XDG_CACHE_HOME=/root/.cache`",
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
    /// The host's lists of all suites do not have the suite.
    #[error(
        "no suite of Debian or Ubuntu is called {suite} (/usr/share/distro-info): check its name; for a newer suite update \
         the package distro-info-data"
    )]
    UnknownSuite {
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
        "{} has no kernel modules: give the directory that has {release} in it (lib/modules of the kernel's package), \
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
        "{given:?} is neither a directory with QEMU's source (its configure is not there), nor a version, such as 7.2, nor a \
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
