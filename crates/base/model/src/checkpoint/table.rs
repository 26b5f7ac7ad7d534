//! Every checkpoint, in one table: those of one class of device in the order in which its requests pass them, between the begin and
//! the end, which all classes share. And the table by which a trial is read.

use super::{DeviceClass, EventSource, Layer, NOTIFY, Scope, Side, WAITS, call, kvm, tracepoint};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// A row of the table of checkpoints.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointInfo {
    pub checkpoint: Checkpoint,
    /// Class of the devices whose requests pass it.
    pub class: DeviceClass,
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

/// Calls that submit I/O to the host's kernel.
const SUBMITS: EventSource = EventSource::Calls(&[
    &["sys_enter_io_submit"],
    &["sys_exit_io_submit"],
    &["sys_enter_io_uring_enter"],
    &["sys_exit_io_uring_enter"],
    &["sys_enter_pread64"],
    &["sys_exit_pread64"],
    &["sys_enter_pwrite64"],
    &["sys_exit_pwrite64"],
    &["sys_enter_preadv"],
    &["sys_exit_preadv"],
    &["sys_enter_pwritev"],
    &["sys_exit_pwritev"],
    &["sys_enter_preadv2"],
    &["sys_exit_preadv2"],
    &["sys_enter_pwritev2"],
    &["sys_exit_pwritev2"],
    &["sys_enter_fdatasync"],
    &["sys_exit_fdatasync"],
]);

/// Event that copies a packet to a program: from a tap, a TCP socket or a stream. A datagram in one piece is copied without it.
const READS: EventSource = tracepoint("skb", &["skb_copy_datagram_iovec"], Scope::Qemu);

