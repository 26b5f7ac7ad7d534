//! QEMU as it is started for vmtax's own guests: its command line beside this file, its rights on the host; and the connection
//! to its monitor.

mod command_line;
pub(crate) mod device_arguments;

pub use command_line::DISK_DEVICE;

use crate::MachineError;
use crate::micro_guest::layout::RAM_BYTES;
use crate::network::{NetworkEnd, NetworkLink};
use crate::process::child::{Child, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::sandbox::reach::Reach;
use crate::sandbox::rights::{Rights, RightsOfUser, unprivileged_user};
use crate::setup::{Boot, GuestImage, Setup};
use crate::share::{ServerAddress, Sharing};
use crate::vmm::started::{Link, Started, Streams};
use command_line::SHARED_BYTES;
use device_arguments::check_dummy_devices;
use rustix::fd::OwnedFd;
use rustix::thread::CapabilitySet;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_clock::Shared;
use vmtax_host::QemuVersion;
use vmtax_model::{QemuFacts, ShareMethod, shell_line, words_without_secrets};
use vmtax_vmm::qemu::monitor::{Monitor, QMP_TIMEOUT};

/// The first QEMU with `-netdev stream`.
const FIRST_WITH_STREAMS: QemuVersion = version(7, 2);
/// The first QEMU with `-chardev socket,abstract=on`.
const FIRST_WITH_ABSTRACT_SOCKETS: QemuVersion = version(5, 1);
/// The first QEMU that was seen to run a guest with vhost-user without KVM: 5.2 and 7.2 crash when the guest sets up its
/// card, those between were not tried.
const FIRST_WITH_VHOST_USER_IN_TCG: QemuVersion = version(10, 0);

const fn version(major: u32, minor: u32) -> QemuVersion {
    QemuVersion {
        major,
        minor,
        micro: 0,
    }
}

/// Starts a guest with a kernel.
pub(crate) fn start_linux(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    image: &GuestImage,
    streams: Streams,
) -> Result<Started, MachineError> {
    let Streams {
        agent,
        console,
        server,
        network,
    } = streams;
    if let Some(link) = &network {
        check_version(qemu, &link.end, setup.machine.is_kvm())?;
    }
    let share = command_line::share(setup, qemu, server.as_ref());
    let end = command_line::network_descriptor(server.as_ref());
    let network_end = network.as_ref().map(|link| (link, end));
    let mut arguments = command_line::guest(setup, qemu, image, network_end);
    arguments.extend(share.iter().cloned());
    let memory = Shared::create(SHARED_BYTES)?;
    let mut started = spawn(
        setup,
        qemu,
        arguments,
        memory,
        vec![agent, console],
        server,
        network,
    )?;
    started.link.share = share;
    Ok(started)
}

/// Refuses a QEMU that is too old for what is behind the network card.
fn check_version(qemu: &QemuFacts, end: &NetworkEnd, is_kvm: bool) -> Result<(), MachineError> {
    let by_user = "use backend=user, or another QEMU (--qemu)";
    let (first, what, fix) = match end {
        NetworkEnd::Passt(_) => (FIRST_WITH_STREAMS, "backend=passt", by_user),
        NetworkEnd::VhostUser(_) if !is_kvm => (
            FIRST_WITH_VHOST_USER_IN_TCG,
            "backend=vhost-user without KVM",
            "5.2 and 7.2 crash; use KVM, or another QEMU (--qemu)",
        ),
        NetworkEnd::VhostUser(_) => (FIRST_WITH_ABSTRACT_SOCKETS, "backend=vhost-user", by_user),
        _ => return Ok(()),
    };
    match qemu.version.parse::<QemuVersion>() {
        Ok(version) if version < first => Err(MachineError::NoNetwork(format!(
            "{what} needs QEMU {first} or newer, {} is {version}: {fix}",
            qemu.path.display()
        ))),
        _ => Ok(()),
    }
}

/// Starts the micro-guest.
pub(crate) fn start_micro_guest(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    rom: &Path,
    network: Option<NetworkLink>,
) -> Result<Started, MachineError> {
    let command = command_line::micro_guest(setup, qemu, rom, network.as_ref());
    spawn(
        setup,
        qemu,
        command,
        Shared::create(RAM_BYTES)?,
        Vec::new(),
        None,
        network,
    )
}

/// Descriptors are numbered in the order in which the command line counts on them.
fn spawn(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    mut command: Vec<String>,
    memory: Shared,
    agent: Vec<OwnedFd>,
    server: Option<ServerAddress>,
    network: Option<NetworkLink>,
) -> Result<Started, MachineError> {
    let rights = rights(setup, qemu)?;
    complete(setup, &mut command)?;
    let (control, theirs) =
        UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))?;
    let end = network.map(|link| link.end);
    let namespaces = Namespaces {
        network_in: matches!(end, Some(NetworkEnd::Namespace(_)))
            .then(|| command_line::network_descriptor(server.as_ref())),
        ..namespaces_of_share(setup, rights.is_some())
    };
    let (server, network_of) = way_to(server, end.as_ref())?;
    let descriptors = agent
        .into_iter()
        .chain([theirs.into(), memory.descriptor()?])
        .chain(server)
        .chain(end.map_or_else(Vec::new, NetworkEnd::descriptors))
        .collect();
    let log = log(setup.log);
    let child = Child::spawn(Start {
        command,
        stdin: None,
        descriptors,
        log: &log,
        supervision: Supervision {
            namespaces: Namespaces {
                network_of,
                ..namespaces
            },
            rights,
            removed: vec![setup.scratch.folder().to_path_buf()],
            restored: setup.restored.to_vec(),
            ..Supervision::default()
        },
    })?;
    let link = Link {
        share: Vec::new(),
        memory,
        log,
        control,
    };
    Ok(Started { child, link })
}

