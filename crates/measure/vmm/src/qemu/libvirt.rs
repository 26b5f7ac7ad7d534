//! QEMU's monitor through libvirt, which passes its socket to QEMU as a descriptor and keeps the only connection: by
//! `virsh qemu-monitor-command`, for which libvirt marks the domain as tainted (`custom-monitor`) in its log. A libvirt library
//! cannot be linked into a static program. And what libvirt itself tells, which taints nothing: `virsh dumpxml`, `virsh domstats`.

use super::arguments::path_of;
use super::conversation::returned;
use crate::VmmError;
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
use vmtax_model::{
    CounterMap, CounterSource, DiskCounters, Managed, Manager, RequestCounters, RunState,
    without_secrets,
};
use vmtax_observe::own_tids;

/// The daemons' sockets below their folder: of the QEMU driver's own daemon, of the one for all drivers.
const SOCKETS: [&str; 2] = ["virtqemud-sock", "libvirt-sock"];
/// The folder of those of the system, and of those in a pod.
const FOLDER: &str = "/run/libvirt";
/// URIs of libvirt's driver.
const SYSTEM: &str = "qemu+unix:///system";
const SESSION: &str = "qemu+unix:///session";
/// Of `virsh dumpxml`, which asks the daemon alone.
const XML_TIMEOUT: Duration = Duration::from_secs(10);
/// More lines that virsh prints on standard error are not passed on.
const MAX_MESSAGES: usize = 3;
/// The descriptor at which virsh finds the socket.
const SOCKET: i32 = 3;

/// A daemon, by its socket, whose path is another one for each process that sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonId {
    device: u64,
    inode: u64,
}

/// A domain of a libvirt daemon that runs here or in the VM's container.
#[derive(Debug)]
pub(crate) struct Domain {
    uuid: String,
    virsh: PathBuf,
    /// URI of libvirt's driver.
    driver: &'static str,
    socket: PathBuf,
    daemon: DaemonId,
    /// User who runs the daemon.
    user: u32,
    /// Group of that user.
    group: u32,
}

impl Domain {
    /// The domain of a process.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] without virsh or a daemon's socket that this user may use.
    pub fn find(pid: i32, managed: &Managed) -> Result<Domain, VmmError> {
        let error = VmmError::Monitor;
        let id = &managed.id;
        // It becomes an argument of virsh.
        let is_uuid = id.len() == 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !is_uuid || id.starts_with('-') {
            return Err(error(format!(
                "libvirt has no domain with the UUID \"{id}\""
            )));
        }
        let virsh = find_program("virsh")
            .ok_or_else(|| error("libvirt uses it, and virsh is not installed".into()))?;
        let of_vm = std::fs::metadata(format!("/proc/{pid}")).map_err(|e| error(e.to_string()))?;
        let (driver, folder) = match managed.manager {
            Manager::Libvirt => (SYSTEM, FOLDER.to_owned()),
            Manager::KubeVirt => (SESSION, FOLDER.to_owned()),
            _ => (SESSION, format!("/run/user/{}/libvirt", of_vm.uid())),
        };
        let (user, group) = match driver {
            SYSTEM => (0, 0),
            _ => (of_vm.uid(), of_vm.gid()),
        };
        // As the VM sees the folder, so that the daemon of a container is found; else as this program does.
        let folders = [path_of(pid, Path::new(&folder)), PathBuf::from(&folder)];
        let (socket, daemon) = socket_of(&folders, user).ok_or_else(|| {
            error(format!(
                "libvirt uses it, and its socket is not in {folder}"
            ))
        })?;
        Ok(Domain {
            uuid: id.clone(),
            virsh,
            driver,
            socket,
            daemon,
            user,
            group,
        })
    }

