use crate::version::{OLDEST_QEMU, QemuVersion};
use std::path::PathBuf;

/// Why a QEMU cannot be used. Every message ends with the step that fixes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No QEMU for x86 in any of the usual places.
    #[error("no qemu-system-x86_64 in PATH, /usr/local/bin, /usr/bin or /usr/libexec: {}", self.fix())]
    NoQemu,
    /// The path that was given leads nowhere.
    #[error("{}: no such file: {}", path.display(), self.fix())]
    QemuMissing {
        /// Path that was given.
        path: PathBuf,
    },
    /// A version or suite of which none was fetched.
    #[error("no QEMU {name} was fetched or built{}: {}", cut_list(here), self.fix())]
    QemuNotFetched {
        /// Version or suite that was given.
        name: String,
        /// Those that were.
        here: Vec<String>,
    },
    /// The path is a folder or another thing that is no regular file.
    #[error("{}: is not a regular file but {kind}: {}", path.display(), self.fix())]
    QemuNotAFile {
        /// Path that was given.
        path: PathBuf,
        /// Kind of file that it is instead.
        kind: &'static str,
    },
    /// This user may not execute the file.
    #[error("{}: not executable by this user: {}", path.display(), self.fix())]
    QemuNotExecutable {
        /// Path that was given.
        path: PathBuf,
    },
    /// The file is executable but does not start, or fails at once.
    #[error("{}: does not start ({reason}): {}", path.display(), self.fix())]
    QemuDoesNotStart {
        /// Path that was given.
        path: PathBuf,
        /// Reason, as the program or the system reports it.
        reason: String,
    },
    /// It runs and is something else.
    #[error("{}: is not a QEMU system emulator: `--version` says {said:?}: {}", path.display(), self.fix())]
    NotQemu {
        /// Path that was given.
        path: PathBuf,
        /// The first line of what it printed.
        said: String,
    },
    /// It did not answer in time and was ended.
    #[error("{}: did not answer `{arguments}` within {seconds} s: {}", path.display(), self.fix())]
    QemuHangs {
        /// Path that was given.
        path: PathBuf,
        /// Arguments that it was started with.
        arguments: String,
        /// Time limit, seconds.
        seconds: u64,
    },
    /// A QEMU for another architecture.
    #[error("{}: emulates no x86 PC (neither the machine `pc` nor `q35`): {}", path.display(), self.fix())]
    QemuNotX86 {
        /// Path that was given.
        path: PathBuf,
    },
    /// A QEMU from before the oldest that is supported.
    #[error("{}: QEMU {version} is older than {OLDEST_QEMU}: {}", path.display(), self.fix())]
    QemuTooOld {
        /// Path that was given.
        path: PathBuf,
        /// Version of this QEMU.
        version: QemuVersion,
    },
}

/// Command that installs a QEMU on Debian and Ubuntu.
const INSTALL: &str = "sudo apt-get install qemu-system-x86";

impl HostError {
    /// The command or step that fixes it.
    pub fn fix(&self) -> String {
        match self {
            HostError::NoQemu => format!("install it with `{INSTALL}`"),
            HostError::QemuMissing { .. } => {
                format!("check the path, or install QEMU with `{INSTALL}`")
            }
            HostError::QemuNotFetched { name, .. }
                if vmtax_guests::qemu::is_name_of_built(name) =>
            {
                "build it with `vmtax build qemu`; `vmtax get qemu` lists those that are there"
                    .into()
            }
            HostError::QemuNotFetched { name, .. } => {
                format!("fetch it with `vmtax get qemu {name}`")
            }
            HostError::QemuNotAFile { .. } => {
                "give the path of the qemu-system-x86_64 program itself".into()
            }
            HostError::QemuNotExecutable { path } => {
                format!(
                    "if it is a QEMU, allow it with `sudo chmod a+rx {}`",
                    path.display()
                )
            }
            HostError::QemuDoesNotStart { path, .. } => {
                format!(
                    "see `ldd {}` for a missing library, or reinstall QEMU with `{INSTALL}`",
                    path.display()
                )
            }
            HostError::NotQemu { .. } | HostError::QemuNotX86 { .. } => {
                format!("give the path of a qemu-system-x86_64, or install one with `{INSTALL}`")
            }
            HostError::QemuHangs { path, .. } => {
                format!(
                    "try `{} --version` by hand, or reinstall QEMU with `{INSTALL}`",
                    path.display()
                )
            }
            HostError::QemuTooOld { .. } => format!("install a newer QEMU with `{INSTALL}`"),
        }
    }
}

fn cut_list(here: &[String]) -> String {
    if here.is_empty() {
        String::new()
    } else {
        format!(", only {}", here.join(", "))
    }
}
