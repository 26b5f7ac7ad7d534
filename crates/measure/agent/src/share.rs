//! Mounts the tree that the host shares.

use crate::devices::{configure_card, disk_with_serial, load_modules, wait_for};
use rustix::mount::{MountFlags, mount as mount_at};
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use vmtax_model::ShareMethod;
use vmtax_wire::{Mount, SHARE, SHARE_MAC};

/// Loads the modules, mounts, and returns the line of `/proc/mounts`.
pub(crate) fn mount(request: &Mount) -> Result<String, String> {
    if std::process::id() != 1 {
        return Err("shares can only be mounted in guests".to_owned());
    }
    let mut complaints = load_modules(&format!("modules-{}", request.method));
    if let Some((address, mask)) = request.network {
        configure_card(SHARE_MAC, address, mask)?;
    }
    let source = if request.method.is_image() {
        disk(&request.source)?
    } else {
        PathBuf::from(&request.source)
    };
    fs::create_dir_all(SHARE).map_err(|e| format!("making {SHARE}: {e}"))?;
    let flags = if request.read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    let options = CString::new(request.options.as_str()).map_err(|e| e.to_string())?;
    let (kind, options) = (request.kind.as_str(), options.as_c_str());
    mount_at(&source, SHARE, kind, flags, options).map_err(|e| {
        let failed = format!(
            "mounting {kind} from {} with '{}': {e}",
            request.source, request.options
        );
        complaints.insert(0, failed);
        complaints.extend(kernel_messages(request.method));
        complaints.join("; ")
    })?;
    let mounts = fs::read_to_string("/proc/mounts").map_err(|e| format!("/proc/mounts: {e}"))?;
    let line = mounts
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(1) == Some(SHARE));
    line.map(str::to_owned)
        .ok_or_else(|| format!("{SHARE} is not in /proc/mounts after mounting it"))
}

fn disk(serial: &str) -> Result<PathBuf, String> {
    wait_for(|| disk_with_serial(serial).filter(|disk| disk.exists()))
        .ok_or_else(|| format!("no disk '{serial}' appeared"))
}

/// The kernel's messages about the mount: more precise than an error number.
fn kernel_messages(method: ShareMethod) -> Vec<String> {
    let log = kernel_log();
    let word = method.driver().message;
    let lines = log.lines().rev().filter(|line| line.contains(word));
    lines.take(3).map(str::to_owned).collect()
}

/// Returns the present content of the kernel's log; empty where it may not be read.
pub(crate) fn kernel_log() -> String {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    let Ok(mut log) = opened else {
        return String::new();
    };
    let (mut text, mut record) = (String::new(), [0; 8192]);
    // One record a read; "priority,sequence,time,flags;text".
    while let Ok(length @ 1..) = log.read(&mut record) {
        let record = String::from_utf8_lossy(&record[..length]);
        text += record
            .split_once(';')
            .map_or("", |(_, said)| said.lines().next().unwrap_or_default());
        text.push('\n');
    }
    text
}
