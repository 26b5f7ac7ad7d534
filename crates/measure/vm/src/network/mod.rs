//! The network of one machine: a network namespace of its own, in which an echo server's sockets wait behind what the guest's
//! card is connected by, or natively behind a veth pair. Nothing has a name outside: the namespace lasts as long as somebody has
//! one of its sockets or its tap open, so the kernel removes it with the last process, however that ends. The host's network is
//! not touched; without the rights for a namespace, the server is on the host's loopback device.

mod make;
mod passt;

use crate::MachineError;
use crate::process::child::{Child, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::rights::Rights;
use crate::setup::Setup;
pub(crate) use make::{HOST_MAC, NetworkEnd, NetworkLink, mac_bytes};
use make::{Network, make, on_host_loopback};
use passt::VhostUser;
use rustix::fd::OwnedFd;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use vmtax_host::has_vhost_net;
use vmtax_model::{NetBackend, QemuThread, Role, Warning};
use vmtax_observe::{processes, thread_names};
use vmtax_wire::ECHO;
use vmtax_workload::SERVER_THREADS as THREADS;

/// The server's interface of this process's machines, as host events name it: a tap, a loopback device.
pub fn network_device() -> String {
    make::outside()
}

/// Name of the file with what the echo server prints.
const LOG: &str = "echo.log";
/// Time limit for the start of the echo server.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A network with an echo server. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct MachineNetwork {
    server: Child,
    /// Process of passt, where passt connects the server to a guest.
    passt: Option<Child>,
    /// Waits for the VMM to connect, then becomes `passt`.
    vhost_user: Option<VhostUser>,
    /// The warning that figures differ from those of a network of its own, if they do.
    pub warning: Option<Warning>,
}

impl MachineNetwork {
    /// Makes it, with the machine's end. Where nobody asked for a backend, a guest's is a tap, or what this user may make.
    ///
    /// # Errors
    /// [`MachineError`] naming what is missing.
    pub fn start(setup: &Setup<'_>) -> Result<(MachineNetwork, NetworkLink), MachineError> {
        let queues = NetBackend::queues(setup.disk)
            .map_err(|error| MachineError::NoNetwork(error.to_string()))?;
        let needs_none = queues == 1 && matches!(setup.backend, None | Some(NetBackend::User));
        let (made, warning) = match make(device(setup, queues)?) {
            Err(MachineError::NoNamespace { source }) if needs_none => {
                let reason = format!("this user may make no network namespace: {source}");
                let warning = Warning::OnHostLoopback { reason };
                (on_host_loopback()?, Some(warning))
            }
            made => (made?, None),
        };
        let (mut passt, mut vhost_user) = (None, None);
        let end = match (made.end, setup.backend) {
            (NetworkEnd::Namespace(namespace), Some(NetBackend::Passt)) => {
                let (child, stream) = passt::start(setup, namespace, &network_device())?;
                passt = Some(child);
                NetworkEnd::Passt(stream)
            }
            (NetworkEnd::Namespace(namespace), Some(NetBackend::VhostUser)) => {
                let (socket, name) = VhostUser::prepare(namespace, &network_device())?;
                vhost_user = Some(socket);
                NetworkEnd::VhostUser(name)
            }
            (end, _) => end,
        };
        let network = MachineNetwork {
            server: start_server(setup, made.udp, made.others)?,
            passt,
            vhost_user,
            warning,
        };
        network.wait_for_server(setup)?;
        // Guests have addresses of their own; the port is the server's.
        let server = if setup.machine.is_guest() {
            ECHO
        } else {
            made.echo
        };
        let echo = SocketAddrV4::new(*server.ip(), made.echo.port());
        Ok((network, NetworkLink { end, echo }))
    }

    /// Waits until the echo server has started.
    fn wait_for_server(&self, setup: &Setup<'_>) -> Result<(), MachineError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while threads(&self.server, Role::ECHO_SERVER).len() < THREADS as usize {
            if Instant::now() > deadline {
                let log = setup.log.join(LOG);
                return Err(MachineError::NoNetwork(format!(
                    "the echo server does not start: see {}",
                    log.display()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Connects it to this VMM, where that waits for it.
    ///
    /// # Errors
    /// [`MachineError`] when the VMM does not.
    pub fn connect(&mut self, setup: &Setup<'_>, vmm: &mut Child) -> Result<(), MachineError> {
        if let Some(socket) = self.vhost_user.take() {
            self.passt = socket.connect(setup, &network_device(), vmm)?;
        }
        Ok(())
    }

    /// Why a VMM that did not boot its guest had no network, where that is so.
    pub fn failure(&mut self, setup: &Setup<'_>) -> Option<MachineError> {
        self.passt
            .as_mut()
            .and_then(|child| passt::ended(child, setup))
    }

    /// The threads of the echo server, and of passt.
    pub fn threads(&self) -> Vec<QemuThread> {
        let passt = self
            .passt
            .iter()
            .flat_map(|passt| threads(passt, Role::PASST));
        threads(&self.server, Role::ECHO_SERVER)
            .into_iter()
            .chain(passt)
            .collect()
    }

    /// The session of passt.
    pub fn passt(&self) -> Option<i32> {
        self.passt.as_ref().map(Child::session)
    }
}

/// The device by which the echo server is reached; a guest's has so many queues.
fn device(setup: &Setup<'_>, queues: usize) -> Result<Network, MachineError> {
    Ok(match setup.backend {
        _ if !setup.machine.is_guest() => Network::Veth,
        None | Some(NetBackend::Tap) if lacks_vhost(setup) => {
            let error =
                "netdev.vhost=on needs /dev/vhost-net: `modprobe vhost_net`, or leave it out";
            return Err(MachineError::NoNetwork(error.to_owned()));
        }
        None | Some(NetBackend::Tap) => Network::Tap { queues },
        Some(NetBackend::User | NetBackend::Passt | NetBackend::VhostUser) => Network::Loopback,
    })
}

/// Starts the echo server with its sockets.
fn start_server(
    setup: &Setup<'_>,
    udp: OwnedFd,
    others: Vec<OwnedFd>,
) -> Result<Child, MachineError> {
    let command = ["/proc/self/exe", "agent", "echo"].map(str::to_owned);
    Child::spawn(Start {
        command: command.to_vec(),
        stdin: Some(udp),
        descriptors: others,
        log: &setup.log.join(LOG),
        supervision: Supervision {
            rights: Some(Rights::of_no_one(true)),
            removed: vec![setup.scratch.folder().to_path_buf()],
            ..Supervision::default()
        },
    })
}

/// Returns true if the kernel is to move a tap's packets (`netdev.vhost=on`), and cannot.
fn lacks_vhost(setup: &Setup<'_>) -> bool {
    setup
        .disk
        .get(NetBackend::VHOST)
        .is_some_and(|value| value == "on")
        && !has_vhost_net()
}

/// The threads of a process under a watchdog.
fn threads(child: &Child, name: &str) -> Vec<QemuThread> {
    let session = child.session();
    let members =
        processes().filter(|process| process.session == session && process.pid != session);
    let threads = members.flat_map(|process| thread_names(process.pid));
    threads
        .map(|(tid, _)| QemuThread {
            tid,
            role: Role::Other(name.to_owned()),
        })
        .collect()
}
