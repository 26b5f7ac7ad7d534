//! A tree of files that a guest is given, and the ways to give it.

use crate::PlanError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use strum::{Display, IntoStaticStr, VariantArray};

/// The tree that guests are given and natively is a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tree {
    /// Small files in a tree of the run's own: [`Tree::SMALL`] bytes each, 100 a folder.
    pub files: u64,
    /// Bytes of a tree of the run's own; what the small files leave is one large file.
    pub bytes: u64,
    /// A folder of the user's instead, only ever read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

impl Tree {
    /// Bytes of a small file.
    pub const SMALL: u64 = 2048;
    /// Small files in a folder.
    pub const PER_FOLDER: u64 = 100;

    /// Bytes of the large file.
    pub const fn large(&self) -> u64 {
        self.bytes
            .saturating_sub(self.files.saturating_mul(Self::SMALL))
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        // A hundred million files of a whole page each are 400 GB: more is a slip of the pen.
        if self.files > 100_000_000 || self.bytes > 1 << 50 {
            return Err(PlanError::Invalid(format!(
                "tree has {} files and {} bytes: give at most 100000000 and {}",
                self.files,
                self.bytes,
                1_u64 << 50
            )));
        }
        Ok(())
    }
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            files: 2000,
            bytes: 2000 * Tree::SMALL + (64 << 20),
            path: None,
        }
    }
}

/// Method by which a guest is given the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ShareMethod {
    /// QEMU's own server of 9P2000.L over virtio.
    #[serde(rename = "9p")]
    #[strum(serialize = "9p")]
    NineP,
    /// virtiofsd: FUSE over virtio.
    Virtiofs,
    /// NFS version 3 from a server in user space, over QEMU's user network.
    Nfs3,
    /// NFS version 4 likewise.
    Nfs4,
    /// A virtio disk with ext4 made from the tree.
    Disk,
    /// A read-only disk with erofs.
    Erofs,
    /// A read-only disk with squashfs.
    Squashfs,
}

impl ShareMethod {
    /// All share methods.
    pub const ALL: &[ShareMethod] = <ShareMethod as VariantArray>::VARIANTS;

    /// The name as typed and stored.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true if the guest sees a disk that was made from the tree, and not the tree.
    pub const fn is_image(self) -> bool {
        matches!(
            self,
            ShareMethod::Disk | ShareMethod::Erofs | ShareMethod::Squashfs
        )
    }

    /// Returns what a guest's kernel has for it. A disk with ext4 takes nothing that a guest has not anyway.
    pub const fn driver(self) -> ShareDriver {
        let (modules, message): (&[&str], &str) = match self {
            ShareMethod::NineP => (&["9pnet_virtio", "9p"], "9p"),
            ShareMethod::Virtiofs => (&["virtiofs"], "virtio"),
            ShareMethod::Nfs3 => (&["virtio_net", "nfsv3"], "NFS"),
            ShareMethod::Nfs4 => (&["virtio_net", "nfsv4"], "NFS"),
            ShareMethod::Disk => (&[], "EXT4"),
            ShareMethod::Erofs => (&["erofs"], "erofs"),
            ShareMethod::Squashfs => (&["squashfs"], "SQUASHFS"),
        };
        ShareDriver { modules, message }
    }

    /// Returns the names of the options that the method takes; a disk also takes any setting of QEMU's block layer and
    /// device.
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            ShareMethod::NineP => &[
                "readonly",
                "security-model",
                "writeout",
                "fmode",
                "dmode",
                "multidevs",
                "msize",
                "cache",
                "access",
            ],
            ShareMethod::Virtiofs => &["readonly", "server", "cache", "threads", "xattr"],
            ShareMethod::Nfs3 => &[
                "readonly", "server", "rsize", "wsize", "noac", "nocto", "actimeo", "timeo",
            ],
            ShareMethod::Nfs4 => &[
                "readonly", "server", "rsize", "wsize", "noac", "nocto", "actimeo", "timeo", "vers",
            ],
            ShareMethod::Disk => &["readonly", "aio", "cache", "iothread"],
            ShareMethod::Erofs | ShareMethod::Squashfs => &["compress", "aio", "cache", "iothread"],
        }
    }
}

/// Support of a guest kernel for a share method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareDriver {
    /// Modules that it takes besides those of every guest.
    pub modules: &'static [&'static str],
    /// Word that all its messages have.
    pub message: &'static str,
}

impl FromStr for ShareMethod {
    type Err = PlanError;
    fn from_str(s: &str) -> Result<Self, PlanError> {
        let known = Self::ALL.iter().copied().find(|m| m.as_str() == s);
        known.ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|m| m.as_str()).collect();
            PlanError::Invalid(format!(
                "unknown share '{}': choose from {}",
                s.escape_default(),
                all.join(", ")
            ))
        })
    }
}

/// A way to give a guest the tree, with what is set of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Share method in use.
    pub method: ShareMethod,
    /// Settings without their prefix: `msize` → `524288`. What is not set is left to QEMU, server and kernel.
    pub options: BTreeMap<String, String>,
}

