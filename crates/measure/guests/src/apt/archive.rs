//! Archive that the system's packages come from, as other suites lie in the same one.

use crate::apt::error::AptError;
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
            let mut suites: Vec<&str> = sources
                .iter()
                .filter(|(u, suite)| *u == uri && base(suite) == release)
                .map(|(_, s)| *s)
                .collect();
            suites.sort_unstable();
            suites.dedup();
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
        let mut all: Vec<&str> = suites
            .iter()
            .flat_map(|suite| [*suite, base(suite)])
            .collect();
        all.sort_unstable();
        all.dedup();
        let line = |suite: &&str| {
            format!(
                "deb [arch=amd64{}] {} {suite} main\n",
                self.signed_by(),
                self.uri
            )
        };
        all.iter().map(line).collect()
    }

    /// The line for the source packages of a suite.
    pub(crate) fn source_of(&self, suite: &str) -> String {
        // An option has to stand in the brackets: amd64 is all that is asked for anyway.
        format!(
            "deb-src [arch=amd64{}] {} {suite} main\n",
            self.signed_by(),
            self.uri
        )
    }

    fn signed_by(&self) -> String {
        self.keyring
            .as_ref()
            .map(|path| format!(" signed-by={}", path.display()))
            .unwrap_or_default()
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
            let keyring = self
                .keyring
                .as_ref()
                .map_or("apt's trusted keys".into(), |path| {
                    path.display().to_string()
                });
            return AptError::NoKey {
                suite,
                keyring,
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

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