/// Declares the checkpoints with their rows: the class of device, whose clock stamps it, which it is, its label, the layer of the
/// interval that leads to it, whether every request passes it, and its sources.
macro_rules! checkpoints {
    ($($(#[$doc:meta])* $class:ident $side:ident $checkpoint:ident $label:literal, $layer:ident, $optional:ident, [$($source:expr),*];)*) => {
        /// A point that a request passes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[derive(IntoStaticStr)]
        #[strum(serialize_all = "kebab-case")]
        pub enum Checkpoint {
            $($(#[$doc])* $checkpoint,)*
        }

        /// The row of each checkpoint, in the order of declaration.
        pub(super) const ROWS: &[CheckpointInfo; Checkpoint::COUNT] = &[$(CheckpointInfo {
            checkpoint: Checkpoint::$checkpoint,
            class: DeviceClass::$class,
            label: $label,
            side: Side::$side,
            layer: Layer::$layer,
            optional: $optional,
            sources: &[$($source),*],
        }),*];
    };
}

checkpoints! {
    /// The workload's stamp before the operation; without stamps, the guest's block layer inserts the request.
    Disk Guest Begin "workload begins", GuestApplication, ALWAYS, [tracepoint("block", &["block_rq_insert"], Scope::All)];
    /// The guest's system call is entered.
    Disk Guest GuestCall "guest system call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    /// The guest's block layer issues the request.
    Disk Guest GuestIssue "guest block issue", GuestKernel, ALWAYS, [tracepoint("block", &["block_rq_issue"], Scope::All)];
    /// The guest's driver kicks the virtqueue.
    Disk Guest GuestNotify "virtqueue kick", GuestKernel, OPTIONAL, [EventSource::Functions(NOTIFY)];
    /// KVM handles the kick: ioeventfd or MMIO exit.
    Disk Host KvmNotify "ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    /// QEMU's event loop wakes.
    Disk Host QemuWake "QEMU event loop wakes", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    /// QEMU pops the request from the avail ring.
    Disk Host QemuPop "QEMU takes request", Qemu, ALWAYS, [
        EventSource::Qemu("pop"), EventSource::Qemu("scsi"), EventSource::Qemu("begin"), EventSource::QemuLog("virtio_blk_handle_read"), EventSource::QemuLog("virtio_blk_handle_write")
    ];
    /// QEMU's block layer submits the I/O.
    Disk Host QemuSubmit "I/O submission", Qemu, ALWAYS, [
        EventSource::Qemu("submit"), EventSource::QemuLog("virtio_blk_submit_multireq")
    ];
    /// The host's system call that submits is entered.
    Disk Host HostCall "host system call", Qemu, ALWAYS, [SUBMITS];
    /// The host's block layer issues the request.
    Disk Host HostIssue "host block issue", HostKernel, ALWAYS, [
        tracepoint("block", &["block_rq_issue"], Scope::Device), tracepoint("block", &["block_bio_queue"], Scope::BioDevice)
    ];
    /// The host's block layer completes the request.
    Disk Host HostComplete "host block complete", Device, ALWAYS, [
        tracepoint("block", &["block_rq_complete"], Scope::Device), tracepoint("block", &["block_bio_complete"], Scope::BioDevice)
    ];
    /// QEMU reaps the completion.
    Disk Host QemuReap "completion reaped", HostKernel, OPTIONAL, [WAITS];
    /// QEMU pushes the request to the used ring.
    Disk Host QemuPush "QEMU completes request", Qemu, ALWAYS, [
        EventSource::Qemu("push"), EventSource::Qemu("end"), EventSource::QemuLog("virtio_blk_req_complete")
    ];
    /// QEMU notifies the guest.
    Disk Host QemuNotify "used buffer notification", Qemu, OPTIONAL, [
        EventSource::Qemu("notify"), EventSource::QemuLog("virtio_notify_irqfd")
    ];
    /// The interrupt is delivered to the guest's interrupt controller, as a rule an MSI to its APIC.
    Disk Host Inject "MSI delivery (APIC)", Interrupt, OPTIONAL, [
        EventSource::Qemu("inject"), EventSource::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
        kvm(&["kvm_msi_set_irq"], Scope::All)
    ];
    /// The guest's interrupt handler starts.
    Disk Guest GuestInterrupt "guest interrupt", Interrupt, OPTIONAL, [
        tracepoint("irq", &["irq_handler_entry"], Scope::All)
    ];
    /// The guest's block layer completes the request.
    Disk Guest GuestComplete "guest block complete", GuestKernel, ALWAYS, [
        tracepoint("block", &["block_rq_complete"], Scope::All)
    ];
    /// The guest's system call returns.
    Disk Guest GuestReturn "guest system call returns", GuestKernel, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_exit"], Scope::All)
    ];
    /// The guest's system call that sends the request is entered.
    Net Guest NetGuestCall "guest send call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    /// The guest's stack queues the packet for its card.
    Net Guest NetGuestQueue "guest packet queued", GuestKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::All)];
    /// The guest's driver has the packet.
    Net Guest NetGuestXmit "guest driver transmits", GuestKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::All)
    ];
    /// The guest's driver kicks the transmit queue.
    Net Guest NetGuestKick "transmit queue kick", GuestKernel, OPTIONAL, [EventSource::Functions(NOTIFY)];
    /// KVM handles the kick: ioeventfd or MMIO exit.
    Net Host NetKvmKick "transmit ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    /// The event loop that takes the packet from the virtqueue wakes for the kick: QEMU's, with vhost-user passt's.
    Net Host NetTxWake "event loop wakes (kick)", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    /// QEMU hands the packet to its network backend.
    Net Host NetTx "QEMU transmits", Qemu, OPTIONAL, [EventSource::Qemu("transmit")];
    /// QEMU's system call that writes the packet to the tap, or its payload to a socket, is entered.
    Net Host NetTapWrite "write to tap or socket", Qemu, OPTIONAL, [call(&[&["sys_enter_writev"], &["sys_enter_sendto"]])];
    /// QEMU's system call that writes the packet to passt is entered.
    Net Host NetStreamWrite "write to passt", Qemu, OPTIONAL, [call(&[&["sys_enter_sendmsg"]])];
    /// passt's event loop wakes for the request.
    Net Host NetPasstWake "passt wakes (request)", HostKernel, OPTIONAL, [WAITS];
    /// passt's system call that sends the request is entered.
    Net Host NetPasstSend "passt sends", Passt, ALWAYS, [call(&[&["sys_enter_sendmmsg"], &["sys_enter_sendmsg"]])];
    /// The vhost worker wakes for the kick.
    Net Host NetVhostWake "vhost worker wakes (kick)", Notify, OPTIONAL, [];
    /// The vhost worker turns to the packet: it is awake, and done with the one before.
    Net Host NetVhostTake "vhost takes packet", Vhost, OPTIONAL, [];
    /// The vhost worker hands the packet to the host's stack, by the tap.
    Net Host NetVhostSend "vhost sends to tap", Vhost, ALWAYS, [];
    /// The host's stack receives the request.
    Net Host NetTapReceive "host stack receives", HostKernel, ALWAYS, [
        tracepoint("net", &["netif_receive_skb"], Scope::Device)
    ];
    /// The system call by which the server receives the request returns.
    Net Host NetServerReceive "server receives", HostKernel, ALWAYS, [call(&[&["sys_exit_recvfrom"]])];
    /// The server's system call that sends the response is entered.
    Net Host NetServerSend "server sends", Server, ALWAYS, [call(&[&["sys_enter_sendto"]])];
    /// The host's stack queues the response.
    Net Host NetHostQueue "host packet queued", HostKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::Device)];
    /// The driver of the tap, or of the loopback device, has the response.
    Net Host NetHostXmit "host driver transmits", HostKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::Device)
    ];
    /// QEMU's event loop wakes for the response.
    Net Host NetRxWake "QEMU event loop wakes (packet)", HostKernel, OPTIONAL, [WAITS];
    /// QEMU's read copies the response from the tap or a socket.
    Net Host NetTapRead "read from tap or socket", Qemu, ALWAYS, [READS, call(&[&["sys_exit_recvfrom"]])];
    /// The vhost worker wakes for the response.
    Net Host NetVhostReplyWake "vhost worker wakes (packet)", HostKernel, OPTIONAL, [];
    /// The vhost worker's read copies the response from the tap.
    Net Host NetVhostRead "vhost reads from tap", Vhost, ALWAYS, [];
    /// passt's event loop wakes for the response.
    Net Host NetPasstReplyWake "passt wakes (response)", HostKernel, OPTIONAL, [WAITS];
    /// passt's read copies the response from its socket.
    Net Host NetPasstRead "passt receives", Passt, ALWAYS, [
        call(&[&["sys_exit_recvmmsg"], &["sys_exit_recvmsg"]]), READS
    ];
    /// passt's system call that writes the response to QEMU is entered.
    Net Host NetPasstWrite "passt writes to QEMU", Passt, ALWAYS, [call(&[&["sys_enter_sendmsg"]])];
    /// passt, which has filled the guest's receive queue itself, notifies the guest.
    Net Host NetPasstNotify "passt notifies the guest", Passt, OPTIONAL, [call(&[&["sys_enter_write"]])];
    /// QEMU's event loop wakes for what passt wrote.
    Net Host NetStreamWake "QEMU event loop wakes (passt)", HostKernel, OPTIONAL, [WAITS];
    /// QEMU's read copies the response from passt.
    Net Host NetStreamRead "read from passt", Qemu, ALWAYS, [READS];
    /// QEMU's network backend hands the response to the card.
    Net Host NetRx "QEMU receives", Qemu, OPTIONAL, [EventSource::Qemu("receive")];
    /// QEMU has filled the receive queue's used ring.
    Net Host NetRxFill "receive queue filled", Qemu, OPTIONAL, [EventSource::Qemu("fill")];
    /// QEMU notifies the guest of the response.
    Net Host NetRxNotify "receive queue notification", Qemu, OPTIONAL, [EventSource::Qemu("notify")];
    /// The interrupt is delivered to the guest's interrupt controller, as a rule an MSI to its APIC.
    Net Host NetInject "receive MSI delivery (APIC)", Interrupt, OPTIONAL, [
        EventSource::Qemu("inject"), EventSource::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
        kvm(&["kvm_msi_set_irq"], Scope::All)
    ];
    /// The guest's interrupt handler starts.
    Net Guest NetGuestInterrupt "guest receive interrupt", Interrupt, OPTIONAL, [
        tracepoint("irq", &["irq_handler_entry"], Scope::All)
    ];
    /// The guest's driver hands the packet to its kernel, in NAPI's poll.
    Net Guest NetGuestPoll "guest NAPI poll", GuestKernel, ALWAYS, [
        tracepoint("net", &["napi_gro_receive_entry"], Scope::All)
    ];
    /// The guest's stack receives the packet.
    Net Guest NetGuestReceive "guest stack receives", GuestKernel, ALWAYS, [
        tracepoint("net", &["netif_receive_skb"], Scope::All)
    ];
    /// The guest's system call that receives copies the response from its socket.
    Net Guest NetGuestRead "guest receive call copies", GuestKernel, OPTIONAL, [
        tracepoint("skb", &["skb_copy_datagram_iovec"], Scope::All), tracepoint("skb", &["consume_skb"], Scope::All)
    ];
    /// The guest's system call that receives the response returns.
    Net Guest NetGuestReturn "guest receive call returns", GuestKernel, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_exit"], Scope::All)
    ];
    /// The workload's stamp after the operation.
    Disk Guest End "workload ends", GuestApplication, ALWAYS, [];
}