/// Adds the arguments that any QEMU has last, the user's behind all others, and writes the command down.
fn complete(setup: &Setup<'_>, command: &mut Vec<String>) -> Result<(), MachineError> {
    if setup.events {
        command.extend(["-msg", "timestamp=on", "-D"].map(str::to_owned));
        command.push(events(setup.log).display().to_string());
    }
    command.extend(setup.guest.qemu_args.iter().cloned());
    let saved = setup.log.join("qemu.command");
    std::fs::write(&saved, shell_line(&words_without_secrets(command)) + "\n")
        .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))
}

/// The stream to the share's server, or the process in whose network it is, for a QEMU whose network card has this behind it.
fn way_to(
    server: Option<ServerAddress>,
    end: Option<&NetworkEnd>,
) -> Result<(Option<OwnedFd>, Option<i32>), MachineError> {
    let of = match server {
        None => return Ok((None, None)),
        Some(ServerAddress::Stream(stream)) => return Ok((Some(stream), None)),
        Some(ServerAddress::Ports { of, .. }) => of,
    };
    // Each is in a network namespace of its own.
    let backend = match end {
        Some(NetworkEnd::Namespace(_)) => "user",
        Some(NetworkEnd::VhostUser(_)) => "vhost-user",
        _ => return Ok((None, Some(of))),
    };
    Err(MachineError::NoNetwork(format!(
        "with backend={backend} QEMU cannot reach the share's server: use backend=tap or another share"
    )))
}

/// Namespaces of a QEMU that serves the share itself.
fn namespaces_of_share(setup: &Setup<'_>, has_rights: bool) -> Namespaces {
    let served = setup
        .share
        .filter(|sharing| sharing.share.method == ShareMethod::NineP);
    // Root may read a file without a trace, by O_NOATIME; a user with root's rights to read may not.
    let read_only = served.filter(|sharing| has_rights && sharing.users && sharing.read_only);
    Namespaces {
        // An old QEMU opens what devices a guest makes on a 9p share.
        no_devices: setup.share.map(Sharing::served_by_qemu).unwrap_or_default(),
        // Of the shares only this one is QEMU's own to serve.
        root: served.and_then(Sharing::root),
        read_only: read_only.map(|sharing| sharing.source.clone()),
        ..Namespaces::default()
    }
}

/// Connects to the monitor, which greets within `greeting`, and checks that the guest is the one that was requested: QEMU can
/// fall back to TCG, and some firmware has no addresses for that many devices.
pub(crate) fn connect(
    setup: &Setup<'_>,
    control: UnixStream,
    greeting: Duration,
) -> Result<Monitor, MachineError> {
    let monitor = Monitor::connect(control, greeting, QMP_TIMEOUT)?;
    if setup.machine.has_kernel() {
        check_dummy_devices(setup, &monitor)?;
    }
    if setup.machine.is_kvm() && !monitor.is_kvm()? {
        return Err(MachineError::NotKvm);
    }
    Ok(monitor)
}

