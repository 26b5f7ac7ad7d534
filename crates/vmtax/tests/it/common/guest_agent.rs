//! QEMU's guest agent in a guest that a test boots.

use super::skipped;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Shell commands that start the agent in the guest.
pub const START_AGENT: &str = "for port in /sys/class/virtio-ports/*; do\n\
    [ \"$(cat $port/name)\" = org.qemu.guest_agent.0 ] && device=/dev/$(basename $port)\n\
    done\n\
    qemu-ga -m virtio-serial -p $device -t /tmp -f /tmp/agent.pid &\n";

/// Returns true if QEMU's guest agent is installed; if not, the test is reported as skipped.
pub fn has_agent() -> bool {
    let is_here = Path::new("/usr/sbin/qemu-ga").exists();
    if !is_here {
        skipped("qemu-ga is not installed (Debian: qemu-guest-agent)");
    }
    is_here
}

/// A folder of all users: QEMU, which has sockets and images in it, runs as one of its own.
pub fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// The device with its port, whose socket is in this folder.
pub fn agent_device(folder: &Path) -> [String; 6] {
    let chardev = format!(
        "socket,path={}/agent,server=on,wait=off,id=guests",
        folder.display()
    );
    let port = "virtserialport,bus=ports.0,chardev=guests,name=org.qemu.guest_agent.0";
    [
        "-device",
        "virtio-serial-pci,id=ports",
        "-chardev",
        &chardev,
        "-device",
        port,
    ]
    .map(str::to_owned)
}