impl Checkpoint {
    /// Number of checkpoints of all classes.
    pub const COUNT: usize = Checkpoint::End as usize + 1;
}

/// The checkpoints of a request to a virtio disk.
pub const DISK: &[CheckpointInfo] = &rows_of::<{ count(DeviceClass::Disk) }>(DeviceClass::Disk);

/// The checkpoints of a round trip over the network: the guest's request through a virtio-net card and its backend to a server
/// on the host, and its response. An event that shows several of them is decoded as the first: what a thread does tells which.
/// Checkpoints of vhost have no event of their own: the worker's schedule shows them, and the packets that it hands over.
pub const NETWORK: &[CheckpointInfo] = &rows_of::<{ count(DeviceClass::Net) }>(DeviceClass::Net);

/// Returns the number of rows of a class of device.
const fn count(class: DeviceClass) -> usize {
    let (mut rows, mut i) = (0, 0);
    while i < ROWS.len() {
        rows += (ROWS[i].class as usize == class as usize) as usize;
        i += 1;
    }
    rows
}

/// Returns the rows of a class of device; begin and end, which all classes share, are among those of disks.
const fn rows_of<const N: usize>(class: DeviceClass) -> [CheckpointInfo; N] {
    let mut rows = [ROWS[0]; N];
    let (mut row, mut i) = (0, 0);
    while i < ROWS.len() {
        if ROWS[i].class as usize == class as usize {
            rows[row] = ROWS[i];
            row += 1;
        }
        i += 1;
    }
    rows
}

