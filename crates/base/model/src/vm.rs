//! A virtual machine as it is observed: one that vmtax booted, or one that runs already; states in which its guest does not run.

use crate::{Accelerator, Missing, QemuThread, Role, Vmm};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The process of a running VM, or another one that is profiled, as a plan names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmIdentity {
    /// PID of the process on the host.
    pub pid: i32,
    /// When it started, clock ticks after the host's boot: a PID is used again. `None` in plans of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// The VM's name, for people; of another process the name of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Facts about a virtual machine at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmFacts {
    /// PID of the VMM's process.
    pub pid: i32,
    /// The guest's name, libvirt's name of the domain; null where it has none.
    pub name: Option<String>,
    /// True if another VM of the host has this name: commands to copy name the VM by its PID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_name: bool,
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
    /// True if the guest has a vsock of the host's kernel (`/dev/vhost-vsock`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_vsock: bool,
    /// Control group of the process: of version 2, or of the CPU controller of version 1.
    pub cgroup: Option<String>,
    /// The control groups of its main loop, vCPU threads and iothreads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thread_groups: Vec<ThreadGroup>,
    /// Data and settings that can be observed or changed from here.
    pub abilities: Vec<Ability>,
}

impl VmFacts {
    /// Returns true if the VM is another user's, so that only root may change it.
    pub fn needs_root(&self) -> bool {
        let mut abilities = self.abilities.iter();
        abilities.any(|one| one.what == AbilityName::SetAffinity && one.missing.is_some())
    }

    /// Returns the argument that names the VM in a command to copy: its name where no other VM has it and no shell would take
    /// it for something else, else its PID.
    pub fn argument(&self) -> String {
        let name = self.name.as_ref().filter(|_| !self.shares_name);
        Self::argument_for(name, self.pid)
    }

    /// Returns the control groups of this thread, where they are known.
    pub fn thread_group(&self, tid: i32) -> Option<&ThreadGroup> {
        self.thread_groups.iter().find(|group| group.tid == tid)
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
            ..VmFacts::default()
        }
    }
}

/// The control group that decides on which CPUs a thread of a VM may run: of version 2, or of the cpuset controller of version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadGroup {
    /// TID of the thread.
    pub tid: i32,
    /// The group's folder.
    pub folder: PathBuf,
    /// The content of its `cpuset.cpus`; null where it has no such file.
    pub cpus: Option<String>,
    /// File of the thread's CPU quota, `cpu.max` or of version 1 `cpu.cfs_quota_us`, with `cpu.stat` beside it; null
    /// where the thread is in the root group, which has none.
    #[serde(default)]
    pub quota: Option<PathBuf>,
    /// True if the group has processes that are not the VM's.
    pub is_shared: bool,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleSource {
    /// The VMM's monitor.
    Monitor,
    /// The threads' names (QEMU's `debug-threads=on`).
    #[default]
    Names,
    /// The vCPU on which each thread waits in `KVM_RUN`.
    KvmRun,
    /// Those that the kernel accounts guest time to, numbered in their order where they do not wait in `KVM_RUN`.
    GuestTime,
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
    /// The host's block device beneath, under partitions and volumes, as the kernel's block events print it; null where
    /// there is not exactly one.
    pub host_device: Option<u64>,
    /// The block device that the disk itself is, by the same number; null where it is a file.
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

/// State of a guest, as its monitor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The vCPUs may run.
    Running,
    /// They are stopped: `paused`, `prelaunch`, `io-error`, `postmigrate`, … as QEMU's `RunState` has it.
    Stopped(String),
}

impl RunState {
    /// QEMU's word for the state in which the guest does not run; `None` while it does.
    pub fn stopped(&self) -> Option<&str> {
        match self {
            RunState::Running => None,
            RunState::Stopped(why) => Some(why),
        }
    }
}

/// Cause of all threads of a process being stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessStop {
    /// A signal, such as SIGSTOP: state T.
    Signal,
    /// The tracer of this name, such as a debugger: state t.
    Tracer(String),
}

