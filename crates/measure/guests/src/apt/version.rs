//! Versions and releases of packages: how they compare and which ones a person means.

use std::cmp::Ordering;

/// Orders releases by age: runs of digits count by their value, everything else by its characters.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (text_a, number_a, rest_a) = head(a);
        let (text_b, number_b, rest_b) = head(b);
        let order = text_a
            .cmp(text_b)
            .then_with(|| by_value(number_a, number_b));
        if order != Ordering::Equal || (rest_a.is_empty() && rest_b.is_empty()) {
            return order.then_with(|| rest_a.cmp(rest_b));
        }
        (a, b) = (rest_a, rest_b);
    }
}

/// Returns true if `release` is `asked` or a release that begins with it: 6.1 means 6.1.0-35-amd64, not 6.12.
pub fn matches(release: &str, asked: &str) -> bool {
    let Some(rest) = release.strip_prefix(asked) else {
        return false;
    };
    let inside_number = asked.ends_with(|c: char| c.is_ascii_digit())
        && rest.starts_with(|c: char| c.is_ascii_digit());
    !inside_number
}

/// Returns true if this can be a release or the beginning of one. The check keeps option dashes, patterns and paths
/// out of what is handed to apt and used as a folder name.
pub fn is_plausible(version: &str) -> bool {
    version.len() <= 64
        && version.starts_with(|c: char| c.is_ascii_digit())
        && version
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".+~_-".contains(c))
}

/// Splits off the leading text and the number that follows it.
fn head(s: &str) -> (&str, &str, &str) {
    let digits = s.find(|c: char| c.is_ascii_digit()).unwrap_or(s.len());
    let (text, rest) = s.split_at(digits);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    (text, number, rest)
}

/// Compares numbers of any length: without leading zeros the longer one is larger.
fn by_value(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn newer_is_greater() {
        for (older, newer) in [
            ("6.1.0-9-amd64", "6.1.0-56-amd64"),
            ("6.1.0-56-amd64", "6.12.94+deb13-amd64"),
            ("6.12.94+deb13-amd64", "6.12.107+deb13-amd64"),
            ("5.15.0-119-generic", "6.8.0-45-generic"),
            ("6.8.0-45-generic", "6.8.0-45-generic-64k"),
        ] {
            assert_eq!(compare(older, newer), Ordering::Less, "{older} {newer}");
            assert_eq!(compare(newer, older), Ordering::Greater, "{newer} {older}");
        }
        assert_eq!(compare("6.1.0", "6.1.0"), Ordering::Equal);
    }

    #[test]
    fn a_beginning_ends_at_a_number() {
        assert!(matches("6.1.0-35-amd64", "6.1"));
        assert!(matches("6.1.0-35-amd64", "6.1.0-35"));
        assert!(matches("6.1.0-35-amd64", "6.1.0-35-amd64"));
        assert!(!matches("6.12.94+deb13-amd64", "6.1"));
        assert!(!matches("6.1.0-356-amd64", "6.1.0-35"));
    }

    #[test]
    fn only_versions_are_plausible() {
        for good in [
            "6",
            "6.12",
            "6.1.0-35",
            "6.12.107+deb13-amd64",
            "6.8.0-45-generic",
        ] {
            assert!(is_plausible(good), "{good}");
        }
        for bad in ["", "-o=x", "../..", "6.1/..", "6.*", "v6.1", "6 1"] {
            assert!(!is_plausible(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_order_is_antisymmetric(a in "[0-9a-z.+-]{0,12}", b in "[0-9a-z.+-]{0,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        }
    }
}