/// The tables of all classes of devices. What they share, the begin and the end, stands in the first.
const TABLES: [&[CheckpointInfo]; 2] = [DISK, NETWORK];

impl Checkpoint {
    /// Every checkpoint, in the order of declaration: `ALL[c as usize] == c`.
    pub const ALL: [Checkpoint; Checkpoint::COUNT] = {
        let mut all = [Checkpoint::Begin; Checkpoint::COUNT];
        let mut i = 0;
        while i < all.len() {
            all[i] = ROWS[i].checkpoint;
            i += 1;
        }
        all
    };

    /// Returns true if a request may pass both checkpoints: they are of one class of device, where begin and end
    /// belong to all classes, and of one backend.
    pub fn is_on_path_with(self, other: Checkpoint) -> bool {
        let has_both = |table: &[CheckpointInfo]| {
            let has = |checkpoint| {
                matches!(checkpoint, Checkpoint::Begin | Checkpoint::End)
                    || table.iter().any(|info| info.checkpoint == checkpoint)
            };
            has(self) && has(other)
        };
        let passes =
            |not: &[&[Checkpoint]], one: Checkpoint| !not.iter().any(|part| part.contains(&one));
        let passes_both = |not: &[&[Checkpoint]]| passes(not, self) && passes(not, other);
        TABLES.into_iter().any(has_both) && NOT_PASSED.into_iter().any(passes_both)
    }

