//! QEMU's monitor through libvirt, which passes its socket to QEMU as a descriptor and keeps the only connection: by
//! `virsh qemu-monitor-command`, for which libvirt marks the domain as tainted (`custom-monitor`) in its log. A libvirt library
//! cannot be linked into a static program.

use super::arguments::path_of;
use super::conversation::returned;
use super::domain_stats::{DomainStats, parse};
use crate::MachineError;
use command_fds::{CommandFdExt, FdMapping};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vmtax_host::{ask_command, find_program};
use vmtax_model::{Managed, Manager};
use vmtax_observe::own_tids;

/// The daemons' sockets below their folder: of the QEMU driver's own daemon, of the one for all drivers.
const SOCKETS: [&str; 2] = ["virtqemud-sock", "libvirt-sock"];
/// Of `virsh dumpxml`, which asks the daemon alone.
const XML_TIMEOUT: Duration = Duration::from_secs(10);
/// The descriptor at which virsh finds the socket.
const SOCKET: i32 = 3;

/// A daemon, by its socket, whose path is another one for each process that sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DaemonId {
    device: u64,
    inode: u64,
}

/// A domain of a libvirt daemon that runs here or in the VM's container.
#[derive(Debug)]
pub(crate) struct Domain {
    uuid: String,
    virsh: PathBuf,
    /// `qemu+unix:///system`, `qemu+unix:///session`.
    driver: &'static str,
    socket: PathBuf,
    daemon: DaemonId,
    /// User and group of whoever runs the daemon.
    owner: (u32, u32),
}

impl Domain {
    /// The domain of a process.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] without virsh or a daemon's socket that this user may use.
    pub fn of(pid: i32, managed: &Managed) -> Result<Domain, MachineError> {
        let error = |why: String| MachineError::Monitor(why);
        // It becomes an argument of virsh.
        let is_uuid = managed.id.len() == 36 && managed.id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !is_uuid || managed.id.starts_with('-') {
            return Err(error(format!("libvirt has no domain with the UUID \"{}\"", managed.id)));
        }
        let virsh = find_program("virsh").ok_or_else(|| error("libvirt uses it, and virsh is not installed".into()))?;
        let of_vm = std::fs::metadata(format!("/proc/{pid}")).map_err(|e| error(e.to_string()))?;
        let (driver, folder, owner) = match managed.manager {
            Manager::Libvirt => ("qemu+unix:///system", "/run/libvirt".to_owned(), (0, 0)),
            Manager::KubeVirt => ("qemu+unix:///session", "/run/libvirt".to_owned(), (of_vm.uid(), of_vm.gid())),
            _ => {
                let folder = format!("/run/user/{}/libvirt", of_vm.uid());
                ("qemu+unix:///session", folder, (of_vm.uid(), of_vm.gid()))
            }
        };
        // As the VM sees the folder, so that the daemon of a container is found; else as this program does.
        let folders = [path_of(pid, Path::new(&folder)), PathBuf::from(&folder)];
        let mut sockets = folders.iter().flat_map(|folder| SOCKETS.map(|name| folder.join(name)));
        let (socket, data) = sockets
            .find_map(|path| path.metadata().ok().filter(|data| data.uid() == owner.0).map(|data| (path, data)))
            .ok_or_else(|| error(format!("libvirt uses it, and its socket is not in {folder}")))?;
        let daemon = DaemonId { device: data.dev(), inode: data.ino() };
        Ok(Domain { uuid: managed.id.clone(), virsh, driver, socket, daemon, owner })
    }

    /// Whether the process is that of the domain, by the daemon's file of its PID. Asks nothing of QEMU, so taints nothing.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or that it is another process.
    pub fn check(&self, pid: i32, timeout: Duration) -> Result<(), MachineError> {
        let text = self.virsh(&["domname", &self.uuid], timeout)?;
        let file = format!("{}.pid", text.trim().replace('/', ""));
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        let files = ["qemu", "qemu/run"].map(|below| folder.join(below).join(&file));
        let known = files.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
        // The daemon counts as its PID namespace does.
        if known.is_some_and(|known: i32| own_tids(pid).get(&known) == Some(&pid)) {
            return Ok(());
        }
        Err(MachineError::Monitor(format!("libvirt's domain {} is another process", text.trim())))
    }

    /// Its daemon.
    pub fn daemon(&self) -> DaemonId {
        self.daemon
    }

    /// What the daemon says of all its running domains, by their names. Taints nothing; a domain whose QEMU does not answer has
    /// fewer figures.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed.
    pub fn all_stats(&self, timeout: Duration) -> Result<BTreeMap<String, DomainStats>, MachineError> {
        let words = ["domstats", "--list-active", "--nowait", "--state", "--balloon", "--block"];
        Ok(parse(&self.virsh(&words, timeout)?))
    }

