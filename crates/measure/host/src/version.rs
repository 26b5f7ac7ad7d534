use std::fmt;
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
            Some(&[major, minor]) => Ok(Self {
                major,
                minor,
                micro: 0,
            }),
            Some(&[major, minor, micro]) => Ok(Self {
                major,
                minor,
                micro,
            }),
            _ => Err(NotAVersion(text.into())),
        }
    }
}

/// The version in what `qemu-system-… --version` prints; `None` when something else printed it.
pub(crate) fn in_banner(text: &str) -> Option<QemuVersion> {
    text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("QEMU emulator version ")?
            .parse()
            .ok()
    })
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
            assert_eq!(in_banner(banner), Some(expected), "{banner}");
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
            assert_eq!(in_banner(banner), None, "{banner}");
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
            let _ = in_banner(&text);
            let _ = text.parse::<QemuVersion>();
            let _ = in_banner(&format!("QEMU emulator version {text}"));
        }

        #[test]
        fn reads_what_it_writes(major in 0u32.., minor in 0u32.., micro in 0u32..) {
            let v = version(major, minor, micro);
            prop_assert_eq!(v.to_string().parse(), Ok(v));
        }
    }
}
