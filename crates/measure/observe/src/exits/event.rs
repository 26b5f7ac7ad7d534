//! Records of KVM's events in few words, kernel versions and formats left behind.

use std::collections::BTreeMap;
use vmtax_model::AddressSpace;
use vmtax_model::samples::Access;
use vmtax_trace::{EventId, Field, Formats};

/// Of `KVM_TRACE_MMIO_*`: a read that the kernel cannot answer.
const UNANSWERED: u64 = 0;
const READ: u64 = 1;
/// The system call `ioctl`, and its command by which a thread goes into its guest.
const IOCTL: u64 = 16;
pub(super) const KVM_RUN: u64 = 0xae80;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The processor left the guest. Not every KVM tells.
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
    /// The guest's processor is given an interrupt, by its vector.
    Accepted(u32),
    /// A line of the interrupt controllers was raised.
    Line(u32),
}

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub at: u64,
    pub tid: i32,
    pub what: What,
}

#[derive(Debug, Clone, Copy)]
enum Reader {
    Exit { isa: Option<Field>, reason: Field },
    Entry,
    Pio { write: Field, port: Field },
    Mmio { kind: Field, address: Field },
    FastMmio { address: Field },
    Msr { write: Field, number: Field },
    Eoi,
    User { reason: Field, errno: Field },
    Ioctl { command: Field },
    Call { number: Field, command: Field },
    Accepted { vector: Field },
    Line { gsi: Field, level: Field },
}

/// How to read the records of one trace.
#[derive(Debug)]
pub(super) struct Readers(BTreeMap<EventId, Reader>);

impl Readers {
    pub fn of(formats: &Formats) -> Readers {
        let reader = |(id, format): (EventId, &vmtax_trace::Format)| {
            Some((id, reader(&format.system, &format.name, &|name| formats.field(id, name))?))
        };
        Readers(formats.iter().filter_map(reader).collect())
    }

    /// A record's meaning; `None` for one that does not matter here.
    pub fn read(&self, event: &vmtax_trace::Event<'_>) -> Option<Event> {
        let data = event.data;
        let access = |space, address: Field, write| {
            Some(What::Access { access: Access { space, address: address.unsigned(data)?, write }, unanswered: false })
        };
        let what = match *self.0.get(&event.id)? {
            Reader::Exit { isa, reason } => {
                let isa = isa.and_then(|isa| isa.unsigned(data)).and_then(|isa| u32::try_from(isa).ok());
                What::Exit { isa: isa.unwrap_or(0), reason: reason.unsigned(data)? }
            }
            Reader::Entry => What::Entry,
            Reader::Pio { write, port } => access(AddressSpace::Port, port, write.unsigned(data)? == 1)?,
            Reader::Mmio { kind, address } => {
                let kind = kind.unsigned(data)?;
                let write = !matches!(kind, UNANSWERED | READ);
                let access = Access { space: AddressSpace::Memory, address: address.unsigned(data)?, write };
                What::Access { access, unanswered: kind == UNANSWERED }
            }
            Reader::FastMmio { address } => access(AddressSpace::Memory, address, true)?,
            Reader::Msr { write, number } => access(AddressSpace::Msr, number, write.unsigned(data)? == 1)?,
            Reader::Eoi => What::Eoi,
            Reader::User { reason, errno } => {
                What::User((errno.signed(data)? >= 0).then(|| reason.unsigned(data)).flatten())
            }
            Reader::Ioctl { command } if command.unsigned(data)? == KVM_RUN => What::Run,
            Reader::Call { number, command }
                if number.unsigned(data)? == IOCTL && command.unsigned(data)? == KVM_RUN =>
            {
                What::Run
            }
            Reader::Accepted { vector } => What::Accepted(u32::try_from(vector.unsigned(data)?).ok()?),
            Reader::Line { gsi, level } if level.unsigned(data)? != 0 => {
                What::Line(u32::try_from(gsi.unsigned(data)?).ok()?)
            }
            _ => return None,
        };
        Some(Event { at: event.ticks, tid: event.pid, what })
    }
}

fn reader(system: &str, name: &str, field: &dyn Fn(&str) -> Option<Field>) -> Option<Reader> {
    Some(match (system, name) {
        ("kvm", "kvm_exit") => Reader::Exit { isa: field("isa"), reason: field("exit_reason")? },
        ("kvm", "kvm_entry") => Reader::Entry,
        ("kvm", "kvm_pio") => Reader::Pio { write: field("rw")?, port: field("port")? },
        ("kvm", "kvm_mmio") => Reader::Mmio { kind: field("type")?, address: field("gpa")? },
        ("kvm", "kvm_fast_mmio") => Reader::FastMmio { address: field("gpa")? },
        ("kvm", "kvm_msr") => Reader::Msr { write: field("write")?, number: field("ecx")? },
        ("kvm", "kvm_eoi") => Reader::Eoi,
        ("kvm", "kvm_userspace_exit") => Reader::User { reason: field("reason")?, errno: field("errno")? },
        ("kvm", "kvm_apic_accept_irq") => Reader::Accepted { vector: field("vec")? },
        ("kvm", "kvm_set_irq") => Reader::Line { gsi: field("gsi")?, level: field("level")? },
        ("syscalls", "sys_enter_ioctl") => Reader::Ioctl { command: field("cmd")? },
        ("raw_syscalls", "sys_enter") => Reader::Call { number: field("id")?, command: field("args")?.element(1)? },
        _ => return None,
    })
}
