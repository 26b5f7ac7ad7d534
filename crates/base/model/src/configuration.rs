//! Configuration of a VM as people paste it, or as the command line of a running QEMU has it: a QEMU command line, a domain of
//! libvirt, a file of Proxmox.

use crate::Manager;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Configuration of a VM, as far as a text tells it. What the text does not say is absent, not guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmConfiguration {
    /// Kind and name of the text's VM: `libvirt domain web01`.
    pub source: String,
    /// Program that starts the VM; `None` for a command line, whoever wrote it.
    pub manager: Option<Manager>,
    /// False where TCG runs the VM; `None` where nothing says so.
    pub is_kvm: Option<bool>,
    /// Machine type, without its properties.
    pub machine_type: Option<String>,
    /// CPU model; `None` for QEMU's default.
    pub cpu_model: Option<String>,
    /// Features of the CPU that are switched, with dashes in their names.
    pub cpu_features: BTreeMap<String, bool>,
    /// Hyper-V enlightenments that are switched, without `hv-`.
    pub enlightenments: BTreeMap<String, bool>,
    /// True where the manager or the text switches all enlightenments on by itself.
    pub has_all_enlightenments: bool,
    /// Words of the text that say that the guest is Windows; `None` where nothing does.
    pub windows: Option<String>,
    /// Number of vCPUs.
    pub cpus: u32,
    /// Number of the guest's CPU sockets; `None` where that is left to QEMU.
    pub sockets: Option<u32>,
    /// Memory of the guest, bytes.
    pub memory: u64,
    /// True where its memory is of huge pages.
    pub has_huge_pages: bool,
    /// True where the guest has an HPET; `None` where that is left to QEMU.
    pub hpet: Option<bool>,
    /// Mode of KVM's interrupt controller: `on`, `split`, `off`.
    pub irqchip: Option<String>,
    /// Options that make every instruction slower: `-icount`, `-d`.
    pub debugging: Vec<String>,
    /// Programs before QEMU that decide where and how it runs.
    pub wrappers: Vec<String>,
    /// True where the guest has a USB tablet, whose position QEMU's USB controller asks for.
    pub has_usb_tablet: bool,
    /// CPU limit of the VM in host CPUs, thousandths.
    pub cpu_limit: Option<u64>,
    /// The VM's disks.
    pub disks: Vec<ConfiguredDisk>,
    /// The VM's network cards.
    pub nics: Vec<ConfiguredNic>,
    /// Directories that are shared by 9p: tag and security model.
    pub shares_9p: Vec<(String, String)>,
    /// Number of further QEMU command lines in the text, which were not read.
    pub further_lines: usize,
}

/// A disk in a VM's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfiguredDisk {
    /// Name of the disk in the text: libvirt's target, Proxmox's key, ID of the device or drive.
    pub name: String,
    /// Bus: `virtio-blk`, `virtio-scsi`, `ide`, `sata`, `nvme`, or the model of another SCSI controller.
    pub bus: String,
    /// Driver of storage that is no file or device of the host, as `rbd`.
    pub network_storage: Option<String>,
    /// Format of the image; `None` where the text does not name it.
    pub format: Option<String>,
    /// QEMU's cache mode.
    pub cache: String,
    /// QEMU's engine of requests; `None` where it is left to QEMU.
    pub aio: Option<String>,
    /// True where the disk has an iothread.
    pub has_iothread: bool,
    /// Limits, as QEMU names them without `throttling.`: `iops-total` and its value.
    pub limits: BTreeMap<String, String>,
    /// True where reads are copied into the image.
    pub is_copied_on_read: bool,
}

/// A network card in a VM's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfiguredNic {
    /// Name of the card in the text.
    pub name: String,
    /// Model of the card: `virtio`, `e1000`; empty where it is not named.
    pub model: String,
    /// Kind of its backend: `user`, `tap`, `bridge`, `network`; empty where it is not named.
    pub backend: String,
    /// False where QEMU itself moves the packets of a tap; `None` where that is left to the manager.
    pub has_vhost: Option<bool>,
    /// Limit of its traffic, as the text writes it.
    pub limit: Option<String>,
}

/// VM exits of one reason, as `perf kvm stat report` prints them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExitReportRow {
    /// Reason, as the text writes it.
    pub reason: String,
    /// Number of exits.
    pub count: u64,
    /// Time until the guest runs again, ns each.
    pub mean_ns: f64,
}

impl ExitReportRow {
    /// Returns the time of all these exits, ns.
    pub fn time_ns(&self) -> f64 {
        self.count as f64 * self.mean_ns
    }

    /// Returns true for a vCPU that is halted or waits at an address.
    pub fn is_idle(&self) -> bool {
        let reason = self.reason.to_ascii_lowercase();
        ["hlt", "mwait", "mwait_instruction", "monitor_instruction"].contains(&reason.as_str())
    }
}

/// An output of fio.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FioOutput {
    /// Name of the text: its file, `-` for the standard input, `the argument`.
    pub source: String,
    /// Jobs, in the output's order.
    pub jobs: Vec<FioJob>,
}

/// A job of fio, as its output says what it did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FioJob {
    /// Name of the job.
    pub name: String,
    /// Options of the job, as far as the output repeats them: `rw`, `bs`, `iodepth`, `ioengine`, `direct`.
    pub options: BTreeMap<String, String>,
    /// Jobs of that name that ran at once.
    pub count: u32,
    /// Requests a second of reads and writes.
    pub iops: f64,
    /// Mean completion latency, ns, weighted by requests.
    pub completion_ns: f64,
}
