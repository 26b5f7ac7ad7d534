//! Check of the paths of a file system that root may use: those that no other user can change.
//!
//! Root that writes below a folder of another user writes where that user points it: a folder is renamed, and a link
//! takes its place. So every part of a path is checked, from `/` on: who owns a part, or may write to it, can replace
//! what is below. Once a part has passed, no other user can replace it, and the next one is that of the path.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who may own what root uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Root alone: for what root executes.
    Root,
    /// Root, or the user who called sudo (`SUDO_UID`), who may do as root whatever vmtax does.
    RootOrSudoUser,
}

/// A part of a path that another user can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The part: the path itself, a folder above it, or a link in it.
    pub part: PathBuf,
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    OwnedBy(u32),
    WritableByGroup(u32),
    WritableByAll,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part.display();
        match self.access {
            Access::OwnedBy(user) => write!(f, "{part} belongs to user {user}"),
            Access::WritableByGroup(group) => write!(f, "{part} is writable by group {group}"),
            Access::WritableByAll => write!(f, "{part} is writable by all users"),
        }
    }
}

/// The first part of `path` that another user can change, if this process is root; `None` for other users, whose rights the
/// kernel limits.
///
/// # Errors
/// When the path does not exist or cannot be read.
pub fn untrusted(path: &Path, owner: Owner) -> io::Result<Option<Untrusted>> {
    first_untrusted(path, owner, false)
}

/// As [`untrusted`], for a folder in which something new is made: it may be one like `/tmp`, where all may add files and
/// only a file's owner can replace it. What was made is to be checked with [`untrusted`] before it is used: another user
/// may have made it first.
///
/// # Errors
/// When the folder does not exist or cannot be read.
pub fn untrusted_parent(folder: &Path, owner: Owner) -> io::Result<Option<Untrusted>> {
    first_untrusted(folder, owner, true)
}

fn first_untrusted(path: &Path, owner: Owner, is_parent: bool) -> io::Result<Option<Untrusted>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let trusted = Trusted::new(owner);
    let path = std::path::absolute(path)?;
    let named = trusted.first_untrusted(&path, is_parent)?;
    // Where its links lead.
    named.map_or_else(
        || trusted.first_untrusted(&path.canonicalize()?, is_parent),
        |part| Ok(Some(part)),
    )
}

/// Users and groups who may change what root uses.
struct Trusted {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Trusted {
    fn new(owner: Owner) -> Trusted {
        let number = |name| {
            env::var(name)
                .ok()
                .and_then(|value| value.parse::<u32>().ok())
        };
        let mut trusted = Trusted {
            users: vec![0],
            groups: vec![0],
        };
        if owner == Owner::RootOrSudoUser {
            let (user, group) = (number("SUDO_UID"), number("SUDO_GID"));
            trusted.users.extend(user);
            // A group of the user's own has the user's number.
            trusted.groups.extend(group.filter(|_| group == user));
        }
        // Inside a user namespace the host's root has no number, as have all who are outside.
        trusted.users.extend(unmapped_user());
        trusted
    }

    /// From `/` on, links not followed.
    fn first_untrusted(&self, path: &Path, is_parent: bool) -> io::Result<Option<Untrusted>> {
        let parts: Vec<&Path> = path.ancestors().collect();
        for part in parts.into_iter().rev() {
            let access =
                self.foreign_access(&fs::symlink_metadata(part)?, part == path && !is_parent);
            if let Some(access) = access {
                return Ok(Some(Untrusted {
                    part: part.to_owned(),
                    access,
                }));
            }
        }
        Ok(None)
    }

    fn foreign_access(&self, part: &fs::Metadata, is_last: bool) -> Option<Access> {
        let mode = part.mode();
        // In a folder like /tmp only the owner of a file can replace it, but all may add to it.
        let is_sticky = mode & 0o1000 != 0 && !is_last;
        if !self.users.contains(&part.uid()) {
            Some(Access::OwnedBy(part.uid()))
        } else if part.is_symlink() || is_sticky {
            None
        } else if mode & 0o002 != 0 {
            Some(Access::WritableByAll)
        } else {
            (mode & 0o020 != 0 && !self.groups.contains(&part.gid()))
                .then(|| Access::WritableByGroup(part.gid()))
        }
    }
}

/// The number that stands for users outside of this process's user namespace; `None` where there are none outside.
fn unmapped_user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    overflow.trim().parse().ok().filter(|_| !all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns the reason why root may not use the path, or "none".
    fn reason(path: &Path) -> String {
        untrusted(path, Owner::RootOrSudoUser)
            .unwrap()
            .map_or("none".to_owned(), |found| found.to_string())
    }

    #[test]
    #[ignore = "needs root"]
    fn every_part_of_a_path_is_checked() {
        let place = tempfile::tempdir().unwrap();
        let (above, folder) = (
            place.path().join("above"),
            place.path().join("above/folder"),
        );
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(reason(&folder), "none");
        for (part, below) in [(&above, "above"), (&folder, "folder")] {
            let named = |what: &str| format!("{} {what}", part.display());
            chown(part, Some(65534), None).unwrap();
            assert_eq!(reason(&folder), named("belongs to user 65534"), "{below}");
            chown(part, Some(0), Some(65534)).unwrap();
            assert_eq!(reason(&folder), "none", "{below}");
            set_mode(part, 0o775);
            assert_eq!(
                reason(&folder),
                named("is writable by group 65534"),
                "{below}"
            );
            chown(part, Some(0), Some(0)).unwrap();
            assert_eq!(reason(&folder), "none", "{below}");
            set_mode(part, 0o777);
            assert_eq!(
                reason(&folder),
                named("is writable by all users"),
                "{below}"
            );
            // As /tmp: nobody can replace a file of root's, but all can add one.
            set_mode(part, 0o1777);
            let expected = if part == &above {
                "none".to_owned()
            } else {
                named("is writable by all users")
            };
            assert_eq!(reason(&folder), expected, "{below}");
            assert_eq!(
                untrusted_parent(&folder, Owner::Root).unwrap(),
                None,
                "{below}"
            );
            set_mode(part, 0o755);
        }
        assert!(untrusted(&place.path().join("none"), Owner::Root).is_err());
    }

    #[test]
    #[ignore = "needs root"]
    fn a_link_is_of_its_owner_and_of_where_it_leads() {
        let place = tempfile::tempdir().unwrap();
        let (theirs, ours, link) = (
            place.path().join("theirs"),
            place.path().join("ours"),
            place.path().join("link"),
        );
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(65534), None).unwrap();
        symlink(&ours, &link).unwrap();
        assert_eq!(reason(&link), "none");
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert_eq!(
            reason(&link),
            format!("{} belongs to user 65534", link.display())
        );
        fs::remove_file(&link).unwrap();
        symlink(&theirs, &link).unwrap();
        assert_eq!(
            reason(&link),
            format!("{} belongs to user 65534", theirs.display())
        );
    }
}
