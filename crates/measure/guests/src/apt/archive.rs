//! Archive that the system's packages come from, as other suites lie in the same one.

use crate::apt::version;
use crate::error::AptError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Whose archive it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Debian and its archive.
    Debian,
    /// Ubuntu and its archive.
    Ubuntu,
}

impl Distribution {
    const ALL: [Distribution; 2] = [Distribution::Debian, Distribution::Ubuntu];

    /// Suites by which its archive is told from others.
    fn releases(self) -> &'static [&'static str] {
        match self {
            Distribution::Debian => &[
                "bullseye",
                "bookworm",
                "trixie",
                "forky",
                "duke",
                "sid",
                "oldoldstable",
                "oldstable",
                "stable",
                "testing",
                "unstable",
            ],
            Distribution::Ubuntu => &[
                "focal", "jammy", "noble", "plucky", "questing", "resolute", "devel",
            ],
        }
    }

    /// The package with the keys that its suites are signed with.
    pub(crate) fn keyring_package(self) -> &'static str {
        match self {
            Distribution::Debian => "debian-archive-keyring",
            Distribution::Ubuntu => "ubuntu-keyring",
        }
    }

    /// Where that package puts them; elsewhere apt's own trusted keys serve.
    fn keyring(self) -> Option<PathBuf> {
        let names: &[&str] = match self {
            Distribution::Debian => &["debian-archive-keyring.gpg", "debian-archive-keyring.pgp"],
            Distribution::Ubuntu => &["ubuntu-archive-keyring.gpg"],
        };
        names
            .iter()
            .map(|name| Path::new("/usr/share/keyrings").join(name))
            .find(|path| path.is_file())
    }
}

/// A distribution's archive: all its suites, on the mirror that this system uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    pub(crate) uri: String,
    /// Distribution of the archive.
    pub distribution: Distribution,
    pub(crate) keyring: Option<PathBuf>,
}

/// Format for `apt-get indextargets`: address, suite and component of each source.
pub(crate) const FORMAT: &str = "$(REPO_URI) $(RELEASE) $(COMPONENT)";

impl Archive {
    /// The archive among the system's sources, as [`FORMAT`] prints them. Others' archives also call a suite after the
    /// release they are made for, so the one with most of the release's suites is taken (`-updates`, `-backports`), the
    /// first among equals.
    pub(crate) fn among(targets: &str) -> Result<Archive, AptError> {
        let sources: Vec<(&str, &str)> = targets.lines().filter_map(main_source).collect();
        let suites_of = |uri: &str, release: &str| {
            let same = |(u, suite): &&(&str, &str)| *u == uri && base(suite) == release;
            let suites: BTreeSet<_> = sources.iter().filter(same).collect();
            suites.len()
        };
        let candidates = sources.iter().filter_map(|&(uri, release)| {
            let whose = Distribution::ALL
                .into_iter()
                .find(|whose| whose.releases().contains(&release))?;
            Some((suites_of(uri, release), uri, whose))
        });
        // The last of equals is what max_by_key takes.
        let best = candidates.rev().max_by_key(|(suites, ..)| *suites);
        let (_, uri, distribution) = best.ok_or(AptError::NoArchive)?;
        Ok(Archive {
            uri: uri.into(),
            distribution,
            keyring: distribution.keyring(),
        })
    }

    /// Lines for apt's sources: these suites, and those they build upon.
    pub(crate) fn sources(&self, suites: &[&str]) -> String {
        let with_base = suites.iter().flat_map(|suite| [*suite, base(suite)]);
        let all: BTreeSet<&str> = with_base.collect();
        all.iter().map(|suite| self.line("deb", suite)).collect()
    }

    /// The line for the source packages of a suite.
    pub(crate) fn source_of(&self, suite: &str) -> String {
        self.line("deb-src", suite)
    }

    fn line(&self, kind: &str, suite: &str) -> String {
        let keyring = self.keyring.as_ref();
        let signed_by = keyring.map(|path| format!(" signed-by={}", path.display()));
        // An option has to stand in the brackets: amd64 is all that is asked for anyway.
        let options = format!("arch=amd64{}", signed_by.unwrap_or_default());
        format!("{kind} [{options}] {} {suite} main\n", self.uri)
    }