impl Share {
    /// The share that a variant's settings ask for.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] naming a method or an option that there is not, or a value that would be several.
    pub(crate) fn from_settings(
        set: &BTreeMap<String, String>,
    ) -> Result<Option<Share>, PlanError> {
        let option = |(key, value): (&String, &String)| {
            Some((key.strip_prefix("share.")?.to_owned(), value.clone()))
        };
        let options: BTreeMap<String, String> = set.iter().filter_map(option).collect();
        let Some(method) = set.get("share") else {
            return match options.first_key_value() {
                Some((key, _)) => Err(PlanError::Invalid(format!(
                    "share.{key} is set without share: add share=9p or another method"
                ))),
                None => Ok(None),
            };
        };
        let method: ShareMethod = method.parse()?;
        for (key, value) in &options {
            if !method.is_image() && !method.options().contains(&key.as_str()) {
                let all = method.options().join(", ");
                return Err(PlanError::Invalid(format!(
                    "share={method} has no option '{key}': it takes {all}"
                )));
            }
            // It would begin another option of QEMU's or of the mount.
            if value.contains(',') || value.is_empty() {
                return Err(PlanError::Invalid(format!(
                    "share.{key} is '{value}': give one value, without a comma"
                )));
            }
        }
        let share = Share { method, options };
        for key in ["readonly", "noac", "nocto", "xattr"] {
            share.switch(key)?;
        }
        Ok(Some(share))
    }

    /// Returns the value that is set for an option; `None` where it is not set.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// A switch that is set.
    fn switch(&self, key: &str) -> Result<Option<bool>, PlanError> {
        match self.option(key) {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(other) => Err(PlanError::Invalid(format!(
                "share.{key} is '{other}': give on or off"
            ))),
        }
    }

    /// Returns true if a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.option(key) == Some("on")
    }

    /// Returns true if the guest can only read with this share method: an image that cannot be written, or
    /// `readonly=on`.
    pub fn is_read_only(&self) -> bool {
        (self.method.is_image() && self.method != ShareMethod::Disk) || self.is_on("readonly")
    }

    /// Returns true if a guest may only read this tree. The user's own tree is only read, too, unless the guest has a
    /// copy on a disk.
    pub fn read_only(&self, tree: &Tree) -> bool {
        self.is_read_only() || (tree.path.is_some() && self.method != ShareMethod::Disk)
    }
}

/// Settings of a share as they took effect, as a trial's record keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareFacts {
    /// Method by which the tree was shared.
    pub method: ShareMethod,
    /// The guest's line of `/proc/mounts`: what its kernel says of it.
    pub mount: String,
    /// The command that mounts it so in any guest; empty in older recordings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mount_command: String,
    /// 9p's largest message in bytes, as server and client agreed on it; `None` for others, or where it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msize: Option<u64>,
    /// QEMU's arguments for it.
    pub qemu: Vec<String>,
    /// The server's command line, where QEMU does not serve itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
    /// The image that was made from the tree, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageFacts>,
    /// The soft limit of open files of who serves: QEMU or the server.
    pub open_files: Option<u64>,
}

/// An image made from the tree, once for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Command line of the program that made the image.
    pub command: Vec<String>,
    /// Time to make the image, seconds: part of the cost of this share method.
    pub seconds: f64,
    /// Length of the image, bytes.
    pub bytes: u64,
}

/// CPU time that a trial took on the host, seconds, by who spent it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// QEMU's vCPU threads.
    pub guest: f64,
    /// QEMU's other threads.
    pub qemu: f64,
    /// Time that the threads of `guest` were runnable while the host's CPUs were busy otherwise.
    #[serde(default)]
    pub ready: f64,
    /// The share's server, where it is a process of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
}

impl CpuSeconds {
    /// Returns the CPU time spent after `before`.
    pub fn since(&self, before: &CpuSeconds) -> CpuSeconds {
        let difference = |after: f64, before: f64| (after - before).max(0.0);
        let both = self.server.zip(before.server);
        CpuSeconds {
            guest: difference(self.guest, before.guest),
            qemu: difference(self.qemu, before.qemu),
            ready: difference(self.ready, before.ready),
            server: both.map(|(after, before)| difference(after, before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<Share>, PlanError> {
        Share::from_settings(
            &set.iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn a_share_is_read_and_nonsense_is_named() {
        assert_eq!(read(&[("aio", "native")]), Ok(None));
        let share = read(&[
            ("share", "9p"),
            ("share.msize", "524288"),
            ("aio", "native"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(
            (share.method, share.option("msize")),
            (ShareMethod::NineP, Some("524288"))
        );
        assert_eq!(share.options.len(), 1);
        let refused = |set: &[(&str, &str)], said: &str| {
            let error = read(set).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        refused(&[("share", "smb")], "9p, virtiofs");
        refused(&[("share.msize", "1")], "without share");
        refused(
            &[("share", "virtiofs"), ("share.msize", "1")],
            "cache, threads",
        );
        refused(
            &[("share", "9p"), ("share.cache", "none,posixacl")],
            "comma",
        );
        refused(&[("share", "9p"), ("share.readonly", "yes")], "on or off");
        assert!(read(&[("share", "disk"), ("share.drive.driver", "null-co")]).is_ok());
    }

    #[test]
    fn the_users_own_tree_is_only_read() {
        let (own, theirs) = (
            Tree::default(),
            Tree {
                path: Some("/x".into()),
                ..Tree::default()
            },
        );
        let read_only = |method: &str, tree: &Tree| {
            read(&[("share", method)]).unwrap().unwrap().read_only(tree)
        };
        assert!(!read_only("9p", &own) && read_only("9p", &theirs));
        assert!(!read_only("disk", &own) && !read_only("disk", &theirs));
        assert!(read_only("erofs", &own));
        assert_eq!(own.large(), 64 << 20);
    }
}
