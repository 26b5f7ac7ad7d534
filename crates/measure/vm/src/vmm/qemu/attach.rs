//! Connects to the monitor of a QEMU that another program started: a QMP socket in its command line that has no client.

use super::arguments::Arguments;
use super::monitor::Monitor;
use crate::MachineError;
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A QMP socket that has a client accepts the connection but sends no greeting.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);

/// The monitor of a process.
///
/// # Errors
/// [`MachineError::Monitor`] where its command line names none that answers.
pub(crate) fn monitor(pid: i32) -> Result<Monitor, MachineError> {
    let mut why = "its command line has no QMP socket".to_owned();
    for path in sockets(&Arguments::of(pid)) {
        let connected = UnixStream::connect(path_of(pid, &path)).map_err(|e| MachineError::Monitor(e.to_string()));
        let connected = connected.and_then(|stream| match listener(&stream) {
            Some(of) if of == pid => Ok(stream),
            of => {
                let of =
                    of.map_or_else(|| "a process that is not visible here".to_owned(), |of| format!("process {of}"));
                Err(MachineError::Monitor(format!("it is the socket of {of}, not of {pid}")))
            }
        });
        match connected.and_then(|stream| Monitor::connect(stream, ATTACH_TIMEOUT, ATTACH_TIMEOUT)) {
            Ok(monitor) => return Ok(monitor),
            Err(error) => why = format!("{}: {error}", path.display()),
        }
    }
    Err(MachineError::Monitor(why))
}

/// The process that listens where a stream leads; `None` where it is in a PID namespace that is not visible here.
fn listener(stream: &UnixStream) -> Option<i32> {
    socket_peercred(stream).ok().map(|peer| peer.pid.as_raw_nonzero().get())
}

/// A file that a process names, by a path that leads there from here.
pub(crate) fn path_of(pid: i32, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(below) => PathBuf::from(format!("/proc/{pid}/root")).join(below),
        Err(_) => PathBuf::from(format!("/proc/{pid}/cwd")).join(path),
    }
}

/// What to do where a process with this command line has no monitor that answers.
pub(crate) fn advice(arguments: &Arguments) -> &'static str {
    // libvirt passes its own end of the socket as a file: there is no path to connect to.
    if arguments.properties("chardev").any(|c| c.first("backend") == Some("socket") && c.get("fd").is_some()) {
        "libvirt uses its monitor: use `virsh qemu-monitor-command DOMAIN`"
    } else {
        "start QEMU with a QMP socket that no other program uses (-qmp unix:/run/NAME.qmp,server=on,wait=off)"
    }
}

/// The Unix sockets of QMP monitors that a command line names: for fuzzing.
pub fn qmp_sockets(arguments: &[String]) -> Vec<PathBuf> {
    sockets(&arguments.iter().cloned().collect())
}

/// `-qmp unix:PATH,…`, or `-chardev socket,id=ID,path=PATH` with `-mon chardev=ID,mode=control`.
fn sockets(arguments: &Arguments) -> Vec<PathBuf> {
    let qmp = ["qmp", "qmp-pretty"].into_iter().flat_map(|option| arguments.properties(option));
    let mut paths: Vec<PathBuf> =
        qmp.filter_map(|qmp| Some(PathBuf::from(qmp.first("unix")?.strip_prefix("unix:")?))).collect();
    let sockets = arguments.properties("chardev").filter(|c| c.first("backend") == Some("socket"));
    let ids: BTreeMap<String, PathBuf> =
        sockets.filter_map(|c| Some((c.get("id")?.to_owned(), c.get("path")?.into()))).collect();
    let control = arguments.properties("mon").filter(|mon| mon.get("mode") == Some("control"));
    paths.extend(control.filter_map(|mon| ids.get(mon.first("chardev")?).cloned()));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str) -> Vec<String> {
        sockets(&Arguments::from_line(line)).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn monitors_are_found_in_either_spelling() {
        assert_eq!(of("qemu -m 1G -qmp unix:/run/a,,b,server=on,wait=off"), ["/run/a,b"]);
        assert_eq!(of("qemu --chardev socket,id=c,path=q.sock,server=on -mon chardev=c,mode=control"), ["q.sock"]);
        assert_eq!(of("qemu -mon c,mode=control -chardev socket,path=/q,id=c"), ["/q"]);
        let none =
            ["qemu", "qemu -qmp", "qemu -qmp tcp:1:2", "qemu -chardev socket,id=c,path=/q -mon chardev=c", "-mon ,,"];
        assert!(none.iter().all(|line| of(line).is_empty()));
    }

    #[test]
    fn a_process_without_a_monitor_says_so() {
        let why = monitor(std::process::id() as i32).unwrap_err().to_string();
        assert!(why.contains("no QMP socket"), "{why}");
    }

    #[test]
    fn a_listener_is_who_made_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let own = std::process::id() as i32;
        assert_eq!(listener(&UnixStream::connect(&path).unwrap()), Some(own));
        // The command line of another process names the socket of this one.
        let line = format!("sleep 30 -qmp unix:{}", path.display());
        let mut other =
            std::process::Command::new("sh").args(["-c", "sleep 30; :"]).args(line.split(' ')).spawn().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let why = loop {
            let why = monitor(other.id() as i32).unwrap_err().to_string();
            if !why.contains("no QMP socket") || std::time::Instant::now() > until {
                break why;
            }
        };
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(why.contains(&format!("the socket of process {own}")), "{why}");
    }

    #[test]
    fn the_user_of_the_monitor_is_named() {
        let of = |line: &str| advice(&Arguments::from_line(line));
        let libvirt = "qemu -chardev socket,id=charmonitor,fd=36,server=on -mon chardev=charmonitor,mode=control";
        assert!(of(libvirt).contains("virsh qemu-monitor-command") && !of(libvirt).contains("-qmp"));
        assert!(of("qemu -m 1G").contains("-qmp unix:"));
    }

    proptest! {
        #[test]
        fn any_command_line_is_survived(all in proptest::collection::vec("(-qmp|-mon|-chardev|[a-z=,:]{0,20})", 0..8)) {
            let _ = qmp_sockets(&all);
        }
    }
}
