//! Suites of the distributions, and which QEMU and kernel they were released with.

use crate::apt::archive::Distribution;
use crate::apt::version;

/// A suite of a distribution; versions where they stay as they were released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) qemu: Option<&'static str>,
    pub(crate) kernel: Option<&'static str>,
}

const fn released(name: &'static str, qemu: &'static str, kernel: &'static str) -> Suite {
    Suite {
        name,
        qemu: Some(qemu),
        kernel: Some(kernel),
    }
}

const fn moving(name: &'static str) -> Suite {
    Suite {
        name,
        qemu: None,
        kernel: None,
    }
}

/// Oldest first, what moves on last.
const DEBIAN: [Suite; 7] = [
    released("bullseye", "5.2", "5.10"),
    released("bookworm", "7.2", "6.1"),
    released("trixie", "10.0", "6.12"),
    moving("bookworm-backports"),
    moving("trixie-backports"),
    moving("forky"),
    moving("sid"),
];

/// Those with long support.
const UBUNTU: [Suite; 4] = [
    released("focal", "4.2", "5.4"),
    released("jammy", "6.2", "5.15"),
    released("noble", "8.2", "6.8"),
    moving("resolute"),
];

pub(crate) fn known(distribution: Distribution) -> &'static [Suite] {
    match distribution {
        Distribution::Debian => &DEBIAN,
        Distribution::Ubuntu => &UBUNTU,
    }
}

/// Returns true if some distribution has a suite of this name that is known here.
pub(crate) fn is_known(name: &str) -> bool {
    DEBIAN.iter().chain(&UBUNTU).any(|suite| suite.name == name)
}

/// The suites that may have this version of what `released` gives of each. Asking costs a list of some 10 MB each, so that
/// one with the version at its release spares the others.
pub(crate) fn with_version(
    known: &[Suite],
    released: impl Fn(&Suite) -> Option<&'static str>,
    wanted: &str,
) -> Vec<&'static str> {
    let fits = |has: &str| version::matches(has, wanted) || version::matches(wanted, has);
    match known.iter().find(|suite| released(suite).is_some_and(fits)) {
        Some(suite) => vec![suite.name],
        None => known
            .iter()
            .filter(|suite| released(suite).is_none())
            .map(|suite| suite.name)
            .collect(),
    }
}

/// Returns true if this can be a suite's name. The check keeps option dashes, patterns and paths out of what is handed
/// to apt and used as a folder's name.
pub(crate) fn is_suite(wanted: &str) -> bool {
    wanted.len() <= 64
        && wanted.starts_with(|c: char| c.is_ascii_lowercase())
        && wanted
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_at_a_release_asks_one_suite_alone() {
        let qemu = |wanted| with_version(&DEBIAN, |suite| suite.qemu, wanted);
        assert_eq!(qemu("5.2"), ["bullseye"]);
        assert_eq!(qemu("5.2.0"), ["bullseye"]);
        assert_eq!(qemu("10.0"), ["trixie"]);
        assert_eq!(qemu("10"), ["trixie"]);
        assert_eq!(
            qemu("11.1"),
            ["bookworm-backports", "trixie-backports", "forky", "sid"]
        );
        assert_eq!(qemu("5.20"), qemu("11.1"));
        let kernel = |wanted| with_version(&DEBIAN, |suite| suite.kernel, wanted);
        assert_eq!(kernel("5.10"), ["bullseye"]);
        assert_eq!(kernel("6.1.0-53-amd64"), ["bookworm"]);
        assert_eq!(kernel("6.12.94+deb13"), ["trixie"]);
        assert_eq!(kernel("7.2"), qemu("11.1"));
    }
}
