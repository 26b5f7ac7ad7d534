//! A test guest with a VM's configuration: what a guest that vmtax boots copies from a running VM, from libvirt's XML or from a QEMU
//! command line. The original is only read: its process's arguments, the header of its image, its domain as libvirt prints it.

pub(crate) mod command_line;
mod domain;
mod domain_edit;
pub(crate) mod domain_xml;
pub(crate) mod drives;
pub(crate) mod line;
pub(crate) mod paste;
mod source;

pub use domain_edit::{DomainEdit, edit_domain};
pub use source::{read_text, read_twin, twin};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use vmtax_vmm::FindError;

/// The line about a backing image, which a twin lacks.
const BACKING: &str = "backing image: the scratch image has none";
/// The line about a VM's firmware and kernel, which a twin lacks.
const FIRMWARE: &str = "firmware and kernel: vmtax boots a kernel of its own";
/// The line about threads of a VM's cores, which a twin lacks.
const TOPOLOGY: &str = "vCPU topology: each vCPU is a core of its own";

/// Disks that an error names.
const MAX_NAMED: usize = 20;
/// More lines are no list that anybody reads.
const MAX_LINES: usize = 1000;

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
fn choose<'a, D>(
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
                known: first_of(all.iter().map(name_of), ", "),
            }),
    }
}

/// The first of several texts, with the number of the others: an error is a line.
fn first_of(all: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let others = all.len().saturating_sub(MAX_NAMED);
    let named: Vec<String> = all.take(MAX_NAMED).collect();
    match others {
        0 => named.join(between),
        others => format!("{}{between}and {others} more", named.join(between)),
    }
}

impl Twin {
    /// Takes over the format of the disk's image; raw is vmtax's own.
    fn set_format(&mut self, format: &str) {
        match format {
            "raw" => {}
            "qcow2" => self.disk.set("format", "qcow2"),
            other => self.lacks(format!("image format {other}: replaced by raw")),
        }
    }

    /// Names the disks among these that are not tuned.
    fn lacks_other_disks(&mut self, names: impl Iterator<Item = String>) {
        for name in names
            .filter(|name| *name != self.disk.name)
            .collect::<Vec<_>>()
        {
            self.lacks(format!(
                "disk {name}: only one disk is tuned; --disk selects another"
            ));
        }
    }

    /// One more thing that the twin has not.
    fn lacks(&mut self, line: impl Into<String>) {
        self.not_twinned.push(line.into());
    }

    /// Leaves each line about what the twin has not once, and says how many there are beyond [`MAX_LINES`].
    fn shorten_lines(&mut self) {
        let mut known = BTreeSet::new();
        let mut lines = std::mem::take(&mut self.not_twinned);
        lines.retain(|line| known.insert(line.clone()));
        let others = lines.len().saturating_sub(MAX_LINES);
        if others > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("{others} more settings"));
        }
        self.not_twinned = lines;
    }
}

impl TwinDisk {
    /// Sets a setting.
    fn set(&mut self, key: &str, value: impl Into<String>) {
        self.set.insert(key.to_owned(), value.into());
    }
}

/// Why there is no twin of a VM.
#[derive(Debug, thiserror::Error)]
pub enum TwinError {
    /// It is a name, and no VM has it.
    #[error(
        "'{name}': {found}; libvirt has no such domain either ({libvirt}), and there is no such file: give a VM, a domain's XML or a QEMU command line in quotes"
    )]
    NoVm {
        /// Name that was given.
        name: String,
        /// Why no running VM was found.
        found: FindError,
        /// Text that virsh printed.
        libvirt: String,
    },
    /// The name stands for several VMs, or a socket is of none.
    #[error(transparent)]
    Find(FindError),
    /// The file cannot be read.
    #[error("reading {file}: {source}")]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// It is no domain.
    #[error("this is not a libvirt domain: {0}. `virsh dumpxml DOMAIN` prints one")]
    Xml(String),
    /// A quote has no end.
    #[error("the QEMU command line has an unclosed quote: quote it as for a shell")]
    Quote,
    /// A variable of a shell is not filled in.
    #[error("the QEMU command line has the variable {0}: replace it with its value")]
    Variable(String),
    /// Something was left out of it.
    #[error(
        "the QEMU command line has {0}, which stands for something that was left out: put that in its place"
    )]
    LeftOut(String),
    /// It prints a list.
    #[error("the QEMU command line prints what QEMU has and starts no VM: give one that starts it")]
    Help,
    /// The VM's architecture is not x86.
    #[error("the VM's architecture is {0}: vmtax boots only x86-64 guests")]
    Architecture(String),
    /// No disk can be tuned.
    #[error(
        "the VM has no disk that vmtax can tune: give one with a virtio-blk, SCSI, SATA, IDE or NVMe disk on a file or block device"
    )]
    NoDisk,
    /// None of its disks can be tuned.
    #[error(
        "the VM has no disk that vmtax can tune ({0}): give one with a virtio-blk, SCSI, SATA, IDE or NVMe disk on a file or block device"
    )]
    NoUsableDisk(String),
    /// It has no disk of that name.
    #[error("the VM has no disk {name}; its disks: {known}")]
    UnknownDisk {
        /// As it was given.
        name: String,
        /// The disks there are.
        known: String,
    },
}

impl TwinError {
    /// Adds the reasons why the disks that there are cannot be tuned.
    fn because(self, left_out: &[String]) -> TwinError {
        match self {
            TwinError::NoDisk if !left_out.is_empty() => {
                TwinError::NoUsableDisk(first_of(left_out.iter().cloned(), "; "))
            }
            other => other,
        }
    }
}
