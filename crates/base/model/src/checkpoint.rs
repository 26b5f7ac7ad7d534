//! The checkpoints that a request passes: a table for each class of device. A row says what is observed for the checkpoint,
//! which side's clock stamps it, which layer the interval that leads to it counts for, and what it is called.
//! [`crate::Probes::checkpoints`] says which table a trial is read by.

use serde::{Deserialize, Serialize};

/// A part of the stack that a request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The program in the guest.
    GuestApplication,
    /// The guest's kernel, or the micro-guest's driver.
    GuestKernel,
    /// From the virtqueue kick to QEMU's event loop.
    Notify,
    /// KVM itself.
    Kvm,
    /// QEMU.
    Qemu,
    /// The host's kernel.
    HostKernel,
    /// The host's disk.
    Device,
    /// From QEMU's used-ring notification to the guest's interrupt handler.
    Interrupt,
    /// The server that answers a request over the network.
    Server,
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
        }
    }
}

/// What a request does while it is in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A CPU executes for it, or the device works on it.
    Running,
    /// A runnable thread of QEMU waits for a host CPU: steal as the guest sees it, %RDY in esxtop.
    Runnable,
    /// A runnable task of the guest waits for a vCPU.
    GuestRunnable,
    /// An idle CPU, of the host or the guest, leaves its idle state for it.
    #[serde(alias = "idle-wakes")]
    CpuWakeUp,
    /// A thread waits for a lock.
    Lock,
    /// The thread that will work for it sleeps and was not woken yet.
    Waiting,
    /// It is queued in the avail ring, without a kick.
    InRing,
    /// It lies in a queue of the host's network stack, until a timer or another packet moves it on.
    Queued,
}

impl State {
    /// As tables name it.
    pub const fn label(self) -> &'static str {
        match self {
            State::Running => "service time",
            State::Runnable => "run-queue wait (host)",
            State::GuestRunnable => "run-queue wait (guest)",
            State::CpuWakeUp => "CPU wake-up from idle",
            State::Lock => "waiting for a lock",
            State::Waiting => "blocked",
            State::InRing => "queued in the avail ring, no kick",
            State::Queued => "queued in a queueing discipline",
        }
    }
}

/// A point that a request passes. Those of one class of device are declared in the order in which its requests pass them,
/// between `Begin` and `End`, which all classes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
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
    /// QEMU's event loop wakes for the kick.
    NetTxWake,
    /// QEMU hands the packet to its network backend.
    NetTx,
    /// QEMU's system call that writes the packet to the tap is entered.
    NetTapWrite,
    /// The host's stack receives the packet from the tap.
    NetTapReceive,
    /// The system call by which the server receives the request returns.
    NetServerReceive,
    /// The server's system call that sends the response is entered.
    NetServerSend,
    /// The host's stack queues the response for the tap.
    NetHostQueue,
    /// The tap's driver has the response.
    NetHostXmit,
    /// QEMU's event loop wakes for the response.
    NetRxWake,
    /// QEMU's read copies the response from the tap.
    NetTapRead,
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
    /// The guest's system call that receives the response returns.
    NetGuestReturn,
    /// The workload's stamp after the operation.
    End,
}

/// The side of the VM's border that a checkpoint is on, whose clock stamps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The guest.
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
    /// Whether a request may lack it: it shares another's, or no notification or wake-up was needed.
    pub optional: bool,
    /// What is traced to observe it; not the workload's stamps.
    pub sources: &'static [Source],
}

/// What is traced to observe a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
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
}

/// Prefix of the groups of vmtax's own probes.
pub const PROBE_GROUP: &str = "vmtax_";

impl Source {
    /// Whether an event of a trace comes from this source.
    pub fn gives(&self, system: &str, name: &str) -> bool {
        match self {
            Source::Tracepoint { system: of, names, .. } => *of == system && names.contains(&name),
            Source::Calls(calls) => system == "syscalls" && calls.iter().any(|names| names.contains(&name)),
            // Where a kernel has no kprobes, its function tracer records the function.
            Source::Functions(_) => {
                (system.starts_with(PROBE_GROUP) && name == "notify") || (system, name) == ("ftrace", "function")
            }
            Source::Qemu(event) => system.starts_with(PROBE_GROUP) && *event == name,
            Source::QemuLog(event) => system == "qemu" && *event == name,
        }
    }
}

const fn tracepoint(system: &'static str, names: &'static [&'static str], of: Scope) -> Source {
    Source::Tracepoint { system, names, of }
}

const fn kvm(name: &'static [&'static str], of: Scope) -> Source {
    tracepoint("kvm", name, of)
}

