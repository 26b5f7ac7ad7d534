//! A QEMU that another program started: how it is recognized, who started it, and the way to its monitor, through libvirt or
//! a QMP socket in its command line.

use super::arguments::{Arguments, is_loader, path_of};
use super::conversation::SharedSocket;
use super::libvirt::Domain;
use super::monitor::Monitor;
use crate::VmmError;
use procfs::process::Process;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_model::{Managed, Manager};

/// Options that no other program has in this spelling, of which each QEMU with a guest is given one.
const OPTIONS: [&str; 8] = [
    "machine",
    "M",
    "accel",
    "enable-kvm",
    "nodefaults",
    "blockdev",
    "drive",
    "smp",
];

/// The program that a process runs, as what was named may be a script around it. Through a loader of its own, which then is
/// what the process runs, it is one of the files that the process maps.
pub(crate) fn binary(pid: i32) -> Option<PathBuf> {
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    if exe.as_ref().is_ok_and(|exe| !is_loader(exe)) {
        return exe.ok();
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let named: Vec<PathBuf> = Arguments::of(pid)
        .all()
        .filter_map(|argument| fs::canonicalize(path_of(pid, Path::new(argument))).ok())
        .collect();
    mapped_program(&maps, &named).or(exe.ok())
}

/// The file of that program for this process, which may see no such path or another file there by now.
pub(crate) fn binary_file(pid: i32) -> Option<PathBuf> {
    let (exe, program) = (PathBuf::from(format!("/proc/{pid}/exe")), binary(pid)?);
    let is_exe = fs::read_link(&exe).is_ok_and(|linked| linked == program);
    Some(if is_exe { exe } else { path_of(pid, &program) })
}

/// Returns true if a process runs QEMU with a guest. Not its tools (`qemu-nbd`), not libvirt's daemon (`virtqemud`), not `sudo`
/// or `timeout`, which have the command line of the QEMU that they start, not a QEMU that prints what it has.
pub(crate) fn runs_qemu(pid: i32) -> bool {
    is_qemu(binary(pid).as_deref(), &Arguments::of(pid))
}

/// [`runs_qemu`], by the program, which the kernel shows to its user and root alone, and the command line.
fn is_qemu(program: Option<&Path>, arguments: &Arguments) -> bool {
    let is_named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"qemu-system-") || name.starts_with(b"qemu-kvm")
    };
    if arguments.ask_for_help() {
        return false;
    }
    // Of another user's process the name that it was started by counts, as in ps(1).
    if program.or(arguments.program()).is_some_and(is_named) {
        return true;
    }
    let mut started = arguments.behind_program().iter().map(Path::new);
    let is_given = |option: &&&str| arguments.options().any(|(given, _)| given == **option);
    !started.any(is_named) && OPTIONS.iter().filter(is_given).count() > 1
}

/// The first file whose code is mapped that is named as QEMU's usually are, or that the command line names. A command line also
/// names the guest's kernel, which is mapped without execute permission.
fn mapped_program(maps: &str, named: &[PathBuf]) -> Option<PathBuf> {
    // Five columns, then the path, which may have blanks.
    let is_code = |line: &&str| {
        line.split_whitespace()
            .nth(1)
            .is_some_and(|rights| rights.contains('x'))
    };
    let mut paths = maps
        .lines()
        .filter(is_code)
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_program = |path: &&Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        !is_loader(path) && (name.starts_with(b"qemu-") || named.iter().any(|named| named == path))
    };
    paths.find(is_program).map(Path::to_path_buf)
}

/// The manager of a process; `None` for a QEMU that was started by hand.
pub(crate) fn manager(pid: i32, arguments: &Arguments) -> Option<Managed> {
    let groups = || Process::new(pid).and_then(|process| process.cgroups()).ok();
    let is_in_pod = || {
        groups().is_some_and(|all| {
            all.0
                .iter()
                .any(|group| group.pathname.contains("kubepods"))
        })
    };
    manager_by_arguments(arguments, is_in_pod)
}

