//! The checkpoints that a request passes. A row of their table says what is observed for the checkpoint, which side's clock stamps
//! it, which layer the interval that leads to it counts for, and what it is called.
//! [`crate::Probes::checkpoints`] says which table a trial is read by.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

mod table;

pub use table::{Checkpoint, CheckpointInfo, DISK, NETWORK};

/// A class of a guest's devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceClass {
    /// Disks: block requests.
    #[default]
    Disk,
    /// Network cards: packets.
    Net,
}

impl DeviceClass {
    pub(crate) fn is_disk(&self) -> bool {
        *self == DeviceClass::Disk
    }
}

/// The side of the VM's border that a checkpoint is on, whose clock stamps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The guest: its applications and its kernel.
    Guest,
    /// The host: KVM, QEMU, its kernel.
    Host,
}

/// A part of the stack that a request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(VariantArray)]
pub enum Layer {
    /// The program in the guest.
    GuestApplication,
    /// The guest's kernel, or the micro-guest's driver.
    GuestKernel,
    /// From the virtqueue kick to QEMU's event loop.
    Notify,
    /// KVM, the hypervisor in the host's kernel.
    Kvm,
    /// QEMU, the process that runs the VM.
    Qemu,
    /// The host's kernel.
    HostKernel,
    /// The host's disk.
    Device,
    /// From QEMU's used buffer notification to the guest's interrupt handler.
    Interrupt,
    /// The server that answers a request over the network.
    Server,
    /// passt, a process between QEMU and the host's sockets.
    Passt,
    /// A thread of the host's kernel that moves packets between the guest's queues and the tap (vhost-net).
    Vhost,
    /// From QEMU taking a request out of the virtqueue to completing it, where QEMU's trace alone shows the request: QEMU's
    /// block layer and all beneath.
    BelowVirtqueue,
    /// From the guest's driver to the interrupt, where the guest's trace alone shows the request: KVM, QEMU and the host.
    BelowGuest,
}

impl Layer {
    /// As tables name it.
    pub const fn label(self) -> &'static str {
        match self {
            Layer::GuestApplication => "guest application",
            Layer::GuestKernel => "guest kernel",
            Layer::Notify => "notification",
            Layer::Kvm => "KVM",
            Layer::Qemu => "QEMU",
            Layer::HostKernel => "host kernel",
            Layer::Device => "device",
            Layer::Interrupt => "interrupt",
            Layer::Server => "echo server",
            Layer::Passt => "passt",
            Layer::Vhost => "vhost",
            Layer::BelowVirtqueue => "below QEMU's virtqueue",
            Layer::BelowGuest => "below the guest kernel",
        }
    }
}

/// EventSource of a checkpoint: the events that are traced to observe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// A tracepoint of the side's kernel.
    Tracepoint {
        system: &'static str,
        /// Name per kernel version, the newest first.
        names: &'static [&'static str],
        /// Scope events count.
        of: Scope,
    },
    /// Tracepoints of single system calls of QEMU's threads.
    Calls(&'static [&'static [&'static str]]),
    /// Functions of the guest's kernel, of which each kernel has some: kprobes on them record the event `notify`.
    Functions(&'static [&'static str]),
    /// Uprobes on functions of QEMU, by the event that they record.
    Qemu(&'static str),
    /// An event in QEMU's own log, where the host's kernel may not be traced.
    QemuLog(&'static str),
}

/// Scope events count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// System-wide: an interrupt may hit any thread.
    All,
    /// Of QEMU's threads.
    Qemu,
    /// Of the host's device behind the guest's: the block device that holds the disk, or the tap.
    Device,
    /// The block device that holds the disk, where that has no request queue.
    BioDevice,
}

/// Prefix of the groups of vmtax's own probes.
pub const PROBE_GROUP: &str = "vmtax_";

impl EventSource {
    /// Returns true if an event of a trace comes from this source.
    pub fn gives(&self, system: &str, name: &str) -> bool {
        match self {
            EventSource::Tracepoint {
                system: of, names, ..
            } => *of == system && names.contains(&name),
            EventSource::Calls(calls) => {
                system == "syscalls" && calls.iter().any(|names| names.contains(&name))
            }
            // Where a kernel has no kprobes, its function tracer records the function.
            EventSource::Functions(_) => {
                (system.starts_with(PROBE_GROUP) && name == "notify")
                    || (system, name) == ("ftrace", "function")
            }
            EventSource::Qemu(event) => system.starts_with(PROBE_GROUP) && *event == name,
            EventSource::QemuLog(event) => system == "qemu" && *event == name,
        }
    }
}

pub(super) const fn tracepoint(
    system: &'static str,
    names: &'static [&'static str],
    of: Scope,
) -> EventSource {
    EventSource::Tracepoint { system, names, of }
}

pub(super) const fn kvm(name: &'static [&'static str], of: Scope) -> EventSource {
    tracepoint("kvm", name, of)
}

/// Returns from waiting for work.
pub(super) const WAITS: EventSource = EventSource::Calls(&[
    &["sys_exit_ppoll"],
    &["sys_exit_poll"],
    &["sys_exit_select", "sys_exit_newselect"],
    &["sys_exit_pselect6"],
    &["sys_exit_epoll_wait"],
    &["sys_exit_epoll_pwait"],
    &["sys_exit_epoll_pwait2"],
    &["sys_exit_io_getevents"],
    &["sys_exit_io_pgetevents"],
]);

/// One system call.
pub(super) const fn call(names: &'static [&'static [&'static str]]) -> EventSource {
    EventSource::Calls(names)
}

/// Functions by which a guest's kernel kicks a virtqueue, 3.x to 6.x; newer kernels add the second of each.
pub(super) const NOTIFY: &[&str] = &[
    "vp_notify",
    "vp_notify_with_data",
    "vm_notify",
    "vm_notify_with_data",
];
