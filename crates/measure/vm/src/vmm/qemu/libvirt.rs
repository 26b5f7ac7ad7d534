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
use vmtax_host::{Output, ask_streams, find_program};
use vmtax_model::{Managed, Manager};
use vmtax_observe::own_tids;

/// The daemons' sockets below their folder: of the QEMU driver's own daemon, of the one for all drivers.
const SOCKETS: [&str; 2] = ["virtqemud-sock", "libvirt-sock"];
/// Of `virsh dumpxml`, which asks the daemon alone.
const XML_TIMEOUT: Duration = Duration::from_secs(10);
/// More lines that virsh prints on standard error are not passed on.
const MAX_MESSAGES: usize = 3;
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
    /// URI of libvirt's driver: `qemu+unix:///system`, `qemu+unix:///session`.
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
        let is_uuid = managed.id.len() == 36
            && managed
                .id
                .bytes()
                .all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !is_uuid || managed.id.starts_with('-') {
            return Err(error(format!(
                "libvirt has no domain with the UUID \"{}\"",
                managed.id
            )));
        }
        let virsh = find_program("virsh")
            .ok_or_else(|| error("libvirt uses it, and virsh is not installed".into()))?;
        let of_vm = std::fs::metadata(format!("/proc/{pid}")).map_err(|e| error(e.to_string()))?;
        let (driver, folder, owner) = match managed.manager {
            Manager::Libvirt => ("qemu+unix:///system", "/run/libvirt".to_owned(), (0, 0)),
            Manager::KubeVirt => (
                "qemu+unix:///session",
                "/run/libvirt".to_owned(),
                (of_vm.uid(), of_vm.gid()),
            ),
            _ => {
                let folder = format!("/run/user/{}/libvirt", of_vm.uid());
                ("qemu+unix:///session", folder, (of_vm.uid(), of_vm.gid()))
            }
        };
        // As the VM sees the folder, so that the daemon of a container is found; else as this program does.
        let folders = [path_of(pid, Path::new(&folder)), PathBuf::from(&folder)];
        let mut sockets = folders
            .iter()
            .flat_map(|folder| SOCKETS.map(|name| folder.join(name)));
        let (socket, data) = sockets
            .find_map(|path| {
                path.metadata()
                    .ok()
                    .filter(|data| data.uid() == owner.0)
                    .map(|data| (path, data))
            })
            .ok_or_else(|| {
                error(format!(
                    "libvirt uses it, and its socket is not in {folder}"
                ))
            })?;
        let daemon = DaemonId {
            device: data.dev(),
            inode: data.ino(),
        };
        Ok(Domain {
            uuid: managed.id.clone(),
            virsh,
            driver,
            socket,
            daemon,
            owner,
        })
    }

    /// Checks that the process is the domain's, by the daemon's file of its PID. Asks nothing of QEMU, so taints
    /// nothing.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or that it is another process.
    pub fn check(&self, pid: i32, timeout: Duration) -> Result<(), MachineError> {
        let printed = self.virsh(&["domname", &self.uuid], timeout)?;
        let name = printed.answer.trim();
        let file = format!("{}.pid", name.replace('/', ""));
        let folder = self.socket.parent().unwrap_or(Path::new("/"));
        let files = ["qemu", "qemu/run"].map(|below| folder.join(below).join(&file));
        let known = files
            .iter()
            .find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
        // The daemon counts as its PID namespace does.
        if known.is_some_and(|known: i32| own_tids(pid).get(&known) == Some(&pid)) {
            return Ok(());
        }
        Err(printed.error(&format!("libvirt's domain {name} is another process")))
    }

    /// Returns the daemon that has the domain.
    pub fn daemon(&self) -> DaemonId {
        self.daemon
    }

    /// Returns the daemon's statistics of all its running domains, by their names. Taints nothing; a domain whose QEMU
    /// does not answer has fewer figures.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed.
    pub fn all_stats(
        &self,
        timeout: Duration,
    ) -> Result<BTreeMap<String, DomainStats>, MachineError> {
        let words = [
            "domstats",
            "--list-active",
            "--nowait",
            "--state",
            "--balloon",
            "--block",
        ];
        Ok(parse(&self.virsh(&words, timeout)?.answer))
    }

    /// Executes a command of QEMU's monitor and returns its result.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or why QEMU refused; [`MachineError::MonitorTimeout`].
    pub fn execute(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, MachineError> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let printed = self.run(
            &["qemu-monitor-command", &self.uuid, "--cmd", &request],
            timeout,
        )?;
        // libvirt waits for QEMU without a limit of its own.
        let timed_out = || MachineError::MonitorTimeout {
            seconds: timeout.as_secs_f64(),
            has_client: false,
        };
        printed.ok_or_else(timed_out)?.returned(command, "QEMU")
    }

    /// Executes a command of the guest's agent and returns its result.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] with what virsh printed, or why the agent refused.
    pub fn ask_agent(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, MachineError> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let seconds = timeout.as_secs().max(1).to_string();
        let words = [
            "qemu-agent-command",
            &self.uuid,
            "--timeout",
            &seconds,
            "--cmd",
            &request,
        ];
        self.virsh(&words, timeout + timeout)?
            .returned(command, "the guest's agent")
    }

    /// The domain's XML as it runs, and as it is stored, which it starts with next; the former for one that is not stored.
    fn xml(&self) -> Result<(String, String), MachineError> {
        let running = self.virsh(&["dumpxml", &self.uuid], XML_TIMEOUT)?.answer;
        let stored = self.virsh(&["dumpxml", "--inactive", &self.uuid], XML_TIMEOUT);
        let stored = stored.map_or_else(|_| running.clone(), |printed| printed.answer);
        Ok((running, stored))
    }

    /// Runs virsh, which must end within `timeout`.
    fn virsh(&self, arguments: &[&str], timeout: Duration) -> Result<Printed, MachineError> {
        let late = || {
            format!(
                "{}: no answer within {} s",
                self.virsh.display(),
                timeout.as_secs_f64()
            )
        };
        self.run(arguments, timeout)?
            .ok_or_else(|| MachineError::Monitor(late()))
    }

    /// Runs virsh as the daemon's user: it reads what the daemon sends. `None` where it takes longer than `timeout`.
    fn run(&self, arguments: &[&str], timeout: Duration) -> Result<Option<Printed>, MachineError> {
        let error = |why: String| MachineError::Monitor(format!("{}: {why}", self.virsh.display()));
        let socket: OwnedFd = open(&self.socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| error(e.to_string()))?;
        let mut command = Command::new(&self.virsh);
        let uri = format!("{}?socket=/proc/self/fd/{SOCKET}", self.driver);
        command
            .args(["-q", "-c", &uri])
            .args(arguments)
            .env_clear()
            .env("HOME", "/nonexistent");
        if rustix::process::geteuid().is_root() {
            command.gid(self.owner.1).uid(self.owner.0);
        }
        let mapping = vec![FdMapping {
            parent_fd: socket,
            child_fd: SOCKET,
        }];
        command
            .fd_mappings(mapping)
            .map_err(|e| error(e.to_string()))?;
        let output = ask_streams(command, timeout).map_err(|e| error(e.to_string()))?;
        let Some(Output {
            success,
            stdout,
            stderr,
        }) = output
        else {
            return Ok(None);
        };
        let printed = Printed {
            answer: stdout,
            messages: messages(&stderr),
        };
        if success {
            Ok(Some(printed))
        } else {
            Err(printed.error(&format!("virsh {} failed", arguments[0])))
        }
    }
}