pub(super) fn manager_by_arguments(
    arguments: &Arguments,
    is_in_pod: impl Fn() -> bool,
) -> Option<Managed> {
    // libvirt's name for its end of the monitor since 0.8 (`qemuBuildMonitorCommandLine`).
    if arguments.with("chardev", "id", "charmonitor").is_some() {
        // The secret is below libvirt's folder of the domain: /var/lib/libvirt for the system's daemon.
        let secret = arguments.with("object", "id", "masterKey0");
        let is_system = secret.is_none_or(|secret| {
            let file = secret.get("file").unwrap_or_default();
            file.starts_with("/var/lib/")
        });
        let manager = match (is_in_pod(), is_system) {
            (true, _) => Manager::KubeVirt,
            (false, true) => Manager::Libvirt,
            (false, false) => Manager::LibvirtSession,
        };
        return Some(Managed {
            manager,
            id: arguments.uuid()?.to_owned(),
        });
    }
    // Proxmox's qemu-server: /var/run/qemu-server/100.qmp.
    let id = arguments.properties("chardev").find_map(|chardev| {
        let socket = Path::new(chardev.get("path")?);
        let is_proxmox = socket.parent()?.ends_with("qemu-server") && socket.extension()? == "qmp";
        Some(socket.file_stem()?.to_str()?.to_owned()).filter(|_| is_proxmox)
    });
    id.map(|id| Managed {
        manager: Manager::Proxmox,
        id,
    })
}

/// A QMP socket that has a client accepts the connection but sends no greeting. Also how long a command may take.
pub(crate) const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);

