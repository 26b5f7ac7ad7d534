//! Why there is no twin.

use crate::FindError;
use std::path::PathBuf;

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
    #[error("this is no domain of libvirt: {0}. `virsh dumpxml DOMAIN` prints one")]
    Xml(String),
    /// A quote has no end.
    #[error("the QEMU command line has a quote without its end: quote it as for a shell")]
    Quote,
    /// A variable of a shell is not filled in.
    #[error(
        "the QEMU command line has {0}, a variable without its value: put the value in its place"
    )]
    Variable(String),
    /// The VM's architecture is not x86.
    #[error("the VM is of {0}: vmtax boots guests of x86-64 alone")]
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
    pub(super) fn because(self, left_out: &[String]) -> TwinError {
        match self {
            TwinError::NoDisk if !left_out.is_empty() => {
                TwinError::NoUsableDisk(left_out.join("; "))
            }
            other => other,
        }
    }
}
