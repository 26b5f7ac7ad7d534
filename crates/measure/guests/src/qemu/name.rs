//! Meaning of a word: a version of QEMU, a suite, a build's label.

use crate::apt::version;

/// Prefix of builds' labels; no suite has such a name.
pub(crate) const BUILT: &str = "built";

/// Returns true if a suite's name is a build's label.
pub(crate) fn is_built(suite: &str) -> bool {
    suite
        .strip_prefix(BUILT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A version or its beginning, as against a suite's name.
pub(crate) fn is_version(wanted: &str) -> bool {
    version::is_plausible(wanted) && wanted.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// QEMU's own version in a package's: 5.2 in `1:5.2+dfsg-11+deb11u3`.
pub(crate) fn upstream(package: &str) -> &str {
    let version = package.split_once(':').map_or(package, |(_, rest)| rest);
    let end = version
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(version.len());
    &version[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apt::is_suite;
    use proptest::prelude::*;

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
