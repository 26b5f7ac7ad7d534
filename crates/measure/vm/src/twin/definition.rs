//! Configuration that a test guest has of its original.

use super::error::TwinError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Configuration that a test guest, booted by vmtax, takes over from a user's VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Twin {
    /// Where it is from: `libvirt domain web01 (PID 4711)`.
    pub source: String,
    /// The QEMU, where it is on this host.
    pub qemu: Option<PathBuf>,
    /// True if KVM runs the VM; `None` where nothing says so.
    pub is_kvm: Option<bool>,
    /// As for QEMU's `-machine`; `None` for QEMU's default.
    pub machine_type: Option<String>,
    /// As for QEMU's `-cpu`; `None` for QEMU's default.
    pub cpu_model: Option<String>,
    /// Memory of the guest, MiB.
    pub memory_mib: u64,
    /// Number of vCPUs.
    pub cpus: u32,
    /// The disk that is tuned.
    pub disk: TwinDisk,
    /// Settings of the VM that the test guest does not have, a line each.
    pub not_twinned: Vec<String>,
    /// The domain's name, where it is one.
    pub domain_name: Option<String>,
    /// The domain as libvirt has it stored, where it is one.
    pub domain_xml: Option<String>,
}

/// A disk of the original.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TwinDisk {
    /// Name of the disk in the original: libvirt's target (`vda`), the ID of the device or drive.
    pub name: String,
    /// The image, as it is found from here.
    pub file: Option<PathBuf>,
    /// The guest's disk, bytes; `None` where the image cannot be read.
    pub size: Option<u64>,
    /// True where nothing but the image itself tells its format.
    pub is_format_probed: bool,
    /// Settings of the disk, as in a plan's variant.
    pub set: BTreeMap<String, String>,
}

/// The disk of that name, else the first.
pub(super) fn choose<'a, D>(
    all: &'a [D],
    name: Option<&str>,
    name_of: impl Fn(&D) -> String,
) -> Result<&'a D, TwinError> {
    match name {
        None => all.first().ok_or(TwinError::NoDisk),
        Some(name) => all
            .iter()
            .find(|disk| name_of(disk) == name)
            .ok_or_else(|| TwinError::UnknownDisk {
                name: name.to_owned(),
                known: all.iter().map(name_of).collect::<Vec<_>>().join(", "),
            }),
    }
}

impl Twin {
    /// One more thing that the twin has not.
    pub(super) fn lacks(&mut self, line: impl Into<String>) {
        let line = line.into();
        if !self.not_twinned.contains(&line) {
            self.not_twinned.push(line);
        }
    }
}

impl TwinDisk {
    /// Sets a setting.
    pub(super) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.set.insert(key.to_owned(), value.into());
    }
}