/// A thread that does not run, and where in the kernel it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedThread {
    /// TID on the host.
    pub tid: i32,
    /// Role of the thread.
    pub role: Role,
    /// True in uninterruptible sleep (state D).
    pub is_uninterruptible: bool,
    /// The kernel's function in which it waits, `/proc/PID/task/TID/wchan`; null without the permission.
    pub wait_channel: Option<String>,
}

/// The failure of a guest's kernel that a console has last, of the guest's last boot. The guest writes the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFailure {
    /// Consequence for the guest.
    pub kind: FailureKind,
    /// The kernel's line without its time, at most 160 characters.
    pub line: String,
    /// The file to which QEMU writes the console, as QEMU's arguments or libvirt name it.
    pub file: PathBuf,
    /// Time since something was last written to the file, s.
    pub age_s: u64,
}

/// Consequence of a kernel's failure for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The kernel panicked: nothing of the guest runs.
    Panic,
    /// A CPU does not leave the kernel: a soft or hard lockup, an RCU stall.
    Lockup,
    /// The kernel ended the task in which a bug showed (an oops).
    Oops,
}

/// The ID that a user gave a device, by the path of it, or of a part of it, among QEMU's objects:
/// `/machine/peripheral/ID/…`; `None` for a device without.
pub fn device_id(path: &str) -> Option<&str> {
    path.strip_prefix("/machine/peripheral/")?.split('/').next()
}

/// Target of a disk (`vda`) by libvirt's ID of its device (`virtio-disk0`), which is also what Linux calls it where nobody chose
/// otherwise; `None` for another ID.
pub fn libvirt_target(id: &str) -> Option<String> {
    let virtio = || id.strip_prefix("virtio-disk")?.parse().ok();
    let (bus, number) = match virtio() {
        Some(number) => ("vd", number),
        None => ("sd", scsi(id).or_else(|| sata(id))?),
    };
    Some(format!("{bus}{}", letters(number)))
}

/// The number of a SCSI disk, `scsi0-0-0-3`: controller, bus, target, unit. Fifteen units a controller have disks, all but
/// the seventh, which is the controller's own.
fn scsi(id: &str) -> Option<u32> {
    let [controller, _, _, unit] = numbers(id.strip_prefix("scsi")?)?;
    (unit < 16 && unit != 7).then_some(())?;
    controller
        .checked_mul(15)?
        .checked_add(unit - u32::from(unit > 7))
}

/// The number of a SATA disk, `sata0-0-1`: controller, bus, unit. Six units a controller.
fn sata(id: &str) -> Option<u32> {
    let [controller, _, unit] = numbers(id.strip_prefix("sata")?)?;
    (unit < 6)
        .then(|| controller.checked_mul(6)?.checked_add(unit))
        .flatten()
}

/// Exactly so many numbers between hyphens.
fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let numbers: Option<Vec<u32>> = text.split('-').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The letters of a disk's name by its number: a to z, aa, ab, ….
fn letters(number: u32) -> String {
    let last = char::from(b'a' + (number % 26) as u8);
    if number < 26 {
        last.to_string()
    } else {
        format!("{}{last}", letters(number / 26 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_called_as_libvirt_and_the_guest_do() {
        let target_of = |id| libvirt_target(id).unwrap_or_default();
        assert_eq!(
            [
                "virtio-disk0",
                "virtio-disk26",
                "scsi0-0-0-3",
                "scsi1-0-0-8"
            ]
            .map(target_of),
            ["vda", "vdaa", "sdd", "sdw"]
        );
        assert_eq!(["sata0-0-1", "sata1-0-5"].map(target_of), ["sdb", "sdl"]);
        let others = [
            "scsi0-0-0-7",
            "scsi0",
            "scsi0-0-0-0-0",
            "scsi4294967295-0-0-1",
            "sata0-0-6",
            "virtio-disk",
            "disk0",
            "",
        ];
        assert_eq!(others.map(target_of), [""; 8]);
    }

    #[test]
    fn disks_are_numbered_as_libvirt_and_the_kernel_do() {
        let names = [0, 1, 25, 26, 27, 51, 52, 701, 702].map(letters);
        assert_eq!(names, ["a", "b", "z", "aa", "ab", "az", "ba", "zz", "aaa"]);
    }
}
