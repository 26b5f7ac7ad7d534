//! Finds the monitor of a QEMU that another program started: through libvirt, or a QMP socket in its command line.

use super::arguments::{Arguments, path_of};
use super::libvirt::Domain;
use super::manager;
use super::monitor::Monitor;
use super::shared_socket::SharedSocket;
use crate::MachineError;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_model::Manager;

/// A QMP socket that has a client accepts the connection but sends no greeting. Also how long a command may take.
pub(crate) const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);

/// The monitor of a process: libvirt's connection where libvirt started it, else the first QMP socket of its command line
/// that answers.
///
/// # Errors
/// [`MachineError::Monitor`] where there is none, [`MachineError::MonitorTimeout`] where it does not answer.
pub(crate) fn monitor(pid: i32) -> Result<Monitor, MachineError> {
    let arguments = Arguments::of(pid);
    if let Some(managed) =
        manager::of(pid, &arguments).filter(|managed| managed.manager.is_libvirt())
    {
        let domain = Domain::of(pid, &managed)?;
        domain.check(pid, ATTACH_TIMEOUT)?;
        return Ok(Monitor::of_domain(domain, ATTACH_TIMEOUT));
    }
    let mut failed = MachineError::Monitor("QEMU's command line has no QMP socket".to_owned());
    for path in sockets(&arguments) {
        let socket = SharedSocket {
            path: path_of(pid, &path),
            pid,
        };
        match socket.connect(ATTACH_TIMEOUT) {
            Ok(_) => return Ok(Monitor::shared(socket, ATTACH_TIMEOUT)),
            Err(MachineError::Monitor(why)) => {
                failed = MachineError::Monitor(format!("{}: {why}", path.display()));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns advice on how to get a monitor for a process that has none that answers.
pub(crate) fn advice(manager: Option<Manager>) -> &'static str {
    match manager {
        Some(Manager::Libvirt) => {
            "install virsh (Debian: libvirt-clients) and run vmtax as root or as a member of the group libvirt"
        }
        Some(Manager::LibvirtSession) => {
            "install virsh (Debian: libvirt-clients) and run vmtax as the VM's user or as root"
        }
        Some(Manager::KubeVirt) => {
            "install virsh (Debian: libvirt-clients) on the node and run vmtax as root"
        }
        Some(Manager::Proxmox) => "run vmtax as root",
        None => {
            "start QEMU with a QMP socket that no other program uses (-qmp unix:/run/NAME.qmp,server=on,wait=off)"
        }
    }
}

/// The Unix sockets of QMP monitors that a command line names: `-qmp unix:PATH,…`, or `-chardev socket,id=ID,path=PATH` with
/// `-mon chardev=ID,mode=control` or, since QEMU 11.1, `-object monitor-qmp,chardev=ID`.
pub(super) fn sockets(arguments: &Arguments) -> Vec<PathBuf> {
    let qmp = ["qmp", "qmp-pretty"]
        .into_iter()
        .flat_map(|option| arguments.properties(option));
    let mut paths: Vec<PathBuf> = qmp
        .filter_map(|qmp| Some(PathBuf::from(qmp.first("unix")?.strip_prefix("unix:")?)))
        .collect();
    let sockets = arguments
        .properties("chardev")
        .filter(|c| c.first("backend") == Some("socket"));
    let ids: BTreeMap<String, PathBuf> = sockets
        .filter_map(|c| Some((c.get("id")?.to_owned(), c.get("path")?.into())))
        .collect();
    let control = arguments
        .properties("mon")
        .filter(|mon| mon.get("mode") == Some("control"));
    paths.extend(control.filter_map(|mon| ids.get(mon.first("chardev")?).cloned()));
    let objects = arguments
        .properties("object")
        .filter(|object| object.first("qom-type") == Some("monitor-qmp"));
    paths.extend(objects.filter_map(|object| ids.get(object.get("chardev")?).cloned()));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str) -> Vec<String> {
        sockets(&Arguments::from_line(line))
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn monitors_are_found_in_either_spelling() {
        assert_eq!(
            of("qemu -m 1G -qmp unix:/run/a,,b,server=on,wait=off"),
            ["/run/a,b"]
        );
        assert_eq!(
            of("qemu --chardev socket,id=c,path=q.sock,server=on -mon chardev=c,mode=control"),
            ["q.sock"]
        );
        assert_eq!(
            of("qemu -mon c,mode=control -chardev socket,path=/q,id=c"),
            ["/q"]
        );
        let chardev = "-chardev socket,path=/q,id=c";
        assert_eq!(
            of(&format!(
                "qemu {chardev} -object monitor-qmp,id=m,chardev=c"
            )),
            ["/q"]
        );
        let json = r#"{"qom-type":"monitor-qmp","id":"m","chardev":"c"}"#;
        assert_eq!(of(&format!("qemu -object {json} {chardev}")), ["/q"]);
        let none = [
            "qemu",
            "qemu -qmp",
            "qemu -qmp tcp:1:2",
            "qemu -chardev socket,id=c,path=/q -mon chardev=c",
            "-mon ,,",
        ];
        assert!(none.iter().all(|line| of(line).is_empty()));
    }

    #[test]
    fn a_process_without_a_monitor_says_so() {
        let why = monitor(std::process::id() as i32).unwrap_err().to_string();
        assert!(why.contains("no QMP socket"), "{why}");
    }

    #[test]
    fn a_socket_of_another_process_is_not_a_vms_monitor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let own = std::process::id() as i32;
        // The command line of another process names the socket of this one.
        let line = format!("sleep 30 -qmp unix:{}", path.display());
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "read -r line"])
            .args(line.split(' '))
            .stdin(std::process::Stdio::piped());
        let mut other = shell.spawn().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let why = loop {
            let why = monitor(other.id() as i32).unwrap_err().to_string();
            if !why.contains("no QMP socket") || std::time::Instant::now() > until {
                break why;
            }
        };
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(
            why.contains(&format!("the socket of process {own}")),
            "{why}"
        );
    }

    proptest! {
        #[test]
        fn any_command_line_is_survived(all in proptest::collection::vec("(-qmp|-mon|-chardev|[a-z=,:]{0,20})", 0..8)) {
            let _ = sockets(&all.into_iter().collect());
        }
    }
}
