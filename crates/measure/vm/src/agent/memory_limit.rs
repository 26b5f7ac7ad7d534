//! The memory limit of a native trial: a control group of its own, which also counts the page cache, as a guest's
//! memory does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_observe::is_ending;

/// Makes a control group limited to `mib` MiB; gives its folder.
///
/// # Errors
/// Why none could be made, for people.
pub(crate) fn limited_group(mib: u32, name: &str) -> Result<PathBuf, String> {
    let text =
        fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let bytes = (u64::from(mib) << 20).to_string();
    let mut reasons = Vec::new();
    for group in parents(&text) {
        let folder = group.parent.join(name);
        match make(&folder, group.limit, &bytes) {
            Ok(()) => return Ok(folder),
            Err(e) => {
                let _ = fs::remove_dir(&folder);
                reasons.push(format!("{}: {e}", group.parent.display()));
            }
        }
    }
    Err(reasons
        .pop()
        .unwrap_or_else(|| "no memory controller of control groups".to_owned()))
}

/// Removes the control groups that killed processes left where this one would make its own. One with a process in it stays.
pub fn remove_stale_groups() {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for GroupParent { parent, .. } in parents(&text) {
        for group in fs::read_dir(parent).into_iter().flatten().flatten() {
            if group
                .file_name()
                .to_str()
                .and_then(controller)
                .is_some_and(is_ending)
            {
                let _ = fs::remove_dir(group.path());
            }
        }
    }
}

/// The process in a group's name: `vmtax-123-456`.
fn controller(name: &str) -> Option<i32> {
    let (process, _) = name.strip_prefix("vmtax-")?.split_once('-')?;
    process.parse().ok().filter(|process| *process > 0)
}

#[derive(Debug, PartialEq, Eq)]
struct GroupParent {
    parent: PathBuf,
    limit: &'static str,
}

/// Where a group can be made, best first, from the text of `/proc/self/cgroup`. A version 2 group may not both hold
/// processes and control children, so there the parent of one's own group comes first, then one's own.
fn parents(proc_self_cgroup: &str) -> Vec<GroupParent> {
    let mut parents = Vec::new();
    for line in proc_self_cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            let own = Path::new("/sys/fs/cgroup").join(path);
            let above = own
                .parent()
                .filter(|_| !path.is_empty())
                .map(Path::to_path_buf);
            parents.extend(above.into_iter().chain([own]).map(|parent| GroupParent {
                parent,
                limit: "memory.max",
            }));
        } else if controllers.split(',').any(|c| c == "memory") {
            let root = PathBuf::from("/sys/fs/cgroup/memory");
            parents.push(GroupParent {
                parent: root.join(path),
                limit: "memory.limit_in_bytes",
            });
            // In a container one's own path may not be mounted here; the root of what is mounted is.
            parents.push(GroupParent {
                parent: root,
                limit: "memory.limit_in_bytes",
            });
        }
    }
    parents
}

fn make(folder: &Path, limit: &str, bytes: &str) -> io::Result<()> {
    let parent = folder.parent().unwrap_or(folder);
    if !parent.join("cgroup.procs").exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no control group"));
    }
    fs::create_dir(folder)?;
    // Version 2: there is a limit only where the parent hands the controller down already. It is not made to: the parent
    // belongs to another user.
    fs::write(folder.join(limit), bytes)?;
    // A guest has no swap either; where swap is not accounted there is no such file.
    let _ = fs::write(folder.join("memory.swap.max"), "0");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_ours_have_a_controller() {
        assert_eq!(controller("vmtax-12-34"), Some(12));
        for other in [
            "vmtax-12",
            "vmtax--1-2",
            "vmtax-a-2",
            "other-12-34",
            "vmtax-0-1",
        ] {
            assert_eq!(controller(other), None, "{other}");
        }
    }

    #[test]
    fn both_versions_are_found() {
        let v2 = parents("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n");
        assert!(v2[0].parent.ends_with("app.slice") && v2[1].parent.ends_with("x.scope"));
        assert!(v2.iter().all(|p| p.limit == "memory.max"));
        let v1 = parents("5:devices:/\n4:memory:/a/b\n0::/\n");
        assert_eq!(
            v1[0],
            GroupParent {
                parent: "/sys/fs/cgroup/memory/a/b".into(),
                limit: "memory.limit_in_bytes"
            }
        );
        assert_eq!(
            parents("nonsense\n::\n"),
            [GroupParent {
                parent: "/sys/fs/cgroup".into(),
                limit: "memory.max"
            }]
        );
    }
}
