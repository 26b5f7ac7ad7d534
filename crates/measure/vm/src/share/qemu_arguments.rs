//! QEMU's arguments for a share.

use super::server::{MOUNT_PORT, NFS_PORT};
use super::{RootExtras, Sharing};
use crate::vmm::qemu::device_arguments::{Disk, NET_DEVICE, owned};
use std::net::Ipv4Addr;
use vmtax_model::{Forward, QemuFacts, ShareMethod};
use vmtax_vmm::qemu::arguments::escaped;
use vmtax_wire::{SHARE_MAC, SHARE_SERIAL, writable_tag};

/// The name by which a guest mounts it.
pub(super) const TAG: &str = "share";
/// The share's disk in QEMU.
const NODE: &str = "share";
/// The server's address in the guest's network, which has nothing else.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
/// Trace event with 9p's message size as both sides agreed on it.
pub(super) const VERSION_EVENT: &str = "v9fs_version_return";

/// Returns the options that a share needs behind QEMU's machine type.
pub(crate) fn machine(sharing: Option<&Sharing>) -> &'static str {
    if shares_memory(sharing) {
        ",memory-backend=ram"
    } else {
        ""
    }
}

/// Returns true if the guest's memory is shared with another process already.
pub(crate) fn shares_memory(sharing: Option<&Sharing>) -> bool {
    sharing.is_some_and(|s| s.share.method == ShareMethod::Virtiofs)
}

/// The arguments that share it. `direct` is true if this run's disks are read past the page cache, and `aio` the engine
/// that reads them.
pub(crate) fn arguments(
    sharing: &Sharing,
    qemu: &QemuFacts,
    direct: bool,
    aio: &str,
    guest: &ServerLink,
) -> Vec<String> {
    let mut arguments = sharing.host_root.as_ref().map(besides).unwrap_or_default();
    arguments.extend(match sharing.share.method {
        ShareMethod::NineP => nine_p(sharing, qemu),
        ShareMethod::Disk | ShareMethod::Erofs | ShareMethod::Squashfs => {
            disk(sharing, direct, aio)
        }
        ShareMethod::Virtiofs => virtiofs(guest),
        ShareMethod::Nfs3 => network(&[NFS_PORT, MOUNT_PORT], guest),
        ShareMethod::Nfs4 => network(&[NFS_PORT], guest),
    });
    arguments
}

/// Where QEMU link the server, and how much memory both share.
pub(crate) struct ServerLink {
    /// The guest's memory, MiB.
    pub memory_mib: u32,
    /// QEMU's descriptor of the stream to the server.
    pub stream: i32,
    /// The server's ports.
    pub ports: [u16; 2],
}

/// Without memory that both see, the mount succeeds, and every access hangs.
fn virtiofs(link: &ServerLink) -> Vec<String> {
    let memory = format!(
        "memory-backend-memfd,id=ram,size={}M,share=on",
        link.memory_mib
    );
    let stream = format!("socket,id=server,fd={}", link.stream);
    let front = format!("vhost-user-fs-pci,chardev=server,tag={TAG}");
    owned(["-object", &memory, "-chardev", &stream, "-device", &front])
}

/// `restrict` leaves of the host and its network only what is forwarded.
fn network(ports: &[u16], link: &ServerLink) -> Vec<String> {
    let mut net = "user,id=net,restrict=on".to_owned();
    for (port, served) in ports.iter().zip(link.ports) {
        net += &format!(",guestfwd=tcp:{SERVER}:{port}-tcp:127.0.0.1:{served}");
    }
    let card = format!("virtio-net-pci,netdev=net,mac={SHARE_MAC},romfile=");
    owned(["-netdev", &net, "-device", &card])
}

/// Returns the arguments for the parts that a guest for a command has in addition to the host's root.
fn besides(besides: &RootExtras) -> Vec<String> {
    let mut arguments = Vec::new();
    for (i, folder) in besides.writable.iter().enumerate() {
        let tag = writable_tag(i);
        let back = format!(
            "local,id={tag},path={},security_model=none,multidevs=remap",
            escaped(&folder.display().to_string())
        );
        let front = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
        arguments.extend(owned(["-fsdev", &back, "-device", &front]));
    }
    if let Some(ports) = &besides.network {
        let mut net = "user,id=net".to_owned();
        for Forward { host, guest } in ports {
            // Where others on the network cannot reach it.
            net += &format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}");
        }
        let card = format!("virtio-net-pci,id={NET_DEVICE},netdev=net,mac={SHARE_MAC},romfile=");
        arguments.extend(owned(["-netdev", &net, "-device", &card]));
    }
    arguments
}

fn nine_p(sharing: &Sharing, qemu: &QemuFacts) -> Vec<String> {
    let mut back = format!(
        "local,id={TAG},path={}",
        escaped(&sharing.source.display().to_string())
    );
    let model = sharing.share.option("security-model").unwrap_or("none");
    back += &format!(",security_model={model}");
    for key in ["writeout", "fmode", "dmode", "multidevs"] {
        if let Some(value) = sharing.share.option(key) {
            back += &format!(",{key}={value}");
        }
    }
    if sharing.read_only {
        back += ",readonly=on";
    }
    let front = format!("virtio-9p-pci,fsdev={TAG},mount_tag={TAG}");
    let mut arguments = owned(["-fsdev", &back, "-device", &front]);
    // One event at the mount, in QEMU's log. Another back end would put a file of its own somewhere.
    if qemu.trace_backends == ["log"] {
        arguments.extend(owned(["-trace", VERSION_EVENT]));
    }
    arguments
}

fn disk(sharing: &Sharing, direct: bool, aio: &str) -> Vec<String> {
    let mut set = sharing.share.options.clone();
    set.retain(|key, _| !matches!(key.as_str(), "readonly" | "compress"));
    Disk {
        node: NODE,
        device: "virtio-blk-pci",
        serial: Some(SHARE_SERIAL),
        file: sharing.own(),
        direct,
        aio,
        read_only: sharing.read_only,
        set: &set,
    }
    .arguments()
}
