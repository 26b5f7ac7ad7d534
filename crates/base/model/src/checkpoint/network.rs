//! The table of round trips over the network.

use super::{
    ALWAYS, Checkpoint, CheckpointInfo, EventSource, Layer, NOTIFY, OPTIONAL, Scope, Side, WAITS,
    call, checkpoints, kvm, tracepoint,
};

/// Event that copies a packet to a program: from a tap, a TCP socket or a stream. A datagram in one piece is copied without it.
const READS: EventSource = tracepoint("skb", &["skb_copy_datagram_iovec"], Scope::Qemu);

/// A packet passes these where vhost-net moves it.
const OF_VHOST: &[Checkpoint] = &[
    Checkpoint::NetVhostWake,
    Checkpoint::NetVhostTake,
    Checkpoint::NetVhostSend,
    Checkpoint::NetVhostReplyWake,
    Checkpoint::NetVhostRead,
];

/// A packet passes these where QEMU reads and writes the tap or the sockets.
const OF_QEMU: &[Checkpoint] = &[
    Checkpoint::NetTx,
    Checkpoint::NetTapWrite,
    Checkpoint::NetRxWake,
    Checkpoint::NetTapRead,
    Checkpoint::NetRx,
    Checkpoint::NetRxFill,
    Checkpoint::NetRxNotify,
];

/// A packet passes some of these where passt moves it.
const OF_PASST: &[Checkpoint] = &[
    Checkpoint::NetStreamWrite,
    Checkpoint::NetPasstWake,
    Checkpoint::NetPasstSend,
    Checkpoint::NetPasstReplyWake,
    Checkpoint::NetPasstRead,
    Checkpoint::NetPasstWrite,
    Checkpoint::NetPasstNotify,
    Checkpoint::NetStreamWake,
    Checkpoint::NetStreamRead,
];

/// The checkpoints that a packet does not pass, in parts: where QEMU itself reads and writes the tap or the sockets, where
/// it passes packets to passt, where passt takes them from the guest's queues, and where vhost-net does.
pub(super) const NOT_PASSED: [&[&[Checkpoint]]; 4] = {
    use Checkpoint::*;
    [
        &[OF_PASST, OF_VHOST],
        &[
            &[NetTapWrite, NetRxWake, NetTapRead, NetPasstNotify],
            OF_VHOST,
        ],
        &[
            OF_QEMU,
            &[NetStreamWrite, NetPasstWake, NetPasstWrite, NetStreamRead],
            OF_VHOST,
        ],
        &[&[NetTxWake], OF_QEMU, OF_PASST],
    ]
};

/// The checkpoints of a round trip over the network: the guest's request through a virtio-net card and its backend to a server
/// on the host, and its response. An event that shows several of them is decoded as the first: what a thread does tells which.
/// Checkpoints of vhost have no event of their own: the worker's schedule shows them, and the packets that it hands over.
pub const NETWORK: &[CheckpointInfo] = checkpoints! {
    Guest NetGuestCall "guest send call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    Guest NetGuestQueue "guest packet queued", GuestKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::All)];
    Guest NetGuestXmit "guest driver transmits", GuestKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::All)
    ];
    Guest NetGuestKick "transmit queue kick", GuestKernel, OPTIONAL, [EventSource::Functions(NOTIFY)];
    Host NetKvmKick "transmit ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    Host NetTxWake "event loop wakes (kick)", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    Host NetTx "QEMU transmits", Qemu, OPTIONAL, [EventSource::Qemu("transmit")];
    Host NetTapWrite "write to tap or socket", Qemu, OPTIONAL, [call(&[&["sys_enter_writev"], &["sys_enter_sendto"]])];
    Host NetStreamWrite "write to passt", Qemu, OPTIONAL, [call(&[&["sys_enter_sendmsg"]])];
    Host NetPasstWake "passt wakes (request)", HostKernel, OPTIONAL, [WAITS];
    Host NetPasstSend "passt sends", Passt, ALWAYS, [call(&[&["sys_enter_sendmmsg"], &["sys_enter_sendmsg"]])];
    Host NetVhostWake "vhost worker wakes (kick)", Notify, OPTIONAL, [];
    Host NetVhostTake "vhost takes packet", Vhost, OPTIONAL, [];
    Host NetVhostSend "vhost sends to tap", Vhost, ALWAYS, [];
    Host NetTapReceive "host stack receives", HostKernel, ALWAYS, [
        tracepoint("net", &["netif_receive_skb"], Scope::Device)
    ];
    Host NetServerReceive "server receives", HostKernel, ALWAYS, [call(&[&["sys_exit_recvfrom"]])];
    Host NetServerSend "server sends", Server, ALWAYS, [call(&[&["sys_enter_sendto"]])];
    Host NetHostQueue "host packet queued", HostKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::Device)];
    Host NetHostXmit "host driver transmits", HostKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::Device)
    ];
    Host NetRxWake "QEMU event loop wakes (packet)", HostKernel, OPTIONAL, [WAITS];
    Host NetTapRead "read from tap or socket", Qemu, ALWAYS, [READS, call(&[&["sys_exit_recvfrom"]])];
    Host NetVhostReplyWake "vhost worker wakes (packet)", HostKernel, OPTIONAL, [];
    Host NetVhostRead "vhost reads from tap", Vhost, ALWAYS, [];
    Host NetPasstReplyWake "passt wakes (response)", HostKernel, OPTIONAL, [WAITS];
    Host NetPasstRead "passt receives", Passt, ALWAYS, [
        call(&[&["sys_exit_recvmmsg"], &["sys_exit_recvmsg"]]), READS
    ];
    Host NetPasstWrite "passt writes to QEMU", Passt, ALWAYS, [call(&[&["sys_enter_sendmsg"]])];
    Host NetPasstNotify "passt notifies the guest", Passt, OPTIONAL, [call(&[&["sys_enter_write"]])];
    Host NetStreamWake "QEMU event loop wakes (passt)", HostKernel, OPTIONAL, [WAITS];
    Host NetStreamRead "read from passt", Qemu, ALWAYS, [READS];
    Host NetRx "QEMU receives", Qemu, OPTIONAL, [EventSource::Qemu("receive")];
    Host NetRxFill "receive queue filled", Qemu, OPTIONAL, [EventSource::Qemu("fill")];
    Host NetRxNotify "receive queue notification", Qemu, OPTIONAL, [EventSource::Qemu("notify")];
    Host NetInject "receive MSI delivery (APIC)", Interrupt, OPTIONAL, [
        EventSource::Qemu("inject"), EventSource::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
        kvm(&["kvm_msi_set_irq"], Scope::All)
    ];
    Guest NetGuestInterrupt "guest receive interrupt", Interrupt, OPTIONAL, [
        tracepoint("irq", &["irq_handler_entry"], Scope::All)
    ];
    Guest NetGuestPoll "guest NAPI poll", GuestKernel, ALWAYS, [
        tracepoint("net", &["napi_gro_receive_entry"], Scope::All)
    ];
    Guest NetGuestReceive "guest stack receives", GuestKernel, ALWAYS, [
        tracepoint("net", &["netif_receive_skb"], Scope::All)
    ];
    Guest NetGuestRead "guest receive call copies", GuestKernel, OPTIONAL, [
        tracepoint("skb", &["skb_copy_datagram_iovec"], Scope::All), tracepoint("skb", &["consume_skb"], Scope::All)
    ];
    Guest NetGuestReturn "guest receive call returns", GuestKernel, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_exit"], Scope::All)
    ];
};
