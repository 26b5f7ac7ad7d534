//! VMs that others started: QEMUs by hand, domains of libvirt.

use super::{Place, skipped};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Any start here is over then, also on a busy host.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until it is so.
pub fn until<T>(what: &str, holds: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that ends with the value.
pub struct Ends(pub Child);

impl Ends {
    pub fn start(program: &str, words: &str) -> Ends {
        let mut command = Command::new(program);
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ends(command.spawn().unwrap())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let id = self.0.id().to_string();
        let _ = Command::new("kill").arg(&id).status();
        let _ = self.0.wait();
    }
}

/// libvirt's daemons of the system, started where none answers, and a domain in them. Both end with the value.
pub struct Domain {
    pub name: String,
    _daemons: Vec<Ends>,
}

impl Domain {
    /// `None`, and said, where libvirt is not installed.
    pub fn start(place: &Place, disk: &Path) -> Option<Domain> {
        if !Path::new("/usr/sbin/libvirtd").exists() || !Path::new("/usr/bin/virsh").exists() {
            skipped("libvirt is not installed");
            return None;
        }
        let answers = || virsh(&["list"]).is_some();
        let mut daemons = Vec::new();
        if !answers() {
            daemons = ["/usr/sbin/libvirtd", "/usr/sbin/virtlogd"].map(|daemon| Ends::start(daemon, "")).into();
            until("libvirt answers", || answers().then_some(()));
        }
        let name = format!("vmtax-test-{}", std::process::id());
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>96</memory><vcpu>2</vcpu>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>\
             <driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>\
             <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>",
            disk.display()
        );
        let domain = Domain { name, _daemons: daemons };
        let xml = place.put("domain.xml", xml);
        assert!(virsh(&["create", xml.to_str().unwrap()]).is_some(), "no domain of {}", xml.display());
        Some(domain)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        virsh(&["destroy", &self.name]);
    }
}

/// What virsh prints; `None` where it fails.
pub fn virsh(words: &[&str]) -> Option<String> {
    let output = Command::new("virsh").args(["-q", "-c", "qemu:///system"]).args(words).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
