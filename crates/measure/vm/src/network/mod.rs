//! The network of one machine: a network namespace of its own, in which an echo server's sockets wait behind a tap, or natively
//! behind a veth pair. Nothing has a name outside: the namespace lasts as long as somebody has one of its sockets or its tap
//! open, so the kernel removes it with the last process, however that ends. The host's network is not touched.

mod make;
mod veth;

use crate::MachineError;
use crate::process::child::{Child, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::rights::{Rights, RightsOfUser, unprivileged_user};
use crate::setup::Setup;
use make::{Made, make};
use rustix::fd::OwnedFd;
use std::time::{Duration, Instant};
use vmtax_model::{QemuThread, Role};
use vmtax_observe::{processes, thread_names};

/// The tap, as host events name it.
pub const TAP: &str = make::OUTSIDE;
/// How long the echo server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// UDP's thread and TCP's.
const THREADS: usize = 2;

/// A network with an echo server. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct MachineNetwork {
    server: Child,
}

impl MachineNetwork {
    /// Makes it, with the machine's end: a guest's tap, or natively the network namespace of the client.
    pub fn start(setup: &Setup<'_>) -> Result<(MachineNetwork, OwnedFd), MachineError> {
        let Made { udp, tcp, end } = make(setup.machine.is_guest())?;
        let user = unprivileged_user().map(|id| RightsOfUser { id, ..RightsOfUser::default() });
        let server = Child::spawn(Start {
            command: ["/proc/self/exe", "agent", "echo"].map(str::to_owned).to_vec(),
            stdin: Some(udp),
            descriptors: vec![tcp],
            log: &setup.log.join("echo.log"),
            supervision: Supervision {
                rights: Some(Rights { user, no_set_uid: true }),
                removed: vec![setup.scratch.folder().to_path_buf()],
                ..Supervision::default()
            },
        })?;
        let network = MachineNetwork { server };
        let deadline = Instant::now() + START_TIMEOUT;
        while network.threads().len() < THREADS {
            if Instant::now() > deadline {
                let log = setup.log.join("echo.log");
                return Err(MachineError::NoNetwork(format!("the echo server does not start: see {}", log.display())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok((network, end))
    }

    /// The threads of the echo server.
    pub fn threads(&self) -> Vec<QemuThread> {
        let session = self.server.session();
        let of_server = processes().filter(|process| process.session == session && process.pid != session);
        let threads = of_server.flat_map(|process| thread_names(process.pid));
        threads.map(|(tid, _)| QemuThread { tid, role: Role::Other("echo server".to_owned()) }).collect()
    }
}