/// The monitor of a process: libvirt's connection where libvirt started it, else the first QMP socket of its command line
/// that answers.
///
/// # Errors
/// [`VmmError::Monitor`] where there is none, [`VmmError::MonitorTimeout`] where it does not answer.
pub(crate) fn monitor(pid: i32) -> Result<Monitor, VmmError> {
    let arguments = Arguments::of(pid);
    if let Some(managed) = manager(pid, &arguments).filter(|managed| managed.manager.is_libvirt()) {
        let domain = Domain::find(pid, &managed)?;
        domain.check(pid, ATTACH_TIMEOUT)?;
        return Ok(Monitor::of_domain(domain, ATTACH_TIMEOUT));
    }
    let mut failed = VmmError::Monitor("QEMU's command line has no QMP socket".to_owned());
    for path in qmp_sockets(&arguments) {
        let socket = SharedSocket {
            path: path_of(pid, &path),
            pid,
        };
        match socket.connect(ATTACH_TIMEOUT) {
            Ok(_) => return Ok(Monitor::shared(socket, ATTACH_TIMEOUT)),
            Err(VmmError::Monitor(why)) => {
                failed = VmmError::Monitor(format!("{}: {why}", path.display()));
            }
            Err(VmmError::MonitorDenied(why)) => {
                failed = VmmError::MonitorDenied(format!("{}: {why}", path.display()));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns advice on how to get a monitor for a process that has none that answers.
pub(crate) fn monitor_advice(manager: Option<Manager>) -> &'static str {
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

/// The first QMP socket of a command line, by the absolute path that QEMU's process has it under. `None` also for a relative path where
/// no such file is: after `-daemonize` QEMU works in another directory than its command line was written in.
pub(crate) fn qmp_socket(pid: i32, arguments: &Arguments) -> Option<PathBuf> {
    let socket = qmp_sockets(arguments).into_iter().next()?;
    if socket.is_absolute() {
        return Some(socket);
    }
    let process = PathBuf::from(format!("/proc/{pid}"));
    let directory = fs::read_link(process.join("cwd")).ok()?;
    process
        .join("cwd")
        .join(&socket)
        .exists()
        .then(|| directory.join(socket))
}

/// The Unix sockets of QMP monitors that a command line names: `-qmp unix:PATH,…`, or `-chardev socket,id=ID,path=PATH` with
/// `-mon chardev=ID,mode=control` or, since QEMU 11.1, `-object monitor-qmp,chardev=ID`.
pub(super) fn qmp_sockets(arguments: &Arguments) -> Vec<PathBuf> {
    let chardevs = arguments.properties("chardev");
    let ids: BTreeMap<String, PathBuf> = chardevs
        .filter(|chardev| chardev.first("backend") == Some("socket"))
        .filter_map(|c| Some((c.get("id")?.to_owned(), c.get("path")?.into())))
        .collect();
    let qmp = ["qmp", "qmp-pretty"].map(|option| arguments.properties(option));
    let named = qmp
        .into_iter()
        .flatten()
        .filter_map(|qmp| Some(qmp.first("unix")?.strip_prefix("unix:")?.into()));
    let control = arguments.properties("mon").filter_map(|mon| {
        let is_control = mon.get("mode") == Some("control");
        ids.get(mon.first("chardev").filter(|_| is_control)?)
            .cloned()
    });
    let objects = arguments.properties("object").filter_map(|object| {
        let is_monitor = object.first("qom-type") == Some("monitor-qmp");
        ids.get(object.get("chardev").filter(|_| is_monitor)?)
            .cloned()
    });
    named.chain(control).chain(objects).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_program_is_found_behind_its_loader() {
        let maps = "7f00-7f01 r--p 00000000 fe:00 12 /c/root/libc/ld-linux-x86-64.so.2\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \n\
                    7f04-7f05 r-xp 00000000 fe:00 13 /c c/root/bin/qemu-system-x86_64\n";
        assert_eq!(
            mapped_program(maps, &[]),
            Some(PathBuf::from("/c c/root/bin/qemu-system-x86_64"))
        );
        let other = "7f00-7f01 r-xp 00000000 fe:00 12 /usr/bin/other\n";
        assert_eq!(mapped_program(other, &[]), None);
        assert_eq!(
            mapped_program(other, &["/usr/bin/other".into()]),
            Some("/usr/bin/other".into())
        );
        let kernel = "7e00-7e01 r--p 00000000 fe:00 14 /boot/vmlinux\n";
        let named = ["/boot/vmlinux".into(), "/usr/bin/other".into()];
        assert_eq!(
            mapped_program(&[kernel, other].concat(), &named),
            Some("/usr/bin/other".into())
        );
        let own = std::process::id() as i32;
        assert_eq!(binary(own).unwrap(), std::env::current_exe().unwrap());
        assert_eq!(binary_file(own), Some(format!("/proc/{own}/exe").into()));
        assert!(!runs_qemu(own));
    }

    #[test]
    fn another_users_qemu_is_known_by_its_command_line() {
        let is_qemu = |program: Option<&str>, line: &str| {
            is_qemu(program.map(Path::new), &Arguments::from_line(line))
        };
        let lines = [
            "qemu-system-x86_64 -m 64 -hda disk.img",
            "/usr/bin/qemu-kvm -m 64",
            "/usr/libexec/qemu -machine q35 -smp 2",
            "/l/ld-linux-x86-64.so.2 --library-path /l /b/qemu-system-x86_64 -m 64 -hda disk.img",
            "/l/ld-musl-x86_64.so.1 --library-path /l /b/qemu -machine q35 -smp 2",
        ];
        for line in lines {
            assert!(is_qemu(None, line), "{line}");
        }
        for line in [
            "sudo qemu-system-x86_64 -M q35 -smp 2",
            "qemu-system-x86_64 --version",
            "qemu-nbd disk.img",
            "/l/ld-linux-x86-64.so.2 --library-path /l /b/qemu-nbd disk.img",
            "/l/ld-linux-x86-64.so.2 /bin/timeout 9 qemu-system-x86_64 -M q35 -smp 2",
            "/l/ld-linux-x86-64.so.2 --library-path /l",
            "",
        ] {
            assert!(!is_qemu(None, line), "{line}");
        }
        // A process that may be seen cannot call itself otherwise.
        assert!(!is_qemu(Some("/bin/sleep"), "qemu-system-x86_64 -m 64"));
    }

    fn manager_of(line: &str, pod: bool) -> Option<(Manager, String)> {
        manager_by_arguments(&Arguments::from_line(line), || pod)
            .map(|managed| (managed.manager, managed.id))
    }

    #[test]
    fn managers_are_told_by_what_they_pass() {
        let libvirt = |folder: &str| {
            let secret = format!(
                r#"{{"qom-type":"secret","id":"masterKey0","file":"{folder}/domain-1-a/master-key.aes"}}"#
            );
            format!(
                "qemu -name guest=a -object {secret} -uuid 18-6 -chardev socket,id=charmonitor,fd=29 -mon chardev=charmonitor"
            )
        };
        let (system, session) = (
            libvirt("/var/lib/libvirt/qemu"),
            libvirt("/home/a/.config/libvirt/qemu/lib"),
        );
        assert_eq!(
            manager_of(&system, false),
            Some((Manager::Libvirt, "18-6".to_owned()))
        );
        assert_eq!(
            manager_of(&session, false),
            Some((Manager::LibvirtSession, "18-6".to_owned()))
        );
        assert_eq!(
            manager_of(&session, true),
            Some((Manager::KubeVirt, "18-6".to_owned()))
        );
        let proxmox = "kvm -id 100 -name web -chardev socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on";
        assert_eq!(
            manager_of(proxmox, false),
            Some((Manager::Proxmox, "100".to_owned()))
        );
        assert_eq!(
            manager_of("qemu-system-x86_64 -m 1G -qmp unix:/q", false),
            None
        );
    }

    proptest! {
        #[test]
        fn any_command_line_names_at_most_one_manager(all in proptest::collection::vec("(-id|-uuid|-object|-chardev|.{0,30})", 0..8)) {
            let _ = manager_by_arguments(&all.into_iter().collect(), || false);
        }
    }

    fn sockets(line: &str) -> Vec<String> {
        qmp_sockets(&Arguments::from_line(line))
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn monitors_are_found_in_either_spelling() {
        assert_eq!(
            sockets("qemu -m 1G -qmp unix:/run/a,,b,server=on,wait=off"),
            ["/run/a,b"]
        );
        assert_eq!(
            sockets("qemu --chardev socket,id=c,path=q.sock,server=on -mon chardev=c,mode=control"),
            ["q.sock"]
        );
        assert_eq!(
            sockets("qemu -mon c,mode=control -chardev socket,path=/q,id=c"),
            ["/q"]
        );
        let chardev = "-chardev socket,path=/q,id=c";
        assert_eq!(
            sockets(&format!(
                "qemu {chardev} -object monitor-qmp,id=m,chardev=c"
            )),
            ["/q"]
        );
        let json = r#"{"qom-type":"monitor-qmp","id":"m","chardev":"c"}"#;
        assert_eq!(sockets(&format!("qemu -object {json} {chardev}")), ["/q"]);
        let none = [
            "qemu",
            "qemu -qmp",
            "qemu -qmp tcp:1:2",
            "qemu -chardev socket,id=c,path=/q -mon chardev=c",
            "-mon ,,",
        ];
        assert!(none.iter().all(|line| sockets(line).is_empty()));
    }

    #[test]
    fn a_socket_is_named_by_the_path_that_a_user_can_give() {
        let own = std::process::id() as i32;
        let socket = |line: &str| qmp_socket(own, &Arguments::from_line(line));
        let directory = std::env::current_dir().unwrap();
        // A file that is there stands for the socket.
        assert_eq!(
            socket("qemu -qmp unix:Cargo.toml,server=on"),
            Some(directory.join("Cargo.toml"))
        );
        assert_eq!(socket("qemu -daemonize -qmp unix:q.sock,server=on"), None);
        assert_eq!(socket("qemu -qmp unix:/run/q"), Some("/run/q".into()));
        assert_eq!(socket("qemu -m 64"), None);
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
            let _ = qmp_sockets(&all.into_iter().collect());
        }
    }
}
