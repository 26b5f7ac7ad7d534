//! Parts of test guests: the available kernel, copies of it with a defect, programs that only pretend to be QEMU,
//! QEMU's guest agent. And runs that several tests read: each test is a process of its own, so the first one makes it
//! and the others find it below `target/`.

use super::{Place, binary, files_below, json, skipped};
use serde_json::Value;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use vmtax_model::testing::KvmGuest;

/// A guest kernel and its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub image: PathBuf,
    pub modules: PathBuf,
    pub release: String,
}

/// The kernel that `vmtax run` would take; fetched if there is none.
pub fn kernel() -> &'static Kernel {
    static KERNEL: LazyLock<Kernel> = LazyLock::new(|| {
        let first = &doctor()["kernels"][0];
        let text = |name: &str| first[name].as_str().unwrap().to_owned();
        Kernel {
            image: text("image").into(),
            modules: text("modules").into(),
            release: text("release"),
        }
    });
    &KERNEL
}

/// Facts of this host as `vmtax doctor` prints them, once there is a kernel for guests.
fn doctor() -> Value {
    let folder = shared("doctor", &[Path::new(binary())], |folder| {
        let place = Place::new();
        let ask = || place.vmtax("doctor --json").succeeds().stdout;
        if json(&ask())["kernels"][0].is_null() {
            let got = place.vmtax("get kernel").start(600).outcome();
            assert_eq!(
                got.status,
                Some(0),
                "these tests boot guests and no kernel can be had for them\n{got}"
            );
        }
        fs::write(folder.join("doctor.json"), ask()).unwrap();
    });
    json(&fs::read_to_string(folder.join("doctor.json")).unwrap())
}

impl Kernel {
    /// A copy with the modules that a guest takes, without those of these names.
    pub fn copy(&self, place: &Place, without: &[&str]) -> Kernel {
        self.copy_with(place, &[], without)
    }

    /// Copies the kernel as [`Kernel::copy`] does, with additional modules: all whose names begin with one of `with`.
    pub fn copy_with(&self, place: &Place, with: &[&str], without: &[&str]) -> Kernel {
        const TAKEN: [&str; 7] = [
            "virtio",
            "ext4",
            "jbd2",
            "mbcache",
            "crc",
            "libcrc",
            "modules.builtin",
        ];
        let (image, modules) = (place.path("kernel/vmlinuz"), place.path("kernel/modules"));
        fs::create_dir_all(&modules).unwrap();
        fs::copy(&self.image, &image).unwrap();
        for file in files_below(&self.modules) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let stem = name.split('.').next().unwrap().replace('-', "_");
            if TAKEN
                .iter()
                .chain(with)
                .any(|taken| name.starts_with(taken))
                && !without.contains(&stem.as_str())
            {
                let copy = modules.join(file.strip_prefix(&self.modules).unwrap());
                fs::create_dir_all(copy.parent().unwrap()).unwrap();
                fs::copy(&file, &copy).unwrap();
            }
        }
        Kernel {
            image,
            modules,
            release: self.release.clone(),
        }
    }

    /// The options that name it.
    pub fn options(&self) -> String {
        format!(
            "--kernel {} --modules {}",
            self.image.display(),
            self.modules.display()
        )
    }
}

/// The QEMU that `vmtax run` would take.
pub fn qemu() -> &'static Path {
    static QEMU: LazyLock<PathBuf> =
        LazyLock::new(|| {
            let doctor = doctor();
            let path = doctor["qemu"][0]["path"].as_str();
            PathBuf::from(path.expect(
                "these tests boot guests: install QEMU with `apt-get install qemu-system-x86`",
            ))
        });
    &QEMU
}

/// The machine that boots a Linux guest fastest on this host, for tests in which any guest will do, and the options that describe
/// it: `kvm` where KVM runs one, else `tcg`.
pub fn fast_guest() -> (&'static str, String) {
    let is_native = || doctor()["kvm"]["class"] == "hardware";
    match std::env::var("VMTAX_TEST_KVM_GUEST") {
        Ok(kernel) => {
            let machine = "--machine kvm --machine-type microvm,pcie=on,rtc=on,acpi=on";
            (
                "kvm",
                format!("{machine} --kernel {kernel} {}", kvm_guest_options()),
            )
        }
        Err(_) if is_native() => ("kvm", "--machine kvm".to_owned()),
        Err(_) => ("tcg", "--machine tcg".to_owned()),
    }
}

/// The options of a [`KvmGuest`] besides its kernel.
pub fn kvm_guest_options() -> String {
    let args = KvmGuest::kernel_args(vmtax_clock::host_mhz());
    let args: String = args
        .iter()
        .map(|arg| format!(" --kernel-arg={arg}"))
        .collect();
    format!(
        "--firmware {} --cpu-model {}{args}",
        KvmGuest::FIRMWARE,
        KvmGuest::CPU_MODEL
    )
}

/// A program that answers what a QEMU is asked about itself; where a guest is to be started it runs `body` instead,
/// with the agent's channel on descriptor 4, the console on 5, the monitor on 6.
pub fn fake_qemu(place: &Place, body: &str) -> PathBuf {
    let real = qemu().display();
    place.script(
        "fake-qemu",
        &format!("case \"$*\" in *-initrd*) ;; *) exec {real} \"$@\" ;; esac\n{body}"),
    )
}

/// The real QEMU with more arguments at the end, which overrule those before them.
pub fn wrapped_qemu(place: &Place, arguments: &str) -> PathBuf {
    fake_qemu(
        place,
        &format!("exec {} \"$@\" {arguments}", qemu().display()),
    )
}

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

/// A lock of this name among all processes of these tests, released with the value.
pub fn lock(name: &str) -> File {
    let file = File::create(folder().join(format!("{name}.lock"))).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}

/// The directory of this name that `make` has filled for these files: the program, a guest's kernel. It is made once; where `make`
/// fails, the next test that asks tries again.
pub fn shared(name: &str, of: &[&Path], make: impl FnOnce(&Path)) -> PathBuf {
    let _lock = lock(name);
    let made = folder().join(format!("{name}-{:016x}", key(of)));
    if !made.exists() {
        // Earlier programs' are of no use.
        let entries = fs::read_dir(folder())
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let is_stale =
            |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains(&format!("/{name}-"));
        entries
            .filter(is_stale)
            .for_each(|path| fs::remove_dir_all(path).unwrap());
        let part = tempfile::tempdir_in(folder()).unwrap();
        make(part.path());
        fs::rename(part.keep(), &made).unwrap();
    }
    made
}

/// A recording of this name by this program, of guests of the usual kernel, that `make` puts into a directory.
pub fn shared_recording(name: &str, program: &str, make: impl FnOnce(&Path)) -> PathBuf {
    shared(name, &[Path::new(program), &kernel().image], make)
}

/// Copies the files below a folder, with their folders.
pub fn copy(from: &Path, to: &Path) {
    for file in files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Other files, or the same after a change, give another key.
fn key(files: &[&Path]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let metadata = fs::metadata(file).unwrap();
        (file, metadata.len(), metadata.modified().unwrap()).hash(&mut hasher);
    }
    hasher.finish()
}
