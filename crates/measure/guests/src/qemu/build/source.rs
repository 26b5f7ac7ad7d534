//! Where the source comes from.

use crate::ResultExt;
use crate::apt::{Apt, Fetch, is_suite};
use crate::qemu::error::QemuError;
use crate::qemu::fetch::choose;
use crate::qemu::name::is_version;
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
    pub fn of(given: &str) -> Result<Source, QemuError> {
        let path = Path::new(given);
        if path.join("configure").is_file() {
            let path = fs::canonicalize(path).reading(path)?;
            return Ok(Source::Tree { path });
        }
        if (is_version(given) || is_suite(given)) && !path.is_dir() {
            return Ok(Source::Offered {
                wanted: given.into(),
            });
        }
        Err(QemuError::NoSource {
            given: given.into(),
        })
    }

    /// A word for it.
    pub fn name(&self) -> String {
        match self {
            Source::Offered { wanted } => wanted.clone(),
            Source::Tree { path } => path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// Returns the identity of the source: of a tree the path, the number of files, their bytes and the newest time;
    /// of a version or suite the word that was given.
    pub fn identity(&self) -> Result<String, QemuError> {
        match self {
            Source::Offered { wanted } => Ok(wanted.clone()),
            Source::Tree { path } => {
                let mut seen = Seen::default();
                walk(path, Path::new(""), &mut seen, None)?;
                let (files, bytes, newest) = (seen.files, seen.bytes, seen.newest);
                Ok(format!(
                    "tree {} files {files} bytes {bytes} newest {newest}",
                    path.display()
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
        seen.newest = seen.newest.max(
            changed
                .duration_since(UNIX_EPOCH)
                .map_or(0, |age| age.as_nanos()),
        );
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
