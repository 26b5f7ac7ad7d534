//! Suites that are known to have a QEMU, and which one.

use crate::apt::{Distribution, version};

/// A suite, and the version that it was released with; none where that moves on.
pub(crate) type Known = (&'static str, Option<&'static str>);

/// How labels of builds begin; no suite is called so.
pub(crate) const BUILT: &str = "built";

/// Oldest first, what moves on last.
const DEBIAN: [Known; 7] = [
    ("bullseye", Some("5.2")),
    ("bookworm", Some("7.2")),
    ("trixie", Some("10.0")),
    ("bookworm-backports", None),
    ("trixie-backports", None),
    ("forky", None),
    ("sid", None),
];

/// Those with long support.
const UBUNTU: [Known; 4] = [("focal", Some("4.2")), ("jammy", Some("6.2")), ("noble", Some("8.2")), ("resolute", None)];

pub(crate) fn known(distribution: Distribution) -> &'static [Known] {
    match distribution {
        Distribution::Debian => &DEBIAN,
        Distribution::Ubuntu => &UBUNTU,
    }
}

/// Whether some distribution has a suite of this name that is known here.
pub(crate) fn is_known(name: &str) -> bool {
    DEBIAN.iter().chain(&UBUNTU).any(|(suite, _)| *suite == name)
}

/// The suites that may have what was asked for, a version or a suite's name. Asking costs a list of some 10 MB each, so
/// that one with the version at its release spares the others.
pub(crate) fn to_ask<'a>(known: &[Known], wanted: &'a str) -> Vec<&'a str> {
    if !is_version(wanted) {
        return vec![wanted];
    }
    let fits = |has: &str| version::matches(has, wanted) || version::matches(wanted, has);
    let released = known.iter().find(|(_, has)| has.is_some_and(fits)).map(|(suite, _)| vec![*suite]);
    released.unwrap_or_else(|| known.iter().filter(|(_, has)| has.is_none()).map(|(suite, _)| *suite).collect())
}

/// Whether a suite's name is a build's label.
pub(crate) fn is_built(suite: &str) -> bool {
    suite.strip_prefix(BUILT).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A version or its beginning, as against a suite's name.
pub(crate) fn is_version(wanted: &str) -> bool {
    version::is_plausible(wanted) && wanted.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Whether this can be a suite's name. It keeps option dashes, patterns and paths out of what is handed to apt and used
/// as a folder's name.
pub(crate) fn is_suite(wanted: &str) -> bool {
    wanted.len() <= 64
        && wanted.starts_with(|c: char| c.is_ascii_lowercase())
        && wanted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// QEMU's own version in a package's: 5.2 in `1:5.2+dfsg-11+deb11u3`.
pub(crate) fn upstream(package: &str) -> &str {
    let version = package.split_once(':').map_or(package, |(_, rest)| rest);
    let end = version.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(version.len());
    &version[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_version_at_a_release_asks_one_suite_alone() {
        let ask = |wanted| to_ask(&DEBIAN, wanted);
        assert_eq!(ask("5.2"), ["bullseye"]);
        assert_eq!(ask("5.2.0"), ["bullseye"]);
        assert_eq!(ask("10.0"), ["trixie"]);
        assert_eq!(ask("10"), ["trixie"]);
        assert_eq!(ask("11.1"), ["bookworm-backports", "trixie-backports", "forky", "sid"]);
        assert_eq!(ask("5.20"), ask("11.1"));
        assert_eq!(ask("bookworm-backports"), ["bookworm-backports"]);
        assert_eq!(ask("rawhide"), ["rawhide"]);
    }

    #[test]
    fn a_packages_version_holds_qemus() {
        assert_eq!(upstream("1:5.2+dfsg-11+deb11u3"), "5.2");
        assert_eq!(upstream("1:10.0.2+ds-2+deb13u1~bpo12+1"), "10.0.2");
        assert_eq!(upstream("1:11.1.2+ds-3"), "11.1.2");
        assert_eq!(upstream("1:8.2.2+ds-0ubuntu1.4"), "8.2.2");
        assert_eq!(upstream("10.1~rc2"), "10.1");
    }

    proptest! {
        #[test]
        fn a_word_is_a_version_or_a_suite_or_nothing(word in "[-a-z0-9./+*~ ]{0,12}") {
            prop_assert!(!(is_version(&word) && is_suite(&word)));
            if is_version(&word) || is_suite(&word) {
                prop_assert!(!word.contains(['/', '*', ' ']) && !word.starts_with('-') && word != "..");
            }
            prop_assert!(upstream(&word).len() <= word.len());
        }
    }
}