    /// Executes a command of QEMU's monitor and returns its result.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or why QEMU refused.
    pub fn execute(&self, command: &str, arguments: &Value, timeout: Duration) -> Result<Value, MachineError> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let text = self.virsh(&["qemu-monitor-command", &self.uuid, "--cmd", &request], timeout)?;
        printed(command, &text, "QEMU")
    }

    /// Executes a command of the guest's agent and returns its result.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or why the agent refused.
    pub fn ask_agent(&self, command: &str, arguments: &Value, timeout: Duration) -> Result<Value, MachineError> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let seconds = timeout.as_secs().max(1).to_string();
        let words = ["qemu-agent-command", &self.uuid, "--timeout", &seconds, "--cmd", &request];
        printed(command, &self.virsh(&words, timeout + timeout)?, "the guest's agent")
    }

    /// The domain's XML as it runs, and as it is stored, which it starts with next; the former for one that is not stored.
    fn xml(&self) -> Result<(String, String), MachineError> {
        let running = self.virsh(&["dumpxml", &self.uuid], XML_TIMEOUT)?;
        let stored =
            self.virsh(&["dumpxml", "--inactive", &self.uuid], XML_TIMEOUT).unwrap_or_else(|_| running.clone());
        Ok((running, stored))
    }

    /// What virsh prints, run as the daemon's user: it reads what the daemon sends.
    fn virsh(&self, arguments: &[&str], timeout: Duration) -> Result<String, MachineError> {
        let error = |why: String| MachineError::Monitor(format!("{}: {why}", self.virsh.display()));
        let socket: OwnedFd =
            open(&self.socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| error(e.to_string()))?;
        let mut command = Command::new(&self.virsh);
        let uri = format!("{}?socket=/proc/self/fd/{SOCKET}", self.driver);
        command.args(["-q", "-c", &uri]).args(arguments).env_clear().env("HOME", "/nonexistent");
        if rustix::process::geteuid().is_root() {
            command.gid(self.owner.1).uid(self.owner.0);
        }
        let mapping = vec![FdMapping { parent_fd: socket, child_fd: SOCKET }];
        command.fd_mappings(mapping).map_err(|e| error(e.to_string()))?;
        match ask_command(command, timeout).map_err(|e| error(e.to_string()))? {
            Some(answer) if answer.success => Ok(answer.text),
            Some(answer) => {
                let said = answer.text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("failed");
                Err(error(said.to_owned()))
            }
            None => Err(error(format!("no answer within {} s", timeout.as_secs()))),
        }
    }
}

/// The XML of the domain of a process, as it runs and as it is stored. Taints nothing.
///
/// # Errors
/// [`MachineError::Monitor`] with what virsh printed.
pub(crate) fn domain_xml_of(pid: i32, managed: &Managed) -> Result<(String, String), MachineError> {
    Domain::of(pid, managed)?.xml()
}

/// The XML of a domain of the system's daemon that need not run, by its name or UUID.
///
/// # Errors
/// [`MachineError::Monitor`] without virsh or a daemon, or with what virsh printed.
pub(crate) fn domain_xml(name: &str) -> Result<String, MachineError> {
    let error = |why: &str| MachineError::Monitor(why.to_owned());
    if name.is_empty() || name.starts_with('-') || name.chars().any(char::is_control) {
        return Err(error("no domain has such a name"));
    }
    let virsh = find_program("virsh").ok_or_else(|| error("virsh is not installed"))?;
    let driver = "qemu+unix:///system";
    let (socket, data) = SOCKETS
        .iter()
        .map(|name| Path::new("/run/libvirt").join(name))
        .find_map(|path| path.metadata().ok().filter(|data| data.uid() == 0).map(|data| (path, data)))
        .ok_or_else(|| error("no daemon of it runs"))?;
    let daemon = DaemonId { device: data.dev(), inode: data.ino() };
    let domain = Domain { uuid: name.to_owned(), virsh, driver, socket, daemon, owner: (0, 0) };
    domain.virsh(&["dumpxml", "--inactive", &domain.uuid], XML_TIMEOUT)
}

/// What QEMU or the guest's agent returned, among the lines that virsh printed.
fn printed(command: &str, text: &str, of: &str) -> Result<Value, MachineError> {
    let answer = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let none = || Err(MachineError::Monitor(format!("{command}: virsh printed no answer of {of}")));
    answer.and_then(|answer| returned(command, answer)).unwrap_or_else(none)
}
