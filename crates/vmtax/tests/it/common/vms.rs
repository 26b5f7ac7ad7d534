//! VMs that others started: QEMUs by hand, domains of libvirt.

use super::{Place, is_root, json, lock, skipped};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Any start here is over then, also on a busy host.
const LIMIT: Duration = Duration::from_secs(180);

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

/// A figure: its name, what was found, the truth, and the least distance that counts.
pub type Compared = (&'static str, f64, f64, f64);

/// Compares figures until each is within 5 % of its truth, or at the least distance, five times at most; returns the tries.
pub fn until_near<const N: usize>(compared: impl Fn() -> [Compared; N]) -> Vec<[Compared; N]> {
    let is_near =
        |(_, found, truth, least): &Compared| (found - truth).abs() <= (truth * 0.05).max(*least);
    let mut tries = vec![compared()];
    while tries.len() < 5 && !tries[tries.len() - 1].iter().all(is_near) {
        tries.push(compared());
    }
    assert!(tries[tries.len() - 1].iter().all(is_near), "{tries:#?}");
    tries
}

/// A process that ends with the value.
pub struct Ends(pub Child);

impl Ends {
    pub fn start(program: &str, words: &str) -> Ends {
        Ends::start_with(program, words.split_whitespace())
    }

    /// Starts it with arguments that may have blanks.
    pub fn start_with(
        program: &str,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Ends {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
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

/// A VM under TCG with one vCPU that executes `jmp $`, started by hand, with a name of its own.
pub struct Busy {
    pub name: String,
    qemu: Ends,
}

impl Busy {
    pub fn start(place: &Place, name: &str, more: &str) -> Busy {
        // EB FE is a jump to itself; 55 AA makes a boot sector of it.
        let mut sector = vec![0xeb, 0xfe];
        sector.resize(510, 0);
        sector.extend([0x55, 0xaa]);
        let boot = place.put(&format!("{name}.img"), sector);
        let name = format!("{name}-{}", std::process::id());
        let words = format!(
            "-nodefaults -display none -accel tcg -m 16 -name {name},debug-threads=on -drive file={},format=raw,if=ide {more}",
            boot.display()
        );
        let busy = Busy {
            name,
            qemu: Ends::start("qemu-system-x86_64", &words),
        };
        until("it runs", || {
            vmtax_vmm::running().contains(&busy.pid()).then_some(())
        });
        busy
    }

    pub fn pid(&self) -> i32 {
        self.qemu.0.id() as i32
    }

    /// Returns the VM's rates in one interval of `vmtax top`.
    pub fn rates(&self, place: &Place, options: &str) -> Value {
        let words = format!("top {} --json {options}", self.pid());
        let sample = json(&place.vmtax(&words).succeeds().stdout);
        assert_eq!(
            (
                &sample["schema"],
                &sample["vms"].as_array().unwrap().len().into()
            ),
            (&2.into(), &Value::from(1))
        );
        sample["vms"][0].clone()
    }
}

/// A control group with a CPU quota; removed with the value.
pub struct Quota(pub PathBuf);

impl Quota {
    /// A fifth of a CPU. `None` where this host has no CPU controller for us.
    pub fn set() -> Option<Quota> {
        let name = format!("vmtax-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        let (folder, file, value) = match first.exists() {
            true => (
                Path::new("/sys/fs/cgroup/cpu").join(name),
                "cpu.cfs_quota_us",
                "20000",
            ),
            false => (
                Path::new("/sys/fs/cgroup").join(name),
                "cpu.max",
                "20000 100000",
            ),
        };
        fs::create_dir(&folder).ok()?;
        let quota = Quota(folder);
        fs::write(quota.0.join(file), value).ok().map(|()| quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs a daemon of libvirt.
const DAEMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/common/daemon.py");

/// libvirt's daemons of the system, started where none answers; those end with the value.
pub struct Libvirt {
    _daemons: Vec<Ends>,
    /// One test at a time: the daemons that it started end with it.
    _alone: File,
}

impl Libvirt {
    /// `None`, and said, where libvirt is not installed, or does not run and this is not root.
    pub fn start() -> Option<Libvirt> {
        if !Path::new("/usr/sbin/libvirtd").exists() || !Path::new("/usr/bin/virsh").exists() {
            skipped("libvirt is not installed");
            return None;
        }
        let alone = lock("libvirt");
        let answers = || virsh(&["list"]).is_some();
        let mut daemons = Vec::new();
        if !answers() {
            if !is_root() {
                skipped("libvirt's daemons do not run, and only root starts them");
                return None;
            }
            let start = |daemon: &str| Ends::start("python3", &format!("{DAEMON} {daemon}"));
            daemons = ["/usr/sbin/libvirtd", "/usr/sbin/virtlogd"]
                .map(start)
                .into();
            until("libvirt answers", || answers().then_some(()));
        }
        Some(Libvirt {
            _daemons: daemons,
            _alone: alone,
        })
    }
}

/// A domain that runs in them until the value ends.
pub struct Domain {
    pub name: String,
    _libvirt: Libvirt,
}

impl Domain {
    /// `None`, and said, where there is no libvirt. `limits` is an element of the disk's XML, or nothing.
    pub fn start(place: &Place, disk: &Path, limits: &str) -> Option<Domain> {
        Domain::create(place, |name| {
            format!(
                "<domain type='qemu'><name>{name}</name><memory unit='MiB'>96</memory><vcpu>2</vcpu>\
                 <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>\
                 <driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/>{limits}</disk>\
                 <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>",
                disk.display()
            )
        })
    }

    /// One of this XML, which has the name that is given. `None`, and said, where there is no libvirt.
    pub fn create(place: &Place, xml: impl FnOnce(&str) -> String) -> Option<Domain> {
        let libvirt = Libvirt::start()?;
        let name = format!("vmtax-test-{}", std::process::id());
        let xml = xml(&name);
        let domain = Domain {
            name,
            _libvirt: libvirt,
        };
        let xml = place.put("domain.xml", xml);
        assert!(
            virsh(&["create", xml.to_str().unwrap()]).is_some(),
            "no domain of {}",
            xml.display()
        );
        Some(domain)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        virsh(&["destroy", &self.name]);
    }
}

/// Returns the output of virsh; `None` if it fails.
pub fn virsh(words: &[&str]) -> Option<String> {
    let output = Command::new("virsh")
        .args(["-q", "-c", "qemu:///system"])
        .args(words)
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
