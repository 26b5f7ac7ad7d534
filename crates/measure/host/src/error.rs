//! A QEMU's version, and why a QEMU cannot be used.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The oldest QEMU that is used: 4.2, of December 2019, the one of Ubuntu 20.04. No older one is in a distribution that
/// still gets fixes, so nothing older is tried or tested.
pub const OLDEST_QEMU: QemuVersion = QemuVersion {
    major: 4,
    minor: 2,
    micro: 0,
};

/// A QEMU version, comparable. Development versions count up in micro (8.0.50 leads to 8.1.0), so order holds for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QemuVersion {
    /// 7 in 7.2.22.
    pub major: u32,
    /// 2 in 7.2.22.
    pub minor: u32,
    /// 22 in 7.2.22; 0 when absent.
    pub micro: u32,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// The text is not a version of two or three numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a QEMU version: write it like 7.2 or 7.2.22")]
pub struct NotAVersion(String);

impl FromStr for QemuVersion {
    type Err = NotAVersion;

    /// Reads `7.2.22` and `7.2`; what follows the numbers (`-rc1`, ` (Debian …)`) is left aside.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let numbers = text
            .trim()
            .split(|c: char| !(c.is_ascii_digit() || c == '.'))
            .next()
            .unwrap_or_default();
        let parts: Option<Vec<u32>> = numbers
            .trim_end_matches('.')
            .split('.')
            .take(3)
            .map(|part| part.parse().ok())
            .collect();
        match parts.as_deref() {
            Some(&[major, minor, ref micro @ ..]) => Ok(Self {
                major,
                minor,
                micro: micro.first().copied().unwrap_or(0),
            }),
            _ => Err(NotAVersion(text.into())),
        }
    }
}

/// The version in what `qemu-system-… --version` prints; `None` when something else printed it.
pub(crate) fn version_in_banner(text: &str) -> Option<QemuVersion> {
    text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("QEMU emulator version ")?
            .parse()
            .ok()
    })
}

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
    #[error("no QEMU {name} was fetched or built{}{unread}: {}", cut_list(here), self.fix())]
    QemuNotFetched {
        /// Version or suite that was given.
        name: String,
        /// Those that were.
        here: Vec<String>,
        /// Why the cache is not read, behind a blank and in brackets; empty where it is.
        unread: String,
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

/// Command that installs a QEMU on Debian and Ubuntu, then those of other distributions.
const INSTALL: &str = "sudo apt-get install qemu-system-x86 # Fedora: sudo dnf install qemu-system-x86; Arch: sudo pacman -S qemu-base";

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
                    "try `{} --version` yourself, or reinstall QEMU with `{INSTALL}`",
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(major: u32, minor: u32, micro: u32) -> QemuVersion {
        QemuVersion {
            major,
            minor,
            micro,
        }
    }

    #[test]
    fn banners_of_several_distributions() {
        let banners = [
            (
                "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c)\n",
                version(7, 2, 22),
            ),
            (
                "QEMU emulator version 10.0.2 (qemu-10.0.2-1.fc42)\n",
                version(10, 0, 2),
            ),
            (
                "QEMU emulator version 8.0.50 (v8.0.0-1739-g5f9dd6a8ce-dirty)\n",
                version(8, 0, 50),
            ),
            (
                "QEMU emulator version 4.2.1 (Debian 1:4.2-3ubuntu6.30)\r\n",
                version(4, 2, 1),
            ),
            (
                "warning: something\nQEMU emulator version 9.2.0-rc1\n",
                version(9, 2, 0),
            ),
        ];
        for (banner, expected) in banners {
            assert_eq!(version_in_banner(banner), Some(expected), "{banner}");
        }
    }

    #[test]
    fn other_programs_have_no_version() {
        for banner in [
            "true (GNU coreutils) 9.1",
            "qemu-x86_64 version 7.2.0",
            "QEMU emulator version unknown",
            "",
        ] {
            assert_eq!(version_in_banner(banner), None, "{banner}");
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version(10, 0, 0) > version(9, 2, 4));
        assert!(version(4, 1, 1) < OLDEST_QEMU);
        assert!(version(4, 2, 0) >= OLDEST_QEMU);
        assert!("99999999999.1".parse::<QemuVersion>().is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,200}") {
            let _ = version_in_banner(&text);
            let _ = text.parse::<QemuVersion>();
            let _ = version_in_banner(&format!("QEMU emulator version {text}"));
        }

        #[test]
        fn reads_what_it_writes(major in 0u32.., minor in 0u32.., micro in 0u32..) {
            let v = version(major, minor, micro);
            prop_assert_eq!(v.to_string().parse(), Ok(v));
        }
    }
}
