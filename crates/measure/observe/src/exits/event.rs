//! KVM's events, as far as exits are counted by them.

use vmtax_model::AddressSpace;
use vmtax_model::samples::Access;
use vmtax_trace::{KernelDecoder, KernelEvent, KvmAccess, KvmSpace, Lost, SystemCall, system_call};

/// The command of `ioctl` by which a thread goes into its guest.
pub(super) const KVM_RUN: u64 = 0xae80;

/// Event of KVM, or of QEMU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitEvent {
    /// The CPU left the guest. Not every KVM tells.
    Exit { isa: u32, reason: u64 },
    /// It is about to go back.
    Entry,
    /// An access; `unanswered` where its value is to come from QEMU, and the access will be told again with it.
    Access { access: Access, unanswered: bool },
    /// The end of an interrupt.
    Eoi,
    /// KVM hands the exit to QEMU; nothing where it was a signal.
    User(Option<u64>),
    /// QEMU's thread goes back into KVM.
    Run,
    /// The guest's vCPU is given an interrupt, by its vector.
    Accepted(u32),
    /// A timer's line of the interrupt controllers was raised.
    TimerLine(u32),
    /// A device gives the guest's vCPU an interrupt by a message (MSI), by its vector.
    Message(u32),
    /// The trace lost events here, whoever's.
    Lost,
}

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadEvent {
    pub at: u64,
    /// CPU that wrote it; of a loss `None` where the trace does not say.
    pub cpu: Option<u32>,
    pub tid: i32,
    pub what: ExitEvent,
}

impl ThreadEvent {
    /// A record's meaning; `None` for one that does not matter here.
    pub fn read(decoder: &KernelDecoder, record: &vmtax_trace::Event<'_>) -> Option<ThreadEvent> {
        let what = match decoder.decode(record)? {
            KernelEvent::KvmExit { isa, reason } => ExitEvent::Exit { isa, reason },
            KernelEvent::KvmEntry => ExitEvent::Entry,
            KernelEvent::KvmAccess(access) => ExitEvent::Access {
                access: accessed(access),
                unanswered: access.unsatisfied,
            },
            KernelEvent::KvmEoi => ExitEvent::Eoi,
            KernelEvent::KvmUserspaceExit { reason } => ExitEvent::User(reason),
            KernelEvent::SysEnter {
                nr,
                args: [_, KVM_RUN, ..],
            } if system_call(nr) == Some(SystemCall::ioctl) => ExitEvent::Run,
            KernelEvent::KvmAcceptIrq { vector } => {
                ExitEvent::Accepted(u32::try_from(vector).ok()?)
            }
            // PIT or HPET; RTC.
            KernelEvent::KvmSetIrq {
                gsi: gsi @ (0 | 2 | 8),
                level: 1..,
            } => ExitEvent::TimerLine(u32::try_from(gsi).ok()?),
            KernelEvent::KvmMsi { vector } => ExitEvent::Message(vector?.into()),
            _ => return None,
        };
        Some(ThreadEvent {
            at: record.ticks,
            cpu: Some(record.cpu),
            tid: record.pid,
            what,
        })
    }

    /// A place where the trace lost events.
    pub fn lost(lost: &Lost) -> ThreadEvent {
        ThreadEvent {
            at: lost.ticks,
            cpu: lost.cpu,
            tid: 0,
            what: ExitEvent::Lost,
        }
    }
}

fn accessed(
    KvmAccess {
        to, address, write, ..
    }: KvmAccess,
) -> Access {
    let space = match to {
        KvmSpace::Port => AddressSpace::Port,
        KvmSpace::Memory => AddressSpace::Memory,
        KvmSpace::Msr => AddressSpace::Msr,
    };
    Access {
        space,
        address,
        write,
    }
}