/// Returns from waiting for work.
const WAITS: Source = Source::Calls(&[
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

/// Calls that submit I/O to the host's kernel.
const SUBMITS: Source = Source::Calls(&[
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

/// One system call.
const fn call(names: &'static [&'static [&'static str]]) -> Source {
    Source::Calls(names)
}

/// Functions by which a guest's kernel kicks a virtqueue, 3.x to 6.x; newer kernels add the second of each.
const NOTIFY: &[&str] = &["vp_notify", "vp_notify_with_data", "vm_notify", "vm_notify_with_data"];

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

/// The checkpoints of a request to a virtio disk.
pub const DISK: &[CheckpointInfo] = checkpoints! {
    Guest Begin "workload begins", GuestApplication, ALWAYS, [tracepoint("block", &["block_rq_insert"], Scope::All)];
    Guest GuestCall "guest system call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    Guest GuestIssue "guest block issue", GuestKernel, ALWAYS, [tracepoint("block", &["block_rq_issue"], Scope::All)];
    Guest GuestNotify "virtqueue kick", GuestKernel, OPTIONAL, [Source::Functions(NOTIFY)];
    Host KvmNotify "ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    Host QemuWake "QEMU event loop wakes", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    Host QemuPop "virtqueue pop", Qemu, ALWAYS, [
        Source::Qemu("pop"), Source::QemuLog("virtio_blk_handle_read"), Source::QemuLog("virtio_blk_handle_write")
    ];
    Host QemuSubmit "I/O submission", Qemu, ALWAYS, [
        Source::Qemu("submit"), Source::QemuLog("virtio_blk_submit_multireq")
    ];
    Host HostCall "host system call", Qemu, ALWAYS, [SUBMITS];
    Host HostIssue "host block issue", HostKernel, ALWAYS, [tracepoint("block", &["block_rq_issue"], Scope::Device)];
    Host HostComplete "host block complete", Device, ALWAYS, [
        tracepoint("block", &["block_rq_complete"], Scope::Device)
    ];
    Host QemuReap "completion reaped", HostKernel, OPTIONAL, [WAITS];
    Host QemuPush "virtqueue push", Qemu, ALWAYS, [Source::Qemu("push"), Source::QemuLog("virtio_blk_req_complete")];
    Host QemuNotify "used-ring notification", Qemu, OPTIONAL, [
        Source::Qemu("notify"), Source::QemuLog("virtio_notify_irqfd")
    ];
    Host Inject "MSI delivery (APIC)", Interrupt, OPTIONAL, [
        Source::Qemu("inject"), Source::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
        kvm(&["kvm_msi_set_irq"], Scope::All)
    ];
    Guest GuestInterrupt "guest interrupt", Interrupt, OPTIONAL, [
        tracepoint("irq", &["irq_handler_entry"], Scope::All)
    ];
    Guest GuestComplete "guest block complete", GuestKernel, ALWAYS, [
        tracepoint("block", &["block_rq_complete"], Scope::All)
    ];
    Guest GuestReturn "guest system call returns", GuestKernel, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_exit"], Scope::All)
    ];
    Guest End "workload ends", GuestApplication, ALWAYS, [];
};

/// The checkpoints of a round trip over the network: the guest's request through a virtio-net card and a tap to a server on
/// the host, and its response.
pub const NETWORK: &[CheckpointInfo] = checkpoints! {
    Guest NetGuestCall "guest send call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    Guest NetGuestQueue "guest packet queued", GuestKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::All)];
    Guest NetGuestXmit "guest driver transmits", GuestKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::All)
    ];
    Guest NetGuestKick "transmit queue kick", GuestKernel, OPTIONAL, [Source::Functions(NOTIFY)];
    Host NetKvmKick "transmit ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    Host NetTxWake "QEMU event loop wakes (kick)", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    Host NetTx "QEMU transmits", Qemu, OPTIONAL, [Source::Qemu("transmit")];
    Host NetTapWrite "write to the tap", Qemu, OPTIONAL, [call(&[&["sys_enter_writev"]])];
    Host NetTapReceive "host receives from the tap", HostKernel, ALWAYS, [
        tracepoint("net", &["netif_receive_skb"], Scope::Device)
    ];
    Host NetServerReceive "server receives", HostKernel, ALWAYS, [call(&[&["sys_exit_recvfrom"]])];
    Host NetServerSend "server sends", Server, ALWAYS, [call(&[&["sys_enter_sendto"]])];
    Host NetHostQueue "host packet queued", HostKernel, ALWAYS, [tracepoint("net", &["net_dev_queue"], Scope::Device)];
    Host NetHostXmit "packet in the tap's queue", HostKernel, ALWAYS, [
        tracepoint("net", &["net_dev_start_xmit"], Scope::Device)
    ];
    Host NetRxWake "QEMU event loop wakes (packet)", HostKernel, OPTIONAL, [WAITS];
    Host NetTapRead "read from the tap", Qemu, ALWAYS, [tracepoint("skb", &["skb_copy_datagram_iovec"], Scope::Qemu)];
    Host NetRx "QEMU receives", Qemu, OPTIONAL, [Source::Qemu("receive")];
    Host NetRxFill "receive queue filled", Qemu, OPTIONAL, [Source::Qemu("fill")];
    Host NetRxNotify "receive queue notification", Qemu, OPTIONAL, [Source::Qemu("notify")];
    Host NetInject "receive MSI delivery (APIC)", Interrupt, OPTIONAL, [
        Source::Qemu("inject"), Source::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
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
    Guest NetGuestReturn "guest receive call returns", GuestKernel, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_exit"], Scope::All)
    ];
};

/// The tables of all classes of devices. What they share, the begin and the end, stands in the first.
const TABLES: [&[CheckpointInfo]; 2] = [DISK, NETWORK];

impl Checkpoint {
    /// Number of checkpoints of all classes.
    pub const COUNT: usize = Checkpoint::End as usize + 1;

    /// The row of each checkpoint in its class's table.
    const INFOS: [&CheckpointInfo; Checkpoint::COUNT] = {
        let mut infos = [&DISK[0]; Checkpoint::COUNT];
        let mut table = 0;
        while table < TABLES.len() {
            let mut row = 0;
            while row < TABLES[table].len() {
                infos[TABLES[table][row].checkpoint as usize] = &TABLES[table][row];
                row += 1;
            }
            table += 1;
        }
        infos
    };

    /// Every checkpoint, in the order of declaration: `ALL[c as usize] == c`.
    pub const ALL: [Checkpoint; Checkpoint::COUNT] = {
        let mut all = [Checkpoint::Begin; Checkpoint::COUNT];
        let mut i = 0;
        while i < all.len() {
            all[i] = Checkpoint::INFOS[i].checkpoint;
            i += 1;
        }
        all
    };

    /// Whether requests of one class of device pass both: the begin and the end are all classes'.
    pub fn is_on_path_with(self, other: Checkpoint) -> bool {
        let of = |table: &[CheckpointInfo]| {
            let has = |checkpoint| {
                matches!(checkpoint, Checkpoint::Begin | Checkpoint::End)
                    || table.iter().any(|info| info.checkpoint == checkpoint)
            };
            has(self) && has(other)
        };
        TABLES.into_iter().any(of)
    }

    /// Its row in the table of its class of device.
    pub const fn info(self) -> &'static CheckpointInfo {
        Checkpoint::INFOS[self as usize]
    }

    /// Its name in JSON and, with underscores, in exported columns.
    pub fn id(self) -> &'static str {
        self.into()
    }

    /// As tables name it.
    pub const fn label(self) -> &'static str {
        self.info().label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_listed_in_their_order_with_the_names_that_json_has() {
        for (i, checkpoint) in Checkpoint::ALL.into_iter().enumerate() {
            assert_eq!((checkpoint as usize, checkpoint.info().checkpoint), (i, checkpoint));
            assert_eq!(serde_json::to_value(checkpoint).unwrap(), checkpoint.id());
        }
    }

    #[test]
    fn a_state_is_read_by_its_former_name() {
        assert_eq!(serde_json::from_str::<State>("\"idle-wakes\"").unwrap(), State::CpuWakeUp);
        assert_eq!(serde_json::to_string(&State::CpuWakeUp).unwrap(), "\"cpu-wake-up\"");
    }

    /// The rows of the tables in docs/layers.md and docs/network.md.
    #[test]
    fn the_documented_tables_are_these() {
        let disk = include_str!("../../../../docs/layers.md");
        let network = include_str!("../../../../docs/network.md");
        for (docs, table) in [(disk, DISK), (network, NETWORK)] {
            let (_, rows) = docs.split_once("| checkpoint | event | source |\n|---|---|---|\n").unwrap();
            let rows: Vec<&str> = rows.lines().take_while(|line| line.starts_with('|')).collect();
            assert_eq!(rows.len(), table.len());
            for (row, info) in rows.into_iter().zip(table) {
                assert!(row.starts_with(&format!("| {} |", info.label)), "{}: {row}", info.label);
                for source in info.sources {
                    let named = match source {
                        Source::Tracepoint { names, .. } => row.contains(names[0]),
                        Source::Calls(calls) => row.contains(calls[0][0]),
                        Source::Functions(functions) => row.contains(functions[0]),
                        Source::Qemu(_) => row.contains("uprobe"),
                        Source::QemuLog(_) => docs.contains("QEMU's own log"),
                    };
                    assert!(named, "{source:?} is not in: {row}");
                }
            }
        }
    }

    #[test]
    fn paths_share_their_begin_and_end_alone() {
        use Checkpoint as C;
        assert!(C::GuestCall.is_on_path_with(C::End) && C::Begin.is_on_path_with(C::NetGuestReturn));
        assert!(C::NetTx.is_on_path_with(C::NetRx) && !C::NetTx.is_on_path_with(C::QemuPop));
    }
}