    /// Returns the cause of a failed `apt-get update` where its output names one, else `failed` itself.
    pub(crate) fn explain(&self, suites: &[&str], failed: AptError) -> AptError {
        let AptError::Failed { said, .. } = &failed else {
            return failed;
        };
        let about = |words: &str| {
            let lines = said.lines().filter(|line| line.contains(words));
            let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
            suites
                .iter()
                .find(|suite| words.contains(*suite))
                .map(|suite| (*suite).to_owned())
        };
        if let Some(suite) = about("does not have a Release file") {
            return AptError::NoSuite {
                archive: self.uri.clone(),
                suite,
            };
        }
        if let Some(suite) = about("NO_PUBKEY") {
            let keyring = self.keyring.as_ref().map(|path| path.display().to_string());
            return AptError::NoKey {
                suite,
                keyring: keyring.unwrap_or_else(|| "apt's trusted keys".into()),
                package: self.distribution.keyring_package(),
            };
        }
        failed
    }
}

/// Address and suite of a source that has the component `main`.
fn main_source(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (uri, suite, component) = (words.next()?, words.next()?, words.next()?);
    (component == "main" && words.next().is_none()).then_some((uri, suite))
}

/// The suite that another one adds to: bookworm of bookworm-backports.
fn base(suite: &str) -> &str {
    suite.split_once('-').map_or(suite, |(base, _)| base)
}

/// A suite of a distribution; versions where they stay as they were released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) qemu: Option<&'static str>,
    pub(crate) kernel: Option<&'static str>,
}

const fn suite(
    name: &'static str,
    qemu: Option<&'static str>,
    kernel: Option<&'static str>,
) -> Suite {
    Suite { name, qemu, kernel }
}

const fn released(name: &'static str, qemu: &'static str, kernel: &'static str) -> Suite {
    suite(name, Some(qemu), Some(kernel))
}

/// Oldest first, what moves on last.
const DEBIAN: [Suite; 7] = [
    released("bullseye", "5.2", "5.10"),
    released("bookworm", "7.2", "6.1"),
    released("trixie", "10.0", "6.12"),
    suite("bookworm-backports", None, None),
    suite("trixie-backports", None, None),
    suite("forky", None, None),
    suite("sid", None, None),
];