/// Capabilities for serving a tree in which guests write, besides those for reading it: new files get their user's
/// number.
const WRITING: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER);
/// Capabilities for serving a tree that ends with the run, as others cannot reach it: set-group-ID files, device
/// nodes.
const OWN_TREE: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::MKNOD);
const KVM: &str = "/dev/kvm";

/// QEMU's rights for a guest; `None` for all of this program's.
fn rights(setup: &Setup<'_>, qemu: &QemuFacts) -> Result<Option<Rights>, MachineError> {
    let host_root = setup.share.and_then(|sharing| sharing.host_root.as_ref());
    let users = host_root.map_or(&[][..], |besides| &besides.writable);
    // What a guest makes in the user's folders outlives the run.
    let no_set_id = !users.is_empty();
    let Some(id) = unprivileged_user() else {
        return Ok(no_set_id.then_some(Rights {
            user: None,
            no_set_id,
        }));
    };
    let mut user = RightsOfUser {
        id,
        ..RightsOfUser::default()
    };
    if setup.machine.is_kvm() {
        let kvm = Path::new(KVM).metadata().ok();
        let kvm = kvm.filter(|kvm| kvm.mode() & 0o060 == 0o060);
        user.groups.extend(kvm.map(|kvm| kvm.gid()));
        user.reached.push(KVM.into());
    }
    match setup.share.filter(|sharing| is_server(sharing)) {
        None => {
            hand_over(setup, id)?;
            let reach = Reach {
                user: id,
                groups: &user.groups,
            };
            // A QEMU that was built or fetched may be in a folder of root's.
            let installation = reach.installation(&qemu.path).ok();
            let program = installation.into_iter().chain([qemu.path.clone()]);
            user.reached.extend(program.chain(files(setup)));
        }
        Some(sharing) => serve(&mut user, setup, sharing, users)?,
    }
    Ok(Some(Rights {
        user: Some(user),
        no_set_id,
    }))
}

/// Adds the rights for serving a tree. `users`: folders of the user's that the guest may write to.
fn serve(
    user: &mut RightsOfUser,
    setup: &Setup<'_>,
    sharing: &Sharing,
    users: &[PathBuf],
) -> Result<(), MachineError> {
    let mut capabilities = CapabilitySet::DAC_READ_SEARCH;
    if users.is_empty() && sharing.read_only {
        hand_over(setup, user.id)?;
    } else {
        capabilities |= WRITING;
        if users.is_empty() && !sharing.users {
            capabilities |= OWN_TREE;
        }
        let own = [setup.scratch.folder(), setup.log].map(Path::to_path_buf);
        user.writable = Some(users.iter().cloned().chain(own).collect());
    }
    user.capabilities = capabilities.bits();
    Ok(())
}

/// The files that QEMU's arguments name.
fn files(setup: &Setup<'_>) -> Vec<PathBuf> {
    let booted = match setup.boot {
        Boot::Host => Vec::new(),
        Boot::Linux(_, image) => vec![image.kernel.clone(), image.initramfs.clone()],
        Boot::Micro(_, rom) => vec![rom.to_path_buf()],
    };
    booted
        .into_iter()
        .chain(setup.guest.firmware.clone())
        .chain(written(setup))
        .collect()
}

/// The files that QEMU writes, and the image of a share.
fn written(setup: &Setup<'_>) -> Vec<PathBuf> {
    let is_disk = |sharing: &&Sharing| sharing.share.method.is_image();
    let image = setup.share.filter(is_disk);
    let all = [
        setup.scratch.image(setup.disk),
        setup.scratch.files_image(),
        image.map(|sharing| sharing.own().to_path_buf()),
        setup.events.then(|| events(setup.log)),
    ];
    all.into_iter().flatten().collect()
}

/// Returns true if QEMU itself serves host files to the guest.
fn is_server(sharing: &Sharing) -> bool {
    sharing.share.method == ShareMethod::NineP || !sharing.served_by_qemu().is_empty()
}

/// Gives a user the files that QEMU writes.
fn hand_over(setup: &Setup<'_>, user: u32) -> Result<(), MachineError> {
    for path in written(setup) {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let given = file.and_then(|file| fchown(file, Some(user), Some(user)));
        given.map_err(|e| {
            MachineError::system(format!("giving {} to QEMU's user", path.display()), e)
        })?;
    }
    Ok(())
}

/// QEMU's own trace events.
pub(crate) fn events(folder: &Path) -> PathBuf {
    folder.join("qemu.events")
}

/// QEMU's standard output and error.
pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("qemu.log")
}