/// Output of virsh.
#[derive(Debug)]
struct Printed {
    /// Standard output, the answer.
    answer: String,
    /// Messages on standard error: errors, and warnings beside an answer.
    messages: String,
}

impl Printed {
    /// The result that QEMU or the guest's agent returned, among the lines of the answer.
    fn returned(&self, command: &str, of: &str) -> Result<Value, MachineError> {
        let answer = self
            .answer
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line).ok());
        let none = || Err(self.error(&format!("{command}: virsh printed no answer of {of}")));
        answer
            .and_then(|answer| returned(command, answer))
            .unwrap_or_else(none)
    }

    /// An error, with the messages of virsh, which may say why.
    fn error(&self, what: &str) -> MachineError {
        let said = if self.messages.is_empty() {
            String::new()
        } else {
            format!("; virsh printed: {}", self.messages)
        };
        MachineError::Monitor(format!("{what}{said}"))
    }
}

/// The first lines of virsh's standard error, as one line.
fn messages(stderr: &str) -> String {
    let lines = stderr
        .lines()
        .map(|line| line.strip_prefix("error: ").unwrap_or(line).trim());
    lines
        .filter(|line| !line.is_empty())
        .take(MAX_MESSAGES)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The XML of the domain of a process, as it runs and as it is stored. Taints nothing.
///
/// # Errors
/// [`MachineError::Monitor`] with what virsh printed.
pub(crate) fn domain_xml_of(pid: i32, managed: &Managed) -> Result<(String, String), MachineError> {
    Domain::of(pid, managed)?.xml()
}

/// The XML of the domain of a process, as it runs. Taints nothing.
///
/// # Errors
/// [`MachineError::Monitor`] with what virsh printed.
pub(crate) fn running_domain_xml(pid: i32, managed: &Managed) -> Result<String, MachineError> {
    let domain = Domain::of(pid, managed)?;
    Ok(domain
        .virsh(&["dumpxml", &domain.uuid], XML_TIMEOUT)?
        .answer)
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
        .find_map(|path| {
            path.metadata()
                .ok()
                .filter(|data| data.uid() == 0)
                .map(|data| (path, data))
        })
        .ok_or_else(|| error("no daemon of it runs"))?;
    let daemon = DaemonId {
        device: data.dev(),
        inode: data.ino(),
    };
    let domain = Domain {
        uuid: name.to_owned(),
        virsh,
        driver,
        socket,
        daemon,
        owner: (0, 0),
    };
    Ok(domain
        .virsh(&["dumpxml", "--inactive", &domain.uuid], XML_TIMEOUT)?
        .answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const UUID: &str = "3a7c1e52-0000-4000-8000-000000000001";

    /// A domain that is asked by a program with this body in the place of virsh.
    fn domain(folder: &Path, body: &str) -> Domain {
        let virsh = folder.join("virsh");
        fs::write(&virsh, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&virsh, fs::Permissions::from_mode(0o755)).unwrap();
        let socket = folder.join("libvirt-sock");
        fs::write(&socket, "").unwrap();
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let daemon = DaemonId {
            device: 0,
            inode: 0,
        };
        Domain {
            uuid: UUID.to_owned(),
            virsh,
            driver: "qemu+unix:///system",
            socket,
            daemon,
            owner,
        }
    }

    /// The warning of virsh on a host without polkit where it has a terminal, after which it works.
    const NOISE: &str =
        "echo 'Authorization not available. Check if polkit service is running' >&2";
    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn messages_on_standard_error_are_no_part_of_an_answer() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id() as i32;
        fs::create_dir(folder.path().join("qemu")).unwrap();
        fs::write(folder.path().join("qemu/db01.pid"), own.to_string()).unwrap();
        let named = domain(folder.path(), &format!("{NOISE}; echo db01; {NOISE}"));
        named.check(own, TIMEOUT).unwrap();
        let of_qemu = domain(folder.path(), &format!("{NOISE}; echo '{{\"return\": 7}}'"));
        assert_eq!(of_qemu.execute("query-x", &json!({}), TIMEOUT).unwrap(), 7);
    }

    #[test]
    fn an_error_has_the_messages_of_virsh() {
        let folder = tempfile::tempdir().unwrap();
        let why = |body: &str| {
            let of = domain(folder.path(), &format!("{NOISE}; {body}"));
            of.check(std::process::id() as i32, TIMEOUT)
                .unwrap_err()
                .to_string()
        };
        let printed =
            "; virsh printed: Authorization not available. Check if polkit service is running";
        let other = why("echo db01");
        assert!(
            other.contains(&format!(
                "libvirt's domain db01 is another process{printed}"
            )),
            "{other}"
        );
        let failed = why("echo 'error: no such domain' >&2; exit 1");
        assert!(
            failed.contains(&format!("virsh domname failed{printed}; no such domain")),
            "{failed}"
        );
    }

    #[test]
    fn virsh_has_no_terminal_and_its_own_session() {
        let folder = tempfile::tempdir().unwrap();
        let body = "read -r line </proc/$$/stat; set -- $line; echo \"{\\\"return\\\": [$(($6 - $$)), $7]}\"";
        let session = domain(folder.path(), body)
            .execute("x", &json!({}), TIMEOUT)
            .unwrap();
        assert_eq!(session, json!([0, 0]));
    }
}
