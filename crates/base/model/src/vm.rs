//! A virtual machine as it is observed: one that vmtax booted, or one that runs already.

use crate::{
    Accelerator, KernelFailure, Missing, ProcessStop, QemuThread, RunState, ThreadGroup, Vmm,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Facts about a virtual machine at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmFacts {
    /// PID of the VMM's process.
    pub pid: i32,
    /// The guest's name, libvirt's name of the domain; null where it has none.
    pub name: Option<String>,
    /// Program file of the VMM.
    pub binary: Option<PathBuf>,
    /// VMM that runs the VM.
    pub vmm: Vmm,
    /// Version of the VMM; null without a monitor.
    pub version: Option<String>,
    /// Who started it; null where it was started by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<Managed>,
    /// Accelerator that executes the guest's instructions; null where nothing says so.
    pub accelerator: Option<Accelerator>,
    /// Signal or tracer that stopped its process; null while its threads may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_stop: Option<ProcessStop>,
    /// State of the guest by its monitor or libvirt; null where neither answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// Time within which the monitor did not answer, s, though no other client is known to be connected; null where it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor_timeout_s: Option<f64>,
    /// Failure of the guest's kernel at the end of a console that QEMU writes to a file; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_failure: Option<KernelFailure>,
    /// The vCPUs that it started with.
    #[serde(default)]
    pub vcpus: usize,
    /// The guest's memory at its start, bytes.
    #[serde(default)]
    pub memory: u64,
    /// Where the roles of the vCPU threads are known from.
    pub roles_from: RoleSource,
    /// Threads of the VMM with their roles.
    pub threads: Vec<QemuThread>,
    /// Disks of the guest.
    pub disks: Vec<VmDisk>,
    /// Network interfaces of the guest that have a tap device on the host.
    pub nics: Vec<VmNic>,
    /// Control group of the process: of version 2, or of the CPU controller of version 1.
    pub cgroup: Option<String>,
    /// The control groups of its main loop, vCPU threads and iothreads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thread_groups: Vec<ThreadGroup>,
    /// Data and settings that can be observed or changed from here.
    pub abilities: Vec<Ability>,
}

impl VmFacts {
    /// Returns the argument that names the VM in a command to copy: its name where no shell would take it for
    /// something else, else its PID.
    pub fn argument(&self) -> String {
        Self::argument_for(self.name.as_ref(), self.pid)
    }

    /// Returns the argument that names the VM of a process in a command to copy, as [`VmFacts::argument`].
    pub fn argument_for(name: Option<&String>, pid: i32) -> String {
        let is_plain = |name: &&String| {
            !name.is_empty()
                && !name.starts_with('-')
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        name.filter(is_plain)
            .cloned()
            .unwrap_or_else(|| pid.to_string())
    }

    /// A QEMU of which nothing is known but its process.
    pub fn unknown(pid: i32) -> VmFacts {
        VmFacts {
            pid,
            name: None,
            binary: None,
            vmm: Vmm::Qemu,
            version: None,
            managed: None,
            accelerator: None,
            process_stop: None,
            state: None,
            monitor_timeout_s: None,
            kernel_failure: None,
            vcpus: 0,
            memory: 0,
            roles_from: RoleSource::Names,
            threads: Vec::new(),
            disks: Vec::new(),
            nics: Vec::new(),
            cgroup: None,
            thread_groups: Vec::new(),
            abilities: Vec::new(),
        }
    }
}

/// A VM that a program manages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// Program that manages the VM.
    pub manager: Manager,
    /// Identifier that the program has for the VM: libvirt's UUID, Proxmox's number.
    pub id: String,
}

/// A program that starts VMs and uses their monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// libvirt's daemon of the system: `qemu:///system`.
    Libvirt,
    /// libvirt's daemon of a user: `qemu:///session`, as of GNOME Boxes.
    LibvirtSession,
    /// libvirt in a pod of KubeVirt.
    KubeVirt,
    /// Proxmox Virtual Environment (Proxmox VE).
    Proxmox,
}

impl Manager {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Manager::Libvirt => "libvirt",
            Manager::LibvirtSession => "libvirt (session)",
            Manager::KubeVirt => "KubeVirt",
            Manager::Proxmox => "Proxmox",
        }
    }

    /// Returns true if libvirt has the VM's monitor.
    pub fn is_libvirt(self) -> bool {
        self != Manager::Proxmox
    }
}

/// Where roles of threads are known from, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleSource {
    /// The VMM's monitor.
    Monitor,
    /// The threads' names (QEMU's `debug-threads=on`).
    Names,
    /// The vCPU on which each thread waits in `KVM_RUN`.
    KvmRun,
    /// The threads with most CPU time are taken for the vCPUs: a guess.
    CpuTime,
}

/// A disk of a running guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmDisk {
    /// The name of its device, else of its block node; empty without a monitor.
    pub id: String,
    /// The file or device behind it, as the VMM names it.
    pub file: PathBuf,
    /// The image's format; null without a monitor.
    pub format: Option<String>,
    /// True if the disk is read past the host's page cache (`O_DIRECT`); null where that is not known.
    pub direct: Option<bool>,
    /// True if the guest may only read.
    pub read_only: bool,
    /// Method of submitting requests (`aio=`); null where the command line does not name the file.
    pub aio: Option<String>,
    /// The iothread that serves it; null for the main loop, or without a monitor.
    pub iothread: Option<String>,
    /// The host's block device beneath, under partitions and volumes, as the kernel's block events print it; null where there is not
    /// exactly one.
    pub host_device: Option<u64>,
    /// The block device that the disk itself is, by the same number; null where it is a file.
    #[serde(default)]
    pub own_device: Option<u64>,
    /// Extents of the file on that device, as far as the file system tells of all of them.
    pub extents: Option<usize>,
}

/// A tap device of a running guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmNic {
    /// The interface on the host.
    pub tap: String,
    /// Number of queues of the tap device.
    pub queues: usize,
    /// True if the kernel moves the packets (vhost-net).
    pub vhost: bool,
}

/// Something that can be observed or changed of a running guest, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ability {
    /// Name of the ability.
    pub what: AbilityName,
    /// Obstacle to it; null where there is none.
    pub missing: Option<Missing>,
}

/// Ability to observe or change a running guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbilityName {
    /// Sample the stacks of its threads.
    SampleThreads,
    /// Trace the kernel's events of it: the scheduler, system calls, block requests.
    TraceKernel,
    /// Count its VM exits.
    CountExits,
    /// Run and observe workloads inside the guest.
    GuestAgent,
    /// Ask the VMM, and change devices that it lets change.
    Monitor,
    /// Ask QEMU's guest agent: the guest's disks and CPU times.
    QemuGuestAgent,
    /// Set the host CPUs of its threads.
    SetAffinity,
    /// Set limits of its control group.
    SetCgroup,
}
