//! The table of block requests.

use super::{
    ALWAYS, Checkpoint, CheckpointInfo, EventSource, Layer, NOTIFY, OPTIONAL, Scope, Side, WAITS,
    checkpoints, kvm, tracepoint,
};

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

/// The checkpoints of a request to a virtio disk.
pub const DISK: &[CheckpointInfo] = checkpoints! {
    Guest Begin "workload begins", GuestApplication, ALWAYS, [tracepoint("block", &["block_rq_insert"], Scope::All)];
    Guest GuestCall "guest system call", GuestApplication, OPTIONAL, [
        tracepoint("raw_syscalls", &["sys_enter"], Scope::All)
    ];
    Guest GuestIssue "guest block issue", GuestKernel, ALWAYS, [tracepoint("block", &["block_rq_issue"], Scope::All)];
    Guest GuestNotify "virtqueue kick", GuestKernel, OPTIONAL, [EventSource::Functions(NOTIFY)];
    Host KvmNotify "ioeventfd / MMIO exit", Kvm, OPTIONAL, [
        kvm(&["kvm_pio"], Scope::Qemu), kvm(&["kvm_mmio"], Scope::Qemu), kvm(&["kvm_fast_mmio"], Scope::Qemu)
    ];
    Host QemuWake "QEMU event loop wakes", Notify, OPTIONAL, [WAITS, kvm(&["kvm_userspace_exit"], Scope::Qemu)];
    Host QemuPop "QEMU takes request", Qemu, ALWAYS, [
        EventSource::Qemu("pop"), EventSource::Qemu("scsi"), EventSource::Qemu("begin"), EventSource::QemuLog("virtio_blk_handle_read"), EventSource::QemuLog("virtio_blk_handle_write")
    ];
    Host QemuSubmit "I/O submission", Qemu, ALWAYS, [
        EventSource::Qemu("submit"), EventSource::QemuLog("virtio_blk_submit_multireq")
    ];
    Host HostCall "host system call", Qemu, ALWAYS, [SUBMITS];
    Host HostIssue "host block issue", HostKernel, ALWAYS, [
        tracepoint("block", &["block_rq_issue"], Scope::Device), tracepoint("block", &["block_bio_queue"], Scope::BioDevice)
    ];
    Host HostComplete "host block complete", Device, ALWAYS, [
        tracepoint("block", &["block_rq_complete"], Scope::Device), tracepoint("block", &["block_bio_complete"], Scope::BioDevice)
    ];
    Host QemuReap "completion reaped", HostKernel, OPTIONAL, [WAITS];
    Host QemuPush "QEMU completes request", Qemu, ALWAYS, [
        EventSource::Qemu("push"), EventSource::Qemu("end"), EventSource::QemuLog("virtio_blk_req_complete")
    ];
    Host QemuNotify "used buffer notification", Qemu, OPTIONAL, [
        EventSource::Qemu("notify"), EventSource::QemuLog("virtio_notify_irqfd")
    ];
    Host Inject "MSI delivery (APIC)", Interrupt, OPTIONAL, [
        EventSource::Qemu("inject"), EventSource::Qemu("line"), kvm(&["kvm_set_irq"], Scope::All),
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
