//! The checkpoints that a request passes: a table for each class of device. A row says what is observed for the checkpoint,
//! which side's clock stamps it, which layer the interval that leads to it counts for, and what it is called.
//! [`crate::Probes::checkpoints`] says which table a trial is read by.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

mod disk;
mod network;
mod tables;

pub use disk::DISK;
pub use network::NETWORK;

/// A point that a request passes. Those of one class of device are declared in the order in which its requests pass them,
/// between `Begin` and `End`, which all classes share.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Checkpoint {
    /// The workload's stamp before the operation; without stamps, the guest's block layer inserts the request.
    Begin,
    /// The guest's system call is entered.
    GuestCall,
    /// The guest's block layer issues the request.
    GuestIssue,
    /// The guest's driver kicks the virtqueue.
    GuestNotify,
    /// KVM handles the kick: ioeventfd or MMIO exit.
    KvmNotify,
    /// QEMU's event loop wakes.
    QemuWake,
    /// QEMU pops the request from the avail ring.
    QemuPop,
    /// QEMU's block layer submits the I/O.
    QemuSubmit,
    /// The host's system call that submits is entered.
    HostCall,
    /// The host's block layer issues the request.
    HostIssue,
    /// The host's block layer completes the request.
    HostComplete,
    /// QEMU reaps the completion.
    QemuReap,
    /// QEMU pushes the request to the used ring.
    QemuPush,
    /// QEMU notifies the guest.
    QemuNotify,
    /// The interrupt is delivered to the guest's interrupt controller, as a rule an MSI to its APIC.
    Inject,
    /// The guest's interrupt handler starts.
    GuestInterrupt,
    /// The guest's block layer completes the request.
    GuestComplete,
    /// The guest's system call returns.
    GuestReturn,
    /// The guest's system call that sends the request is entered.
    NetGuestCall,
    /// The guest's stack queues the packet for its card.
    NetGuestQueue,
    /// The guest's driver has the packet.
    NetGuestXmit,
    /// The guest's driver kicks the transmit queue.
    NetGuestKick,
    /// KVM handles the kick: ioeventfd or MMIO exit.
    NetKvmKick,
    /// The event loop that takes the packet from the virtqueue wakes for the kick: QEMU's, with vhost-user passt's.
    NetTxWake,
    /// QEMU hands the packet to its network backend.
    NetTx,
    /// QEMU's system call that writes the packet to the tap, or its payload to a socket, is entered.
    NetTapWrite,
    /// QEMU's system call that writes the packet to passt is entered.
    NetStreamWrite,
    /// passt's event loop wakes for the request.
    NetPasstWake,
    /// passt's system call that sends the request is entered.
    NetPasstSend,
    /// The vhost worker wakes for the kick.
    NetVhostWake,
    /// The vhost worker turns to the packet: it is awake, and done with the one before.
    NetVhostTake,
    /// The vhost worker hands the packet to the host's stack, by the tap.
    NetVhostSend,
    /// The host's stack receives the request.
    NetTapReceive,
    /// The system call by which the server receives the request returns.
    NetServerReceive,
    /// The server's system call that sends the response is entered.
    NetServerSend,
    /// The host's stack queues the response.
    NetHostQueue,
    /// The driver of the tap, or of the loopback device, has the response.
    NetHostXmit,
    /// QEMU's event loop wakes for the response.
    NetRxWake,
    /// QEMU's read copies the response from the tap or a socket.
    NetTapRead,
    /// The vhost worker wakes for the response.
    NetVhostReplyWake,
    /// The vhost worker's read copies the response from the tap.
    NetVhostRead,
    /// passt's event loop wakes for the response.
    NetPasstReplyWake,
    /// passt's read copies the response from its socket.
    NetPasstRead,
    /// passt's system call that writes the response to QEMU is entered.
    NetPasstWrite,
    /// passt, which has filled the guest's receive queue itself, notifies the guest.
    NetPasstNotify,
    /// QEMU's event loop wakes for what passt wrote.
    NetStreamWake,
    /// QEMU's read copies the response from passt.
    NetStreamRead,
    /// QEMU's network backend hands the response to the card.
    NetRx,
    /// QEMU has filled the receive queue's used ring.
    NetRxFill,
    /// QEMU notifies the guest of the response.
    NetRxNotify,
    /// The interrupt is delivered to the guest's interrupt controller, as a rule an MSI to its APIC.
    NetInject,
    /// The guest's interrupt handler starts.
    NetGuestInterrupt,
    /// The guest's driver hands the packet to its kernel, in NAPI's poll.
    NetGuestPoll,
    /// The guest's stack receives the packet.
    NetGuestReceive,
    /// The guest's system call that receives copies the response from its socket.
    NetGuestRead,
    /// The guest's system call that receives the response returns.
    NetGuestReturn,
    /// The workload's stamp after the operation.
    End,
}

/// The side of the VM's border that a checkpoint is on, whose clock stamps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The guest: its applications and its kernel.
    Guest,
    /// The host: KVM, QEMU, its kernel.
    Host,
}

/// A row of a checkpoint table.
#[derive(Debug)]
pub struct CheckpointInfo {
    pub checkpoint: Checkpoint,
    /// As tables name it.
    pub label: &'static str,
    pub side: Side,
    /// The layer of the interval that leads to it.
    pub layer: Layer,
    /// True if a request may lack it: it shares another's, or no notification or wake-up was needed.
    pub optional: bool,
    /// Sources that are traced to observe it; the workload's stamps are not among them.
    pub sources: &'static [EventSource],
}

/// A request that lacks this checkpoint is not followed.
const ALWAYS: bool = false;

/// A request may lack it: it shares another's, or no notification or wake-up was needed.
const OPTIONAL: bool = true;

/// The rows of a table: whose clock stamps the checkpoint, which it is, its label, the layer of the interval that leads to it,
/// whether every request passes it, and its sources.
macro_rules! checkpoints {
    ($($side:ident $checkpoint:ident $label:literal, $layer:ident, $optional:ident, [$($source:expr),*];)*) => {
        &[$(CheckpointInfo {
            checkpoint: Checkpoint::$checkpoint,
            label: $label,
            side: Side::$side,
            layer: Layer::$layer,
            optional: $optional,
            sources: &[$($source),*],
        }),*]
    };
}

use checkpoints;

/// A part of the stack that a request passes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
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
