//! Parts of test guests: the available kernel, copies of it with a defect, programs that only pretend to be QEMU.

use super::{Place, binary, files_below, json, shared};
use serde_json::Value;
use std::fs;
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