    /// Returns the checkpoint's row.
    pub const fn info(self) -> &'static CheckpointInfo {
        &ROWS[self as usize]
    }

    /// Returns the checkpoint's name in JSON and, with underscores, in exported columns.
    pub fn id(self) -> &'static str {
        self.into()
    }

    /// As tables name it.
    pub const fn label(self) -> &'static str {
        self.info().label
    }
}

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
const NOT_PASSED: [&[&[Checkpoint]]; 4] = {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::EventSource;

    #[test]
    fn checkpoints_are_listed_in_their_order_with_the_names_that_json_has() {
        for (i, checkpoint) in Checkpoint::ALL.into_iter().enumerate() {
            assert_eq!(
                (checkpoint as usize, checkpoint.info().checkpoint),
                (i, checkpoint)
            );
            assert_eq!(serde_json::to_value(checkpoint).unwrap(), checkpoint.id());
        }
    }

    /// The rows of the tables in docs/layers.md and docs/network.md.
    #[test]
    fn the_documented_tables_are_these() {
        let disk = include_str!("../../../../../docs/layers.md");
        let network = include_str!("../../../../../docs/network.md");
        for (docs, table) in [(disk, DISK), (network, NETWORK)] {
            let (_, rows) = docs
                .split_once("| checkpoint | event | source |\n|---|---|---|\n")
                .unwrap();
            let rows: Vec<&str> = rows
                .lines()
                .take_while(|line| line.starts_with('|'))
                .collect();
            assert_eq!(rows.len(), table.len());
            for (row, info) in rows.into_iter().zip(table) {
                assert!(
                    row.starts_with(&format!("| {} |", info.label)),
                    "{}: {row}",
                    info.label
                );
                for source in info.sources {
                    let named = match source {
                        EventSource::Tracepoint { names, .. } => row.contains(names[0]),
                        EventSource::Calls(calls) => row.contains(calls[0][0]),
                        EventSource::Functions(functions) => row.contains(functions[0]),
                        EventSource::Qemu(_) => row.contains("uprobe"),
                        EventSource::QemuLog(_) => docs.contains("QEMU's own log"),
                    };
                    assert!(named, "{source:?} is not in: {row}");
                }
            }
        }
    }

    #[test]
    fn paths_share_their_begin_and_end_alone() {
        use Checkpoint as C;
        assert!(
            C::GuestCall.is_on_path_with(C::End) && C::Begin.is_on_path_with(C::NetGuestReturn)
        );
        assert!(C::NetTx.is_on_path_with(C::NetRx) && !C::NetTx.is_on_path_with(C::QemuPop));
        // A packet goes by passt or does not.
        assert!(
            C::NetPasstSend.is_on_path_with(C::NetRx)
                && C::NetPasstSend.is_on_path_with(C::NetPasstRead)
        );
        assert!(
            C::NetPasstNotify.is_on_path_with(C::NetPasstRead)
                && C::NetPasstNotify.is_on_path_with(C::NetInject)
        );
        assert!(
            !C::NetPasstNotify.is_on_path_with(C::NetRx)
                && !C::NetPasstNotify.is_on_path_with(C::NetPasstWrite)
        );
        assert!(
            !C::NetPasstSend.is_on_path_with(C::NetTapRead)
                && !C::NetTapWrite.is_on_path_with(C::NetStreamRead)
        );
    }
}
