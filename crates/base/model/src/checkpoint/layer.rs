//! The layers that a request passes.

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
        }
    }
}
