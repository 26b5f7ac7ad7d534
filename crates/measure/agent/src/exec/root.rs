//! The guest's root for a command: an overlay of the host's read-only root, with a writable layer in memory or on a disk,
//! which is discarded with the guest.

use crate::devices::{configure_card, enable_loopback, load_modules, route_all};
use rustix::fs::statvfs;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use vmtax_model::{Places, ShareMethod};
use vmtax_wire::{Bytes, SHARE, SHARE_MAC, writable_tag};

const LAYER: &str = "/layer";
pub(crate) const ROOT: &str = "/root";
/// Below this much free space the writable layer counts as full, bytes.
const MIN_FREE: u64 = 1 << 20;

/// Makes the root for commands.
pub(crate) fn prepare(
    host_name: &Bytes,
    writable: &[Bytes],
    with_network: bool,
    places: &Places,
) -> Result<(), String> {
    let mut complaints = load_modules("modules-command");
    if !writable.is_empty() {
        complaints.extend(load_modules(&format!("modules-{}", ShareMethod::NineP)));
    }
    let root = Path::new(ROOT);
    let made = make(root, places).and_then(|()| folders(root, writable));
    made.and_then(|()| if with_network { connect(root) } else { Ok(()) })
        .map_err(|error| {
            complaints.insert(0, error);
            complaints.join("; ")
        })?;
    let _ = rustix::system::sethostname(host_name.0.as_encoded_bytes());
    let _ = enable_loopback();
    Ok(())
}

fn make(root: &Path, places: &Places) -> Result<(), String> {
    if !Path::new(SHARE).is_dir() {
        return Err("the host's root is not shared with this guest".to_owned());
    }
    folder(Path::new(LAYER))?;
    let layer = Path::new(LAYER);
    match &places.disk {
        Some(disk) => mount_at("ext4", disk, layer, MountFlags::NOATIME, "")?,
        None => mount_at("tmpfs", "tmpfs", layer, MountFlags::empty(), "mode=0755")?,
    }
    for name in ["upper", "work"] {
        folder(&Path::new(LAYER).join(name))?;
    }
    folder(root)?;
    let options = format!("lowerdir={SHARE},upperdir={LAYER}/upper,workdir={LAYER}/work");
    mount_at("overlay", "overlay", root, MountFlags::empty(), &options)?;
    mount_own(root)
}

/// Mounts the kernel's file systems and those in memory on the root, and makes the links of `/dev`.
fn mount_own(root: &Path) -> Result<(), String> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    let own = [
        ("proc", "proc", plain | MountFlags::NOEXEC, ""),
        ("sysfs", "sys", plain | MountFlags::NOEXEC, ""),
        ("devtmpfs", "dev", MountFlags::NOSUID, ""),
        (
            "devpts",
            "dev/pts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            "ptmxmode=0666,mode=0620,gid=5",
        ),
        ("tmpfs", "dev/shm", plain, "mode=1777"),
        ("tmpfs", "run", plain, "mode=0755"),
    ];
    for (kind, at, flags, options) in own {
        let at = root.join(at);
        folder(&at)?;
        mount_at(kind, kind, &at, flags, options)?;
    }
    for (name, target) in [
        ("fd", "fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        // A kernel that made it already is no fault.
        let _ = symlink(format!("/proc/self/{target}"), root.join("dev").join(name));
    }
    Ok(())
}

/// Mounts the host's folders that the guest may write to. Writes go to the host's own folders: `cache=mmap` writes
/// through, and lets files be mapped to be written.
fn folders(root: &Path, writable: &[Bytes]) -> Result<(), String> {
    for (number, host) in writable.iter().enumerate() {
        let host = Path::new(&host.0);
        let at = root.join(host.strip_prefix("/").unwrap_or(host));
        folder(&at)?;
        let options = "trans=virtio,version=9p2000.L,msize=512000,cache=mmap";
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount_at("9p", writable_tag(number), &at, flags, options)?;
    }
    Ok(())
}

/// QEMU's user network as it always is: the address that it would give by DHCP, its gateway, its name server.
fn connect(root: &Path) -> Result<(), String> {
    let (address, gateway) = (Ipv4Addr::new(10, 0, 2, 15), Ipv4Addr::new(10, 0, 2, 2));
    configure_card(SHARE_MAC, address, Ipv4Addr::new(255, 255, 255, 0))?;
    route_all(gateway)?;
    let names = root.join("etc/resolv.conf");
    // It may point to where the host's own resolver writes.
    let _ = fs::remove_file(&names);
    fs::write(&names, "nameserver 10.0.2.3\n")
        .map_err(|e| format!("writing the guest's /etc/resolv.conf: {e}"))
}

fn folder(at: &Path) -> Result<(), String> {
    fs::create_dir_all(at).map_err(|e| format!("making {}: {e}", at.display()))
}

fn mount_at(
    kind: &str,
    source: impl AsRef<Path>,
    at: &Path,
    flags: MountFlags,
    options: &str,
) -> Result<(), String> {
    let words = CString::new(options).map_err(|e| e.to_string())?;
    mount(source.as_ref(), at, kind, flags, words.as_c_str())
        .map_err(|e| format!("mounting {kind} on {} with '{options}': {e}", at.display()))
}

/// Notes on the guest's root for the reader of the command's figures.
pub(super) fn notes(places: &Places) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(room) = statvfs(LAYER) {
        let (size, free) = (
            room.f_blocks.saturating_mul(room.f_frsize),
            room.f_bavail.saturating_mul(room.f_frsize),
        );
        if free < MIN_FREE {
            let mib = size >> 20;
            let (of, option) = match places.disk {
                Some(_) => ("its disk", "--scratch"),
                None => ("half of its memory", "--memory, or a disk with --scratch"),
            };
            notes.push(format!(
                "the guest's writable layer is full ({mib} MiB, {of}): use a larger {option}"
            ));
        }
    }
    let log = crate::devices::kernel_log();
    let mut lines = log.lines().rev();
    let killed = lines.find(|line| line.contains("Out of memory: Killed process"));
    notes.extend(killed.map(|line| {
        format!("the guest ran out of memory: its kernel says '{line}'. Use a larger --memory")
    }));
    notes
}
