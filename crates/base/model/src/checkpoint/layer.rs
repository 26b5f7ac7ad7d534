//! The layers that a request passes, and what it does in them.

use serde::{Deserialize, Serialize};

/// A part of the stack that a request passes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::VariantArray,
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

/// State of a request while it is in a layer.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A CPU executes for it, or the device works on it.
    Running,
    /// A runnable thread of QEMU waits for a host CPU: steal as the guest sees it, %RDY in esxtop.
    Runnable,
    /// A runnable task of the guest waits for a vCPU.
    GuestRunnable,
    /// An idle host CPU leaves its C-state for a thread that was woken.
    CpuWakeUp,
    /// An idle vCPU leaves its idle state, HLT, for a task of the guest that was woken.
    GuestCpuWakeUp,
    /// A thread waits for a lock.
    Lock,
    /// The thread that will work for it sleeps and was not woken yet.
    Waiting,
    /// It is queued in the avail ring, without a kick.
    InRing,
    /// It lies in a queue of the host's network stack, until a timer or another packet moves it on.
    Queued,
    /// It is in a layer whose threads the trace does not show.
    NotDistinguished,
}

impl State {
    /// As tables name it.
    pub const fn label(self) -> &'static str {
        match self {
            State::Running => "service time",
            State::Runnable => "run-queue wait (host)",
            State::GuestRunnable => "run-queue wait (guest)",
            State::CpuWakeUp => "C-state exit (host)",
            State::GuestCpuWakeUp => "C-state exit (guest)",
            State::Lock => "waiting for a lock",
            State::Waiting => "blocked",
            State::InRing => "queued in the avail ring, no kick",
            State::Queued => "queued in a queueing discipline",
            State::NotDistinguished => "not distinguished",
        }
    }
}
