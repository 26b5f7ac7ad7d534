//! Recipe and source of a QEMU build, and the name that the build gets for them.

use crate::ResultExt;
use crate::apt::{Apt, Fetch, check_suite, is_suite};
use crate::error::QemuError;
use crate::qemu::fetch::choose;
use crate::qemu::{BUILT, is_version};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The source package, in Debian and Ubuntu.
const PACKAGE: &str = "qemu";

/// Source of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A version or a suite of the distribution's.
    Offered {
        /// Version or suite as given.
        wanted: String,
    },
    /// A tree of one's own.
    Tree {
        /// Folder of the tree.
        path: PathBuf,
    },
}

impl Source {
    /// Returns the source that a given word means: a folder with QEMU's source, or a version or suite.
    pub fn from_word(given: &str) -> Result<Source, QemuError> {
        let path = Path::new(given);
        if path.join("configure").is_file() {
            let path = fs::canonicalize(path).reading(path)?;
            return Ok(Source::Tree { path });
        }
        if (is_version(given) || is_suite(given)) && !path.is_dir() {
            if is_suite(given) {
                check_suite(given)?;
            }
            return Ok(Source::Offered {
                wanted: given.into(),
            });
        }
        Err(QemuError::NoSource {
            given: given.into(),
        })
    }

    /// Returns the identity of the source: of a tree the path, the number of files, their bytes and the newest time;
    /// of a version or suite the word that was given.
    pub fn identity(&self) -> Result<String, QemuError> {
        match self {
            Source::Offered { wanted } => Ok(wanted.clone()),
            Source::Tree { path } => {
                let mut seen = Seen::default();
                walk(path, Path::new(""), &mut seen, None)?;
                let Seen {
                    files,
                    bytes,
                    newest,
                } = seen;
                let path = path.display();
                Ok(format!(
                    "tree {path} files {files} bytes {bytes} newest {newest}"
                ))
            }
        }
    }

    /// Puts the source there, and says which it is: suite and version of a package, state of a tree.
    pub fn put(
        &self,
        to: &Path,
        fetch: &Fetch,
        say: &mut dyn FnMut(&str),
    ) -> Result<String, QemuError> {
        match self {
            Source::Offered { wanted } => {
                if find("dpkg-source").is_none() {
                    return Err(QemuError::NoTool {
                        program: "dpkg-source",
                        package: "dpkg-dev",
                    });
                }
                let apt = Apt::new(fetch.work())?;
                let archive = apt.archive()?;
                let suite = choose(&apt, &archive, wanted, say)?;
                say(&format!("downloading QEMU's source from {suite}"));
                let version = apt.source(&archive, &suite, PACKAGE, to)?;
                Ok(format!("{suite} {version}"))
            }
            Source::Tree { path } => {
                say(&format!("copying {}", path.display()));
                let identity = self.identity()?;
                walk(path, Path::new(""), &mut Seen::default(), Some(to))?;
                Ok(identity)
            }
        }
    }
}

/// A program in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[derive(Default)]
struct Seen {
    files: u64,
    bytes: u64,
    /// Nanoseconds since 1970.
    newest: u128,
}

/// Goes through a tree, without version control and builds in it, and copies what is newer than what is `to` already.
fn walk(root: &Path, below: &Path, seen: &mut Seen, to: Option<&Path>) -> Result<(), QemuError> {
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).reading(&folder)? {
        let entry = entry.reading(&folder)?;
        let (path, below) = (entry.path(), below.join(entry.file_name()));
        let about = path.symlink_metadata().reading(&path)?;
        let target = to.map(|to| to.join(&below));
        if about.is_dir() {
            let is_build = ["build.ninja", "config.status"]
                .iter()
                .any(|file| path.join(file).exists());
            if entry.file_name() == ".git" || is_build {
                continue;
            }
            walk(root, &below, seen, to)?;
            continue;
        }
        seen.files += 1;
        seen.bytes += about.len();
        let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let age = changed.duration_since(UNIX_EPOCH);
        seen.newest = seen.newest.max(age.map_or(0, |age| age.as_nanos()));
        let Some(target) = target else { continue };
        let there = target.symlink_metadata().ok();
        let is_there = |at: fs::Metadata| {
            at.len() == about.len() && at.modified().is_ok_and(|time| time >= changed)
        };
        if there.is_some_and(is_there) {
            continue;
        }
        let parent = target.parent().unwrap_or(&target);
        fs::create_dir_all(parent).writing(parent)?;
        let copied = if about.is_symlink() {
            let _ = fs::remove_file(&target);
            fs::read_link(&path).and_then(|link| std::os::unix::fs::symlink(link, &target))
        } else if about.is_file() {
            fs::copy(&path, &target).map(drop)
        } else {
            Ok(())
        };
        copied.writing(&path)?;
    }
    Ok(())
}

/// Patches that come with vmtax, by name.
const OURS: [(&str, &str); 2] = [
    ("9p-list", include_str!("../patches/9p-list.patch")),
    ("cpu-loop", include_str!("../patches/cpu-loop.patch")),
];

/// Folders' names stay readable.
const LONGEST: usize = 48;

/// Source, patches and options of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// A folder with QEMU's source, or a version or suite of the distribution.
    pub source: String,
    /// Patches in the order in which they are applied: files, or names of those that come with vmtax.
    pub patches: Vec<String>,
    /// More words for configure.
    pub configure: Vec<String>,
}

impl Recipe {
    /// Names of the patches that come with vmtax.
    pub fn own_patches() -> Vec<&'static str> {
        OURS.iter().map(|(name, _)| *name).collect()
    }

    /// A patch's text: a file's, else that of the one that comes with vmtax under this name.
    pub(super) fn patch(given: &str) -> Result<String, QemuError> {
        let path = Path::new(given);
        let given_ours = OURS.iter().find(|(name, _)| *name == given);
        match given_ours.filter(|_| !path.exists()) {
            Some((_, text)) => Ok((*text).to_owned()),
            None => fs::read_to_string(path).map_err(|source| QemuError::NoPatch {
                given: given.into(),
                source,
            }),
        }
    }

    /// All that a build depends on besides its source.
    pub(super) fn text(&self) -> Result<String, QemuError> {
        let mut text = format!("vmtax 1\nconfigure {}\n", self.configure.join(" "));
        for given in &self.patches {
            text.push_str(&format!("patch {}\n{}", stem(given), Self::patch(given)?));
        }
        Ok(text)
    }

    /// Returns the part of the build's name that takes the place of a suite: `built-9p-list`.
    pub(super) fn label(&self, source: &Source) -> String {
        let mut words = Vec::new();
        if let Source::Tree { path } = source {
            words.push(
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        words.extend(self.patches.iter().map(|given| stem(given)));
        words.extend(self.configure.iter().cloned());
        let mut label = BUILT.to_owned();
        let plain = words.iter().map(|word| plain(word));
        for word in plain.filter(|word| !word.is_empty()) {
            label = format!("{label}-{word}");
        }
        if label.len() > LONGEST {
            label.truncate(LONGEST);
            let hash = crc32fast::hash(words.join("\n").as_bytes());
            label = format!("{}-{hash:08x}", label.trim_end_matches('-'));
        }
        label
    }
}

/// A patch's name without folder and ending.
fn stem(given: &str) -> String {
    Path::new(given)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Lower-case letters, digits and single dashes: what a suite's name may have.
fn plain(word: &str) -> String {
    let parts = word.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("-").to_ascii_lowercase()
}
