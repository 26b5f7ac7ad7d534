//! Mount of the share by the guest.

use super::Sharing;
use super::ganesha::{EXPORT, MOUNT_PORT, NFS_PORT};
use super::qemu_arguments::{SERVER, TAG};
use std::net::Ipv4Addr;
use vmtax_model::ShareMethod;
use vmtax_wire::{Mount, SHARE, SHARE_SERIAL};

/// The guest's own address in QEMU's user network.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

pub(crate) fn mount(sharing: &Sharing) -> Mount {
    let method = sharing.share.method;
    let (kind, source, options) = match method {
        ShareMethod::NineP => ("9p", TAG.to_owned(), nine_p(sharing)),
        ShareMethod::Virtiofs => ("virtiofs", TAG.to_owned(), String::new()),
        ShareMethod::Nfs3 => ("nfs", format!("{SERVER}:{EXPORT}"), nfs3(sharing)),
        ShareMethod::Nfs4 => ("nfs4", format!("{SERVER}:{EXPORT}"), nfs4(sharing)),
        // As the disk with a guest's own files has it.
        ShareMethod::Disk => ("ext4", SHARE_SERIAL.to_owned(), String::new()),
        ShareMethod::Erofs => ("erofs", SHARE_SERIAL.to_owned(), String::new()),
        ShareMethod::Squashfs => ("squashfs", SHARE_SERIAL.to_owned(), String::new()),
    };
    let network = matches!(method, ShareMethod::Nfs3 | ShareMethod::Nfs4).then_some((GUEST, MASK));
    Mount {
        method,
        kind: kind.to_owned(),
        source,
        options,
        read_only: sharing.read_only,
        network,
    }
}

/// For people, who mount it in guests of their own.
pub(super) fn command(mount: &Mount) -> String {
    let (read_only, options) = (mount.read_only.then_some("ro"), mount.options.as_str());
    let options: Vec<&str> = read_only
        .into_iter()
        .chain((!options.is_empty()).then_some(options))
        .collect();
    let options = if options.is_empty() {
        String::new()
    } else {
        format!(" -o {}", options.join(","))
    };
    let disk = if mount.method.is_image() {
        "/dev/disk/by-id/virtio-"
    } else {
        ""
    };
    format!(
        "mount -t {}{options} {disk}{} {SHARE}",
        mount.kind, mount.source
    )
}

fn nine_p(sharing: &Sharing) -> String {
    with(
        sharing,
        "trans=virtio,version=9p2000.L".to_owned(),
        &["msize", "cache", "access"],
    )
}

/// Locks are the guest's own: the protocol for them is another, in which the server calls back.
fn nfs3(sharing: &Sharing) -> String {
    let mount = format!("mountaddr={SERVER},mountport={MOUNT_PORT},mountproto=tcp");
    nfs(
        sharing,
        format!("vers=3,addr={SERVER},port={NFS_PORT},proto=tcp,{mount},nolock,sec=sys"),
    )
}

/// Linux 6.12 reads by READ_PLUS in version 4.2, which nfs-ganesha 4.3 answers wrongly: the reads fail with EIO.
const NFS4_VERSION: &str = "4.1";

fn nfs4(sharing: &Sharing) -> String {
    let version = sharing.share.option("vers").unwrap_or(NFS4_VERSION);
    nfs(
        sharing,
        format!(
            "vers={version},addr={SERVER},clientaddr={GUEST},port={NFS_PORT},proto=tcp,sec=sys"
        ),
    )
}

fn nfs(sharing: &Sharing, base: String) -> String {
    let mut options = with(sharing, base, &["rsize", "wsize", "actimeo", "timeo"]);
    for key in ["noac", "nocto"] {
        if sharing.share.is_on(key) {
            options += &format!(",{key}");
        }
    }
    options
}

fn with(sharing: &Sharing, mut options: String, keys: &[&str]) -> String {
    for key in keys {
        if let Some(value) = sharing.share.option(key) {
            options += &format!(",{key}={value}");
        }
    }
    options
}
