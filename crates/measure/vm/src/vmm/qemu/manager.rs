//! Who started a QEMU and uses its monitor, by its command line and its control group.

use super::arguments::Arguments;
use procfs::process::Process;
use std::path::Path;
use vmtax_model::{Managed, Manager};

/// The manager of a process; `None` for a QEMU that was started by hand.
pub(crate) fn of(pid: i32, arguments: &Arguments) -> Option<Managed> {
    let groups = || Process::new(pid).and_then(|process| process.cgroups()).ok();
    let is_in_pod = || {
        groups().is_some_and(|all| {
            all.0
                .iter()
                .any(|group| group.pathname.contains("kubepods"))
        })
    };
    by_arguments(arguments, is_in_pod)
}

pub(super) fn by_arguments(arguments: &Arguments, is_in_pod: impl Fn() -> bool) -> Option<Managed> {
    let has_chardev = |id: &str| {
        arguments
            .properties("chardev")
            .any(|chardev| chardev.get("id") == Some(id))
    };
    // libvirt's name for its end of the monitor since 0.8 (`qemuBuildMonitorCommandLine`).
    if has_chardev("charmonitor") {
        // The secret is below libvirt's folder of the domain: /var/lib/libvirt for the system's daemon.
        let secret = arguments
            .properties("object")
            .find(|object| object.get("id") == Some("masterKey0"));
        let is_system = secret.is_none_or(|secret| {
            secret
                .get("file")
                .is_some_and(|file| file.starts_with("/var/lib/"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str, pod: bool) -> Option<(Manager, String)> {
        by_arguments(&Arguments::from_line(line), || pod)
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
            of(&system, false),
            Some((Manager::Libvirt, "18-6".to_owned()))
        );
        assert_eq!(
            of(&session, false),
            Some((Manager::LibvirtSession, "18-6".to_owned()))
        );
        assert_eq!(
            of(&session, true),
            Some((Manager::KubeVirt, "18-6".to_owned()))
        );
        let proxmox = "kvm -id 100 -name web -chardev socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on";
        assert_eq!(
            of(proxmox, false),
            Some((Manager::Proxmox, "100".to_owned()))
        );
        assert_eq!(of("qemu-system-x86_64 -m 1G -qmp unix:/q", false), None);
    }

    proptest! {
        #[test]
        fn any_command_line_is_survived(all in proptest::collection::vec("(-id|-uuid|-object|-chardev|.{0,30})", 0..8)) {
            let _ = by_arguments(&all.into_iter().collect(), || false);
        }
    }
}
