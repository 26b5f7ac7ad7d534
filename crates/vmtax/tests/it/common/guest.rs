//! What guests are made of: the kernel there is, copies of it with something wrong, QEMUs that are none.

use super::{Place, files_below, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

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
        found().unwrap_or_else(|| {
            let place = Place::new();
            let got = place.vmtax("get kernel").start(600).outcome();
            assert_eq!(got.status, Some(0), "these tests boot guests and no kernel can be had for them\n{got}");
            found().expect("`vmtax get kernel` succeeded, and `vmtax doctor` still finds none")
        })
    });
    &KERNEL
}

fn found() -> Option<Kernel> {
    let place = Place::new();
    let doctor = json(&place.vmtax("doctor --json").succeeds().stdout);
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let first = doctor["kernels"].get(0)?;
    Some(Kernel {
        image: text(&first["image"])?.into(),
        modules: text(&first["modules"])?.into(),
        release: text(&first["release"])?,
    })
}

impl Kernel {
    /// A copy with the modules that a guest takes, without those of these names.
    pub fn copy(&self, place: &Place, without: &[&str]) -> Kernel {
        self.copy_with(place, &[], without)
    }

    /// The same with more of them: all whose names begin so.
    pub fn copy_with(&self, place: &Place, with: &[&str], without: &[&str]) -> Kernel {
        const TAKEN: [&str; 7] = ["virtio", "ext4", "jbd2", "mbcache", "crc", "libcrc", "modules.builtin"];
        let (image, modules) = (place.path("kernel/vmlinuz"), place.path("kernel/modules"));
        fs::create_dir_all(&modules).unwrap();
        fs::copy(&self.image, &image).unwrap();
        for file in files_below(&self.modules) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let stem = name.split('.').next().unwrap().replace('-', "_");
            if TAKEN.iter().chain(with).any(|taken| name.starts_with(taken)) && !without.contains(&stem.as_str()) {
                let copy = modules.join(file.strip_prefix(&self.modules).unwrap());
                fs::create_dir_all(copy.parent().unwrap()).unwrap();
                fs::copy(&file, &copy).unwrap();
            }
        }
        Kernel { image, modules, release: self.release.clone() }
    }

    /// The options that name it.
    pub fn options(&self) -> String {
        format!("--kernel {} --modules {}", self.image.display(), self.modules.display())
    }
}

/// The QEMU that `vmtax run` would take.
pub fn qemu() -> &'static Path {
    static QEMU: LazyLock<PathBuf> = LazyLock::new(|| {
        let place = Place::new();
        let doctor = json(&place.vmtax("doctor --json").succeeds().stdout);
        let path = doctor["qemu"][0]["path"].as_str();
        PathBuf::from(path.expect("these tests boot guests: install QEMU with `apt-get install qemu-system-x86`"))
    });
    &QEMU
}

/// A program that answers what a QEMU is asked about itself; where a guest is to be started it runs `body` instead,
/// with the agent's channel on descriptor 4, the console on 5, the monitor on 6.
pub fn fake_qemu(place: &Place, body: &str) -> PathBuf {
    let real = qemu().display();
    place.script("fake-qemu", &format!("case \"$*\" in *-initrd*) ;; *) exec {real} \"$@\" ;; esac\n{body}"))
}

/// The real QEMU with more arguments at the end, which overrule those before them.
pub fn wrapped_qemu(place: &Place, arguments: &str) -> PathBuf {
    fake_qemu(place, &format!("exec {} \"$@\" {arguments}", qemu().display()))
}