/// Those with long support.
const UBUNTU: [Suite; 4] = [
    released("focal", "4.2", "5.4"),
    released("jammy", "6.2", "5.15"),
    released("noble", "8.2", "6.8"),
    suite("resolute", None, None),
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

/// Lists of all suites, past and announced, that the package distro-info-data has.
const SUITES: [&str; 2] = [
    "/usr/share/distro-info/debian.csv",
    "/usr/share/distro-info/ubuntu.csv",
];

/// Checks, before an archive is asked, which takes seconds, that Debian or Ubuntu has a suite, as far as this host knows their
/// suites.
///
/// # Errors
/// [`AptError::UnknownSuite`] for a name that the host's lists do not have.
pub(crate) fn check_suite(name: &str) -> Result<(), AptError> {
    let lists = SUITES.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    match may_exist(name, &lists) {
        true => Ok(()),
        false => Err(AptError::UnknownSuite { suite: name.into() }),
    }
}

/// Returns true if a suite is in `lists`, lines of version, name, suite; or where one of them is missing.
fn may_exist(name: &str, lists: &[String]) -> bool {
    let is_listed = |list: &String| {
        list.lines()
            .any(|line| line.split(',').nth(2) == Some(base(name)))
    };
    let is_ours = |whose: &Distribution| whose.releases().contains(&base(name));
    is_known(name)
        || Distribution::ALL.iter().any(is_ours)
        || lists.iter().any(|list| list.is_empty() || is_listed(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_no_list_has_is_refused_where_both_lists_are_there() {
        let debian = "version,codename,series,created\n4.0,Etch,etch,2005-06-06\n".to_owned();
        let ubuntu = "version,codename,series\n4.10,Warty Warthog,warty,2004-03-05\n".to_owned();
        let lists = [debian.clone(), ubuntu];
        for name in [
            "etch",
            "warty-updates",
            "etch-backports",
            "sid",
            "stable",
            "trixie-backports",
            "devel",
        ] {
            assert!(may_exist(name, &lists), "{name}");
        }
        for name in ["nosuch", "codename", "etc", "4"] {
            assert!(!may_exist(name, &lists), "{name}");
            assert!(may_exist(name, &[debian.clone(), String::new()]), "{name}");
        }
    }
    use proptest::prelude::*;

    fn uri(targets: &str) -> Option<String> {
        Archive::among(targets).ok().map(|archive| archive.uri)
    }

    #[test]
    fn the_distributions_own_archive_is_found() {
        let debian = "https://else/apt cloud-sdk-bookworm main\nhttps://else/node nodistro main\n\
                      https://else/made-for bookworm main\n\
                      http://mirror/debian-security/ bookworm-security main\n\
                      http://mirror/debian/ bookworm main\nhttp://mirror/debian/ bookworm main\n\
                      http://mirror/debian/ bookworm-updates main\n";
        let found = Archive::among(debian).unwrap();
        assert_eq!(
            (found.uri.as_str(), found.distribution),
            ("http://mirror/debian/", Distribution::Debian)
        );

        let ubuntu = "http://security/ubuntu/ noble-security main\nhttp://mirror/ubuntu/ noble universe\n\
                      http://mirror/ubuntu/ noble main\n";
        let found = Archive::among(ubuntu).unwrap();
        assert_eq!(
            (found.uri.as_str(), found.distribution),
            ("http://mirror/ubuntu/", Distribution::Ubuntu)
        );
    }

    #[test]
    fn the_first_of_equals_counts() {
        assert_eq!(
            uri("http://a/ sid main\nhttp://b/ sid main\n").unwrap(),
            "http://a/"
        );
    }

    #[test]
    fn without_a_distributions_archive_there_is_none() {
        for targets in [
            "",
            "http://else/ nodistro main\n",
            "http://mirror/ bookworm contrib\n",
            "copy:/x ./ \n",
            "a b\n",
        ] {
            assert!(
                matches!(Archive::among(targets), Err(AptError::NoArchive)),
                "{targets}"
            );
        }
    }

    #[test]
    fn a_suite_comes_with_what_it_builds_upon() {
        let keyring = Some(PathBuf::from("/k.gpg"));
        let archive = Archive {
            uri: "http://mirror/".into(),
            distribution: Distribution::Debian,
            keyring,
        };
        assert_eq!(
            archive.sources(&["bookworm-backports"]),
            "deb [arch=amd64 signed-by=/k.gpg] http://mirror/ bookworm main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://mirror/ bookworm-backports main\n"
        );
        assert_eq!(archive.sources(&["trixie"]).lines().count(), 1);
    }

    #[test]
    fn what_apt_said_is_told_as_what_it_means() {
        let archive = Archive {
            uri: "http://mirror/".into(),
            distribution: Distribution::Debian,
            keyring: None,
        };
        let explained = |said: &str| {
            let failed = AptError::Failed {
                command: "apt-get update".into(),
                said: said.into(),
            };
            archive.explain(&["trixie", "nosuch"], failed).to_string()
        };
        let none = explained(
            "E: The repository 'http://mirror/ nosuch Release' does not have a Release file.",
        );
        assert!(
            none.contains("http://mirror/ has no suite nosuch"),
            "{none}"
        );
        let key = explained(
            "W: GPG error: http://mirror/ trixie InRelease: not available: NO_PUBKEY 6ED0\nE: not signed.",
        );
        assert!(
            key.contains("trixie is signed") && key.contains("debian-archive-keyring"),
            "{key}"
        );
        assert!(explained("E: Could not resolve 'mirror'").contains("Check the network"));
    }

    proptest! {
        #[test]
        fn any_list_of_sources_is_read(
            lines in proptest::collection::vec(("[a-z:/.]{0,9}", "(bookworm|noble|sid|[a-z-]{0,8})", "(main|universe)?"), 0..12)
        ) {
            let targets: String = lines.iter().map(|(a, b, c)| format!("{a} {b} {c}\n")).collect();
            if let Some(uri) = uri(&targets) {
                let is_there = lines.iter().any(|(a, b, c)| *a == uri && c == "main" && base(b) == b);
                prop_assert!(is_there, "{}", uri);
            }
        }
    }

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