    /// Checks that the process is the domain's, by the daemon's file of its PID. Asks nothing of QEMU, so taints
    /// nothing.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] with what virsh printed, or that it is another process.
    pub fn check(&self, pid: i32, timeout: Duration) -> Result<(), VmmError> {
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
    /// [`VmmError::Monitor`] with what virsh printed.
    pub fn all_stats(&self, timeout: Duration) -> Result<BTreeMap<String, DomainStats>, VmmError> {
        let words = [
            "domstats",
            "--list-active",
            "--nowait",
            "--state",
            "--balloon",
            "--block",
        ];
        Ok(domain_stats(&self.virsh(&words, timeout)?.answer))
    }

    /// Executes a command of QEMU's monitor and returns its result.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] with what virsh printed, or why QEMU refused; [`VmmError::MonitorTimeout`].
    pub fn execute(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, VmmError> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let printed = self.run(
            &["qemu-monitor-command", &self.uuid, "--cmd", &request],
            timeout,
        )?;
        // libvirt waits for QEMU without a limit of its own.
        let timed_out = || VmmError::MonitorTimeout {
            seconds: timeout.as_secs_f64(),
            has_client: false,
        };
        printed.ok_or_else(timed_out)?.returned(command, "QEMU")
    }

    /// Executes a command of the guest's agent and returns its result.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] with what virsh printed, or why the agent refused.
    pub fn ask_agent(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, VmmError> {
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

    /// The domain's XML as it runs; `--inactive`: as it is stored.
    fn xml(&self, options: &[&str]) -> Result<String, VmmError> {
        let words = [&["dumpxml"][..], options, &[self.uuid.as_str()]].concat();
        Ok(self.virsh(&words, XML_TIMEOUT)?.answer)
    }

    /// Runs virsh, which must end within `timeout`.
    fn virsh(&self, arguments: &[&str], timeout: Duration) -> Result<Printed, VmmError> {
        let late = || {
            format!(
                "{}: no answer within {} s",
                self.virsh.display(),
                timeout.as_secs_f64()
            )
        };
        self.run(arguments, timeout)?
            .ok_or_else(|| VmmError::Monitor(late()))
    }

    /// Runs virsh as the daemon's user: it reads what the daemon sends. `None` where it takes longer than `timeout`.
    fn run(&self, arguments: &[&str], timeout: Duration) -> Result<Option<Printed>, VmmError> {
        let error = |why: String| VmmError::Monitor(format!("{}: {why}", self.virsh.display()));
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
            command.gid(self.group).uid(self.user);
        }
        let mapping = FdMapping {
            parent_fd: socket,
            child_fd: SOCKET,
        };
        command
            .fd_mappings(vec![mapping])
            .map_err(|e| error(e.to_string()))?;
        let output = ask_streams(command, timeout).map_err(|e| error(e.to_string()))?;
        let printed = |output: Output| {
            let messages = messages(&output.stderr);
            let printed = Printed {
                answer: without_secrets(&output.stdout).into_owned(),
                messages,
            };
            match output.success {
                true => Ok(printed),
                false => Err(printed.error(&format!("virsh {} failed", arguments[0]))),
            }
        };
        output.map(printed).transpose()
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
    fn returned(&self, command: &str, of: &str) -> Result<Value, VmmError> {
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
    fn error(&self, what: &str) -> VmmError {
        let said = if self.messages.is_empty() {
            String::new()
        } else {
            format!("; virsh printed: {}", self.messages)
        };
        VmmError::Monitor(format!("{what}{said}"))
    }
}

/// The first lines of virsh's standard error, as one line.
fn messages(stderr: &str) -> String {
    let stderr = without_secrets(stderr);
    let lines = stderr
        .lines()
        .map(|line| line.strip_prefix("error: ").unwrap_or(line).trim());
    lines
        .filter(|line| !line.is_empty())
        .take(MAX_MESSAGES)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The XML of the domain of a process, as it runs, and as it is stored, which it starts with next; the former for one that is not
/// stored. Taints nothing.
///
/// # Errors
/// [`VmmError::Monitor`] with what virsh printed.
pub fn domain_xml_of(pid: i32, managed: &Managed) -> Result<(String, String), VmmError> {
    let domain = Domain::find(pid, managed)?;
    let running = domain.xml(&[])?;
    let stored = domain
        .xml(&["--inactive"])
        .unwrap_or_else(|_| running.clone());
    Ok((running, stored))
}

/// The XML of the domain of a process, as it runs. Taints nothing.
///
/// # Errors
/// [`VmmError::Monitor`] with what virsh printed.
pub(crate) fn running_domain_xml(pid: i32, managed: &Managed) -> Result<String, VmmError> {
    Domain::find(pid, managed)?.xml(&[])
}

/// The XML of a domain of the system's daemon that need not run, by its name or UUID.
///
/// # Errors
/// [`VmmError::Monitor`] without virsh or a daemon, or with what virsh printed.
pub fn domain_xml(name: &str) -> Result<String, VmmError> {
    let error = |why: &str| VmmError::Monitor(why.to_owned());
    if name.is_empty() || name.starts_with('-') || name.chars().any(char::is_control) {
        return Err(error("no domain has such a name"));
    }
    let virsh = find_program("virsh").ok_or_else(|| error("virsh is not installed"))?;
    let (socket, daemon) =
        socket_of(&[FOLDER.into()], 0).ok_or_else(|| error("no daemon of it runs"))?;
    let domain = Domain {
        uuid: name.to_owned(),
        virsh,
        driver: SYSTEM,
        socket,
        daemon,
        user: 0,
        group: 0,
    };
    domain.xml(&["--inactive"])
}

/// The first socket of a daemon in these folders that belongs to a user, with the daemon.
fn socket_of(folders: &[PathBuf], user: u32) -> Option<(PathBuf, DaemonId)> {
    let mut sockets = folders
        .iter()
        .flat_map(|folder| SOCKETS.map(|name| folder.join(name)));
    sockets.find_map(|path| {
        let data = path.metadata().ok().filter(|data| data.uid() == user)?;
        let daemon = DaemonId {
            device: data.dev(),
            inode: data.ino(),
        };
        Some((path, daemon))
    })
}

/// More disks of a domain are not read.
const MAX_DISKS: usize = 256;

/// A domain's answers, and the files of its disks by the disks' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DomainStats {
    /// Answers that a monitor would give, as far as libvirt has them.
    pub answers: Answers,
    /// Path of each disk's file, by the disk's name.
    pub files: BTreeMap<String, String>,
}

/// The domains by their names.
pub(crate) fn domain_stats(text: &str) -> BTreeMap<String, DomainStats> {
    let mut domains = BTreeMap::new();
    for part in text.split("Domain: '").skip(1) {
        let Some((name, fields)) = part.split_once("'\n") else {
            continue;
        };
        let fields: BTreeMap<&str, &str> = fields
            .lines()
            .filter_map(|line| line.trim_start().split_once('='))
            .collect();
        domains.insert(name.to_owned(), stats_of_domain(&fields));
    }
    domains
}

fn stats_of_domain(fields: &BTreeMap<&str, &str>) -> DomainStats {
    let number = |key: &str| fields.get(key)?.parse::<u64>().ok();
    let mut stats = DomainStats::default();
    stats.answers.state =
        number("state.state").map(|state| run_state(state, number("state.reason").unwrap_or(0)));
    let balloon = number("balloon.current").and_then(|kib| kib.checked_mul(1024));
    stats.answers.counters = CounterMap::of(CounterSource::Balloon, balloon);
    let count = number("block.count")
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0);
    for at in 0..count.min(MAX_DISKS) {
        let text = |what: &str| {
            fields
                .get(format!("block.{at}.{what}").as_str())
                .map(|text| (*text).to_owned())
        };
        let disk_number = |what: &str| number(&format!("block.{at}.{what}"));
        let Some(name) = text("name") else { continue };
        // A drive without a medium has no counters.
        let requests = disk_number("rd.reqs").map(|_| {
            ["rd", "wr", "fl"].map(|kind| RequestCounters {
                count: disk_number(&format!("{kind}.reqs")).unwrap_or(0),
                bytes: disk_number(&format!("{kind}.bytes")).unwrap_or(0),
                total_ns: disk_number(&format!("{kind}.times")).unwrap_or(0),
            })
        });
        stats
            .files
            .extend(text("path").map(|path| (name.clone(), path)));
        stats.answers.disks.push(DiskCounters {
            name,
            qemu: requests,
            ..DiskCounters::default()
        });
    }
    stats
}

/// libvirt's `virDomainState` and `virDomainPausedReason`.
fn run_state(state: u64, reason: u64) -> RunState {
    let why = match (state, reason) {
        (1 | 2, _) => return RunState::Running,
        (3, 2) => "migrating",
        (3, 5) => "io-error",
        (3, 6) => "watchdog",
        // As QEMU has it: a device of the guest reported the panic.
        (3, 10) | (6, 1) => "guest-panicked",
        // As virsh has it: not by the user, nor for a migration, a snapshot or the like. QEMU's "internal-error" is one.
        (3, 0) => "paused (unknown)",
        (3, _) => "paused",
        (4, _) => "shutdown",
        (5, _) => "shut off",
        (6, _) => "crashed",
        (7, _) => "suspended",
        _ => "unknown",
    };
    RunState::Stopped(why.to_owned())
}

/// Returns the number of domains and disks in a text of `virsh domstats`, for fuzzing.
pub fn read_domain_stats(text: &str) -> usize {
    domain_stats(text)
        .values()
        .map(|domain| 1 + domain.answers.disks.len())
        .sum()
}

/// Answers of a monitor, or of libvirt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// State of the guest.
    pub state: Option<RunState>,
    /// Counters of the disks.
    pub disks: Vec<DiskCounters>,
    /// Counters of the VM.
    pub counters: CounterMap<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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
        let daemon = DaemonId {
            device: 0,
            inode: 0,
        };
        Domain {
            uuid: UUID.to_owned(),
            virsh,
            driver: SYSTEM,
            socket,
            daemon,
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
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

    const TWO: &str = "Domain: 'a b'\n  state.state=1\n  state.reason=1\n  balloon.current=65536\n  block.count=2\n  \
                       block.0.name=vda\n  block.0.path=/var/a=b.raw\n  block.0.rd.reqs=7\n  block.0.rd.bytes=4096\n  \
                       block.0.rd.times=900\n  block.0.fl.reqs=2\n  block.0.fl.times=30\n  block.1.name=sda\n\n\
                       Domain: 'c'\n  state.state=3\n  state.reason=5\n\n";

    #[test]
    fn domains_have_their_disks_with_files_and_counters() {
        let domains = domain_stats(TWO);
        let DomainStats { answers, files } = &domains["a b"];
        assert_eq!(
            (&answers.state, &answers.counters),
            (
                &Some(RunState::Running),
                &[("balloon", 64 << 20)].into_iter().collect()
            )
        );
        let [reads, writes, flushes] = answers.disks[0].qemu.unwrap();
        assert_eq!((reads.count, reads.bytes, reads.total_ns), (7, 4096, 900));
        assert_eq!((writes.count, flushes.count, flushes.total_ns), (0, 2, 30));
        assert_eq!(
            (answers.disks.len(), answers.disks[1].qemu),
            (2, None),
            "no medium"
        );
        assert_eq!(files["vda"], "/var/a=b.raw");
        assert_eq!(
            domains["c"].answers.state,
            Some(RunState::Stopped("io-error".to_owned()))
        );
        let panicked = Some(RunState::Stopped("guest-panicked".to_owned()));
        assert_eq!(
            (Some(run_state(3, 10)), Some(run_state(6, 1))),
            (panicked.clone(), panicked)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(lines in proptest::collection::vec("(Domain: '|block\\.|count=|[0-9]{1,20}|rd\\.reqs=|.{0,9}|\n)", 0..60)) {
            read_domain_stats(&lines.concat());
        }
    }
}
