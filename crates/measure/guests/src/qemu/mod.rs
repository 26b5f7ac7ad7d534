//! QEMUs beside the system's own: those of other suites, fetched without being installed, and those built from source;
//! found again, named.
//!
//! Each is a folder `qemus/VERSION-SUITE` of the cache. In it stands [`PROGRAM`], a script that starts the real one with
//! its own libraries and firmware, so that a fetched QEMU is one path like any other.

mod build;
mod fetch;

pub use crate::apt::cache_dir;
use crate::apt::{is_known, is_suite, version};
use crate::entries;
pub use crate::error::QemuError;
pub use build::{Recipe, build};
pub use fetch::{available, fetch};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name under which a fetched QEMU is started.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// A QEMU in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// As it says itself: 5.2.0.
    pub version: String,
    /// Where it is from: bullseye; of one that was built what of: built-9p-list.
    pub suite: String,
    /// Path of the script that starts it.
    pub path: PathBuf,
}

impl Fetched {
    /// The name of its folder, under which it can be asked for too.
    pub fn name(&self) -> String {
        format!("{}-{}", self.version, self.suite)
    }

    /// Returns the disk space that it uses, in bytes.
    pub fn size(&self) -> u64 {
        self.path.parent().map_or(0, size)
    }

    /// Returns true if `wanted` names it: a version or its beginning, a suite, or both. A built one is never found by
    /// its version alone: it may be patched.
    fn is(&self, wanted: &str) -> bool {
        let by_version = || {
            !is_built(&self.suite) && is_version(wanted) && version::matches(&self.version, wanted)
        };
        self.suite == wanted || self.name() == wanted || by_version()
    }
}

/// Where fetched and built QEMUs lie, each in a folder of its own.
pub(crate) fn shelf(cache: &Path) -> PathBuf {
    cache.join("qemus")
}

/// The QEMUs in the cache, newest first.
pub fn find(cache: &Path) -> Vec<Fetched> {
    // No folder means that nothing was fetched yet.
    let whole = entries(&shelf(cache)).filter_map(|entry| fetched(&entry.path()));
    let mut found: Vec<Fetched> = whole.collect();
    found.sort_by(|a, b| version::compare(&b.name(), &a.name()));
    found
}

/// The newest one in the cache that `wanted` means: a version or its beginning (5.2), a suite (bullseye), or a folder's
/// name (5.2.0-bullseye).
pub fn named(cache: &Path, wanted: &str) -> Option<Fetched> {
    find(cache).into_iter().find(|qemu| qemu.is(wanted))
}

/// Returns true if a word that names no file stands for a QEMU that could be fetched or built.
pub fn is_name(word: &str) -> bool {
    is_version(word) || is_known(word) || parts(word).is_some() || is_built(word)
}

/// Returns true if a word stands for a QEMU that could only be built: by its label, or its whole name.
pub fn is_name_of_built(word: &str) -> bool {
    is_built(parts(word).map_or(word, |(_, suite)| suite))
}

/// The program that `path` starts, when `path` is a fetched QEMU's script.
pub fn binary(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.join(BINARY)).filter(|binary| path.ends_with(PROGRAM) && binary.is_file())
}

/// The real program, from the folder of its script.
pub(crate) const BINARY: &str = "root/bin/qemu-system-x86_64";

/// Returns the QEMU in a folder of the shelf; `None` when it is not whole.
pub(crate) fn fetched(home: &Path) -> Option<Fetched> {
    let (version, suite) = parts(home.file_name()?.to_str()?)?;
    let path = home.join(PROGRAM);
    binary(&path).filter(|_| path.is_file())?;
    Some(Fetched {
        version: version.into(),
        suite: suite.into(),
        path,
    })
}

/// Version and suite in a folder's name.
fn parts(name: &str) -> Option<(&str, &str)> {
    name.split_once('-')
        .filter(|(version, suite)| is_version(version) && is_suite(suite))
}

/// A folder's blocks, bytes.
fn size(folder: &Path) -> u64 {
    let entry_size = |path: &Path| match path.symlink_metadata() {
        Ok(entry) if entry.is_dir() => size(path),
        Ok(entry) => entry.blocks() * 512,
        Err(_) => 0,
    };
    entries(folder).map(|entry| entry_size(&entry.path())).sum()
}

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
    use std::fs;

    fn cache(names: &[&str]) -> tempfile::TempDir {
        let cache = tempfile::tempdir().unwrap();
        for name in names {
            let home = shelf(cache.path()).join(name);
            fs::create_dir_all(home.join("root/bin")).unwrap();
            fs::write(home.join(PROGRAM), "#!/bin/sh\n").unwrap();
            fs::write(home.join(BINARY), "ELF").unwrap();
        }
        cache
    }

    #[test]
    fn versions_suites_and_folders_name_one() {
        let cache = cache(&[
            "5.2.0-bullseye",
            "10.0.2-bookworm-backports",
            "10.0.13-trixie",
            ".fetch-x",
            "5.2",
            "x-y",
        ]);
        let names: Vec<String> = find(cache.path()).iter().map(Fetched::name).collect();
        assert_eq!(
            names,
            [
                "10.0.13-trixie",
                "10.0.2-bookworm-backports",
                "5.2.0-bullseye"
            ]
        );
        for (wanted, name) in [
            ("5.2", "5.2.0-bullseye"),
            ("5", "5.2.0-bullseye"),
            ("bullseye", "5.2.0-bullseye"),
            ("10.0", "10.0.13-trixie"),
            ("10.0.2", "10.0.2-bookworm-backports"),
            ("bookworm-backports", "10.0.2-bookworm-backports"),
            ("10.0.2-bookworm-backports", "10.0.2-bookworm-backports"),
        ] {
            assert_eq!(
                named(cache.path(), wanted).unwrap().name(),
                name,
                "{wanted}"
            );
        }
        for wanted in ["7.2", "1", "10.0.1", "bookworm", "", ".", ".fetch-x"] {
            assert_eq!(named(cache.path(), wanted), None, "{wanted}");
        }
    }

    #[test]
    fn what_is_not_whole_is_none() {
        let cache = cache(&["5.2.0-bullseye", "10.0.13-trixie"]);
        let shelf = shelf(cache.path());
        fs::remove_file(shelf.join("5.2.0-bullseye").join(PROGRAM)).unwrap();
        fs::remove_file(shelf.join("10.0.13-trixie").join(BINARY)).unwrap();
        assert_eq!(find(cache.path()), []);
        assert_eq!(find(&shelf), []);
    }

    #[test]
    fn only_words_that_can_be_fetched_are_names() {
        assert!(
            [
                "5.2",
                "10",
                "trixie",
                "noble",
                "5.2.0-bullseye",
                "built-9p-list"
            ]
            .into_iter()
            .all(is_name)
        );
        assert!(
            ["built", "7.2.22-built-9p-list"]
                .into_iter()
                .all(is_name_of_built)
        );
        assert!(
            !["7.2", "7.2-bookworm", "builtin", ""]
                .into_iter()
                .any(is_name_of_built)
        );
        assert!(
            !["qemu-system-x86_64", "./5.2", "/usr/bin/qemu", "qemu", ""]
                .into_iter()
                .any(is_name)
        );
    }

    #[test]
    fn the_program_behind_a_script_is_known() {
        let cache = cache(&["5.2.0-bullseye"]);
        let home = shelf(cache.path()).join("5.2.0-bullseye");
        assert_eq!(binary(&home.join(PROGRAM)), Some(home.join(BINARY)));
        assert_eq!(binary(Path::new("/usr/bin/qemu-system-x86_64")), None);
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
