//! The host itself as a machine: the agent in a process with the guest's vCPUs and memory. The limit of its memory is a control
//! group of its own, which also counts the page cache, as a guest's memory does.

use crate::MachineError;
use crate::network::NetworkLink;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::sandbox::overlay::Discard;
use crate::setup::Setup;
use rustix::fd::OwnedFd;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::Warning;
use vmtax_observe::is_ending;

/// Starts the agent, with its end of the channel, and of the network with the echo server, if there is one.
pub(crate) fn start(
    setup: &Setup<'_>,
    channel: OwnedFd,
    network: Option<NetworkLink>,
) -> Result<(Child, Vec<Warning>), MachineError> {
    let mut warnings = Vec::new();
    let name = format!("vmtax-{}-{}", std::process::id(), fastrand::u32(..));
    let group = match limited_group(setup.guest.memory_mib, &name) {
        Ok(folder) => Some(folder),
        Err(reason) => {
            warnings.push(Warning::NoMemoryLimit { reason });
            None
        }
    };
    let command = command(setup, network.as_ref(), group.as_deref());
    let discard = setup
        .command
        .filter(|command| !command.in_place)
        .map(|command| Discard {
            layers: setup
                .scratch
                .folder()
                .join(format!("layers-{:08x}", fastrand::u32(..))),
            directory: command.directory.clone(),
            kept: command.write.clone(),
        });
    let network = network.map_or_else(Vec::new, |link| link.end.descriptors());
    let network_in = network.first().map(|_| FIRST_DESCRIPTOR);
    let started = Child::spawn(Start {
        command,
        stdin: Some(channel),
        descriptors: network,
        log: &setup.log.join("agent.log"),
        supervision: Supervision {
            namespaces: Namespaces {
                network_in,
                read_only: setup.scratch.users_tree().map(ToOwned::to_owned),
                ..Namespaces::default()
            },
            discard,
            emptied: group.iter().cloned().collect(),
            removed: vec![setup.scratch.folder().to_path_buf()],
            ..Supervision::default()
        },
    });
    if let (Err(_), Some(folder)) = (&started, &group) {
        let _ = std::fs::remove_dir(folder);
    }
    Ok((started?, warnings))
}

/// The arguments of the agent, with the control group that it moves into.
fn command(setup: &Setup<'_>, network: Option<&NetworkLink>, group: Option<&Path>) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let cpus: Vec<String> = setup.pinned.iter().map(u32::to_string).collect();
    let options = [
        ("--cpus", Some(setup.guest.cpus.to_string())),
        (
            "--pinned",
            Some(cpus.join(",")).filter(|cpus| !cpus.is_empty()),
        ),
        ("--files", Some(text(&setup.scratch.native_files()))),
        ("--disk", setup.scratch.disk().map(|disk| text(&disk))),
        // It is vmtax's own.
        ("--destroy", setup.scratch.disk().map(|disk| text(&disk))),
        ("--share", setup.scratch.tree().map(text)),
        ("--echo", network.map(|link| link.echo.to_string())),
        ("--cgroup", group.map(text)),
    ];
    let given = options
        .into_iter()
        .filter_map(|(option, value)| Some([option.to_owned(), value?]));
    ["/proc/self/exe", "agent", "serve"]
        .map(str::to_owned)
        .into_iter()
        .chain(given.flatten())
        .collect()
}

/// Makes a control group limited to `mib` MiB; gives its folder.
///
/// # Errors
/// Why none could be made, for people.
fn limited_group(mib: u32, name: &str) -> Result<PathBuf, String> {
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

/// Where a group can be made, and the name of its file for the limit.
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
        let (folders, limit) = if controllers.is_empty() {
            let own = Path::new("/sys/fs/cgroup").join(path);
            let above = own.parent().filter(|_| !path.is_empty());
            let above = above.map(Path::to_path_buf);
            (above.into_iter().chain([own]).collect(), "memory.max")
        } else if controllers.split(',').any(|c| c == "memory") {
            let root = PathBuf::from("/sys/fs/cgroup/memory");
            // In a container one's own path may not be mounted here; the root of what is mounted is.
            (vec![root.join(path), root], "memory.limit_in_bytes")
        } else {
            continue;
        };
        let groups = folders.into_iter();
        parents.extend(groups.map(|parent| GroupParent { parent, limit }));
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
