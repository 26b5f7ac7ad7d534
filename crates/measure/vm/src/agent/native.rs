//! The host itself as a machine: the agent in a process with the guest's vCPUs and memory.

use crate::MachineError;
use crate::agent::memory_limit;
use crate::network::NetworkLink;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::sandbox::overlay::Discard;
use crate::setup::Setup;
use rustix::fd::OwnedFd;
use vmtax_model::Warning;

/// `network`: the network with the echo server, if there is one.
pub(crate) fn start(
    setup: &Setup<'_>,
    channel: OwnedFd,
    network: Option<NetworkLink>,
) -> Result<(Child, Vec<Warning>), MachineError> {
    let mut warnings = Vec::new();
    let name = format!("vmtax-{}-{}", std::process::id(), fastrand::u32(..));
    let group = match memory_limit::limited_group(setup.guest.memory_mib, &name) {
        Ok(folder) => Some(folder),
        Err(reason) => {
            warnings.push(Warning::NoMemoryLimit { reason });
            None
        }
    };
    let text = |path: &std::path::Path| path.display().to_string();
    let mut command = vec![
        "/proc/self/exe".to_owned(),
        "agent".to_owned(),
        "serve".to_owned(),
    ];
    command.extend(["--cpus".to_owned(), setup.guest.cpus.to_string()]);
    if !setup.pinned.is_empty() {
        let cpus: Vec<String> = setup.pinned.iter().map(u32::to_string).collect();
        command.extend(["--pinned".to_owned(), cpus.join(",")]);
    }
    command.extend(["--files".to_owned(), text(&setup.scratch.native_files())]);
    if let Some(disk) = setup.scratch.disk() {
        command.extend(["--disk".to_owned(), text(&disk)]);
    }
    if let Some(tree) = setup.scratch.tree() {
        command.extend(["--share".to_owned(), text(tree)]);
    }
    if let Some(link) = &network {
        command.extend(["--echo".to_owned(), link.echo.to_string()]);
    }
    if let Some(folder) = &group {
        command.extend(["--cgroup".to_owned(), text(folder)]);
    }
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
