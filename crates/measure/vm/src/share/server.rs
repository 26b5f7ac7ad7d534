//! The server behind a share: a fresh one for each machine, under the watchdog.

use super::server_commands::{self, ServerEndpoint, listens};
use super::{Sharing, programs};
use crate::MachineError;
use crate::process::child::{Child, Start};
use crate::process::log::log_tail;
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::setup::Setup;
use rustix::fd::OwnedFd;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_model::{ShareMethod, shell_line};

/// A server that ended closed its streams before; its process is gone within moments.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a server.
#[derive(Debug)]
pub(crate) enum ServerAddress {
    /// By this stream, which QEMU gets.
    Stream(OwnedFd),
    /// At ports of the loopback address, in the network of a process.
    Ports {
        /// Ports of NFS, and of the MOUNT protocol, which lists exports.
        ports: [u16; 2],
        /// PID of that process.
        of: i32,
    },
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    pub command: Vec<String>,
    method: ShareMethod,
    log: PathBuf,
    is_jailed: bool,
    child: Child,
}

impl Server {
    /// Starts what the share needs besides QEMU: a server, a copy of an image. `None` without a server.
    pub fn start(
        sharing: &Sharing,
        setup: &Setup<'_>,
    ) -> Result<Option<(Server, ServerAddress)>, MachineError> {
        let method = sharing.share.method;
        programs::check_rights(&sharing.share)?;
        if let Some(copy) = &sharing.copy {
            programs::copy(&sharing.source, copy)?;
        }
        let Some(program) = &sharing.server else {
            return Ok(None);
        };
        let serving = match method {
            ShareMethod::Virtiofs => {
                server_commands::virtiofsd(sharing, program, setup.scratch.folder())?
            }
            _ => server_commands::ganesha(sharing, program, setup)?,
        };
        let log = setup.log.join("server.log");
        let saved = setup.log.join("server.command");
        fs::write(&saved, shell_line(&serving.command) + "\n")
            .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))?;
        let is_jailed = sharing.jail.is_some();
        let child = Child::spawn(Start {
            command: [serving.jail, serving.command.clone()].concat(),
            stdin: None,
            descriptors: serving.descriptors,
            log: &log,
            supervision: Supervision {
                namespaces: Namespaces {
                    read_only: (sharing.users && !is_jailed).then(|| sharing.source.clone()),
                    root: sharing.root(),
                    as_root: serving.as_root,
                    own_network: matches!(serving.endpoint, ServerEndpoint::Ports(_)),
                    ..Namespaces::default()
                },
                removed: vec![setup.scratch.folder().to_path_buf()],
                ..Supervision::default()
            },
        })?;
        let mut server = Server {
            command: serving.command,
            method,
            log,
            is_jailed,
            child,
        };
        let address = server.address(serving.endpoint, setup.guest.boot_timeout())?;
        Ok(Some((server, address)))
    }

    /// Returns the server's address, once it listens there.
    fn address(
        &mut self,
        endpoint: ServerEndpoint,
        timeout: Duration,
    ) -> Result<ServerAddress, MachineError> {
        match endpoint {
            ServerEndpoint::Stream(stream) => Ok(ServerAddress::Stream(stream)),
            ServerEndpoint::Ports(ports) => {
                let of = self.session();
                match listens(ports[0], of, timeout, || self.status().is_some()) {
                    true => Ok(ServerAddress::Ports { ports, of }),
                    false => Err(self.ended("starting")),
                }
            }
        }
    }

    /// Returns a descriptor that becomes readable when the server has ended; see [`Child::ended`].
    pub fn watch(&self) -> Result<OwnedFd, MachineError> {
        self.child.ended()
    }

    /// Returns true if the server has a root of its own, with the tree in it.
    pub fn is_jailed(&self) -> bool {
        self.is_jailed
    }

    /// Returns the session of the server; see [`Child::session`].
    pub fn session(&self) -> i32 {
        self.child.session()
    }

    /// Returns the server's exit status, once it has ended.
    pub fn status(&mut self) -> Option<i32> {
        self.child.wait(Duration::ZERO)
    }

    /// The error of a server that ended.
    pub fn ended(&mut self, doing: &str) -> MachineError {
        let status = self.child.wait(CLOSE_TIMEOUT).unwrap_or(-1);
        let name = self
            .command
            .first()
            .map(Path::new)
            .and_then(Path::file_name)
            .unwrap_or_default();
        MachineError::ServerEnded {
            method: self.method,
            what: format!("{} ended while {doing}", name.to_string_lossy()),
            status,
            said: log_tail(&self.log),
            log: self.log.clone(),
        }
    }
}
