//! Records of the kernel's tracepoints as typed events. Which fields a tracepoint has, and what its numbers mean, is known
//! here and nowhere else.

use crate::format::Field;
use crate::{Event, EventId, Formats};

/// Below this a `prev_state` says why a thread sleeps; above, only that it was preempted (`TASK_REPORT_MAX`,
/// `include/linux/sched.h`; 0x80 is the idle thread's).
const REPORTED_STATES: u64 = 0xff;
/// `EXIT_DEAD` and `EXIT_ZOMBIE`, among these.
const EXIT_STATES: u64 = 0x30;
/// Of `kvm_mmio`: `KVM_TRACE_MMIO_READ_UNSATISFIED`, `KVM_TRACE_MMIO_WRITE`.
const MMIO_UNSATISFIED: u64 = 0;
const MMIO_WRITE: u64 = 2;

/// What a tracepoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelEvent<'a> {
    /// `sched_switch`, `sched_waking`.
    Sched(Sched),
    /// `sys_enter` of all system calls, or of a single one.
    SysEnter {
        /// Its number; -1 where a debugger took the call away.
        nr: i64,
        /// Its first arguments; 0 where the record does not have one.
        args: [u64; 4],
    },
    /// `sys_exit`.
    SysExit {
        /// The call's number where the tracepoint is of that call alone: its entry may not be traced, then.
        single: Option<i64>,
    },
    /// `block_rq_insert`: a request is queued.
    BlockInsert(BlockRequest<'a>),
    /// `block_rq_issue`: a request goes to the driver.
    BlockIssue(BlockRequest<'a>),
    /// `block_rq_complete`.
    BlockComplete(BlockRequest<'a>),
    /// `irq_handler_entry`.
    Irq {
        /// The interrupt's number.
        irq: u64,
    },
    /// `kvm_exit`: the vCPU left the guest.
    KvmExit {
        /// Whose reasons: 1 is VMX, 2 is SVM; 0 where the kernel does not say.
        isa: u32,
        /// Why.
        reason: u64,
    },
    /// `kvm_entry`: it is about to go back.
    KvmEntry,
    /// `kvm_pio`, `kvm_mmio`, `kvm_fast_mmio`, `kvm_msr`: the guest accessed a device.
    KvmAccess(KvmAccess),
    /// `kvm_eoi`: the end of an interrupt.
    KvmEoi,
    /// `kvm_userspace_exit`: `ioctl(KVM_RUN)` returns to QEMU.
    KvmUserspaceExit {
        /// Why; `None` where a signal or an error ended it.
        reason: Option<u64>,
    },
    /// `kvm_apic_accept_irq`: the vCPU is given an interrupt.
    KvmAcceptIrq {
        /// Its vector.
        vector: u64,
    },
    /// `kvm_set_irq`: a line of the interrupt controllers is set.
    KvmSetIrq {
        /// Which.
        gsi: u64,
        /// 0: lowered, which interrupts nobody.
        level: u64,
    },
    /// `kvm_msi_set_irq`: a message-signalled interrupt.
    KvmMsi,
    /// The function tracer.
    Function,
}

/// What the scheduler did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sched {
    /// A CPU goes from one thread to another.
    Switch {
        /// The thread that leaves.
        prev: i32,
        /// How that one goes on.
        leaves: Leaves,
        /// The thread that comes.
        next: i32,
    },
    /// The current thread, or an interrupt, makes a thread runnable.
    Waking {
        /// That thread.
        tid: i32,
    },
}

/// How a thread goes on that leaves its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// It was preempted.
    Runnable,
    /// It sleeps.
    Sleeping,
    /// It ended.
    Ended,
}

/// A request of the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest<'a> {
    /// The device's number as the kernel's events have it: `major << 20 | minor`.
    pub device: u64,
    /// Where, in sectors of 512 bytes; -1 where it is about none.
    pub sector: u64,
    /// How many sectors.
    pub sectors: u64,
    /// What it asks for (`blk_fill_rwbs`); empty where the record does not say.
    pub rwbs: &'a [u8],
}

/// A guest's access that KVM traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvmAccess {
    /// To what.
    pub to: KvmSpace,
    /// The port, the guest's physical address, or the register's number.
    pub address: u64,
    /// Whether it writes.
    pub write: bool,
    /// A read whose value comes from QEMU: it is traced again with it.
    pub unsatisfied: bool,
}

/// What an address of [`KvmAccess`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmSpace {
    /// An I/O port.
    Port,
    /// Memory-mapped I/O.
    Memory,
    /// A model-specific register.
    Msr,
}

/// How the records of one trace are read.
#[derive(Debug, Default)]
pub struct KernelDecoder {
    /// By ID.
    readers: Vec<Option<Reader>>,
    unreadable: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Reader {
    Switch {
        prev: Field,
        state: Field,
        next: Field,
    },
    Waking {
        pid: Field,
    },
    SysEnter {
        nr: Field,
        args: [Option<Field>; 4],
    },
    SysExit {
        single: Option<Field>,
    },
    Block {
        what: Block,
        device: Field,
        sector: Field,
        sectors: Field,
        rwbs: Option<Field>,
    },
    Irq {
        irq: Field,
    },
    Exit {
        isa: Option<Field>,
        reason: Field,
    },
    Entry,
    /// What a field has to be so that it is a write; without one it is.
    Access {
        to: KvmSpace,
        address: Field,
        write: Option<(Field, u64)>,
    },
    Eoi,
    UserspaceExit {
        reason: Field,
        errno: Field,
    },
    AcceptIrq {
        vector: Field,
    },
    SetIrq {
        gsi: Field,
        level: Field,
    },
    Msi,
    Function,
}

#[derive(Debug, Clone, Copy)]
enum Block {
    Insert,
    Issue,
    Complete,
}

impl KernelDecoder {
    /// Finds the fields of the tracepoints that are known.
    pub fn new(formats: &Formats) -> KernelDecoder {
        let mut decoder = KernelDecoder::default();
        for (id, format) in formats.iter() {
            match reader(formats, id, &format.system, &format.name) {
                Ok(reader) => {
                    let at = usize::from(id.0);
                    decoder.readers.resize(decoder.readers.len().max(at + 1), None);
                    decoder.readers[at] = Some(reader);
                }
                Err(Unread::NoField) => decoder.unreadable.push(format!("{}:{}", format.system, format.name)),
                Err(Unread::Unknown) => {}
            }
        }
        decoder
    }

    /// Known tracepoints that this kernel has with other fields: `system:name`.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Whether the trace can have an event of the block layer's `block_rq_issue`.
    pub fn has_block_requests(&self) -> bool {
        self.readers.iter().flatten().any(|reader| matches!(reader, Reader::Block { what: Block::Issue, .. }))
    }

    /// What a record says; `None` for a tracepoint that is not known.
    #[inline]
    pub fn decode<'a>(&self, event: &Event<'a>) -> Option<KernelEvent<'a>> {
        let data = event.data;
        let number = |field: Option<Field>| field.and_then(|field| field.unsigned(data));
        let tid = |field: Field| i32::try_from(field.signed(data)?).ok();
        Some(match *self.readers.get(usize::from(event.id.0))?.as_ref()? {
            Reader::Switch { prev, state, next } => {
                let leaves = match state.unsigned(data)? & REPORTED_STATES {
                    0 => Leaves::Runnable,
                    state if state & EXIT_STATES != 0 => Leaves::Ended,
                    _ => Leaves::Sleeping,
                };
                KernelEvent::Sched(Sched::Switch { prev: tid(prev)?, leaves, next: tid(next)? })
            }
            Reader::Waking { pid } => KernelEvent::Sched(Sched::Waking { tid: tid(pid)? }),
            Reader::SysEnter { nr, args } => {
                KernelEvent::SysEnter { nr: nr.signed(data)?, args: args.map(|arg| number(arg).unwrap_or(0)) }
            }
            Reader::SysExit { single } => KernelEvent::SysExit {
                single: match single {
                    Some(nr) => Some(nr.signed(data)?),
                    None => None,
                },
            },
            Reader::Block { what, device, sector, sectors, rwbs } => {
                let request = BlockRequest {
                    device: device.unsigned(data)?,
                    sector: sector.unsigned(data)?,
                    sectors: sectors.unsigned(data)?,
                    rwbs: rwbs.and_then(|rwbs| rwbs.bytes(data)).unwrap_or_default(),
                };
                match what {
                    Block::Insert => KernelEvent::BlockInsert(request),
                    Block::Issue => KernelEvent::BlockIssue(request),
                    Block::Complete => KernelEvent::BlockComplete(request),
                }
            }
            Reader::Irq { irq } => KernelEvent::Irq { irq: irq.unsigned(data)? },
            Reader::Exit { isa, reason } => {
                let isa = number(isa).and_then(|isa| u32::try_from(isa).ok()).unwrap_or(0);
                KernelEvent::KvmExit { isa, reason: reason.unsigned(data)? }
            }
            Reader::Entry => KernelEvent::KvmEntry,
            Reader::Access { to, address, write } => {
                let is = |value: u64| match write {
                    Some((field, _)) => field.unsigned(data) == Some(value),
                    None => false,
                };
                let write = write.is_none_or(|(_, value)| is(value));
                let unsatisfied = to == KvmSpace::Memory && is(MMIO_UNSATISFIED);
                KernelEvent::KvmAccess(KvmAccess { to, address: address.unsigned(data)?, write, unsatisfied })
            }
            Reader::Eoi => KernelEvent::KvmEoi,
            Reader::UserspaceExit { reason, errno } => KernelEvent::KvmUserspaceExit {
                reason: (errno.signed(data)? >= 0).then(|| reason.unsigned(data)).flatten(),
            },
            Reader::AcceptIrq { vector } => KernelEvent::KvmAcceptIrq { vector: vector.unsigned(data)? },
            Reader::SetIrq { gsi, level } => {
                KernelEvent::KvmSetIrq { gsi: gsi.unsigned(data)?, level: level.unsigned(data)? }
            }
            Reader::Msi => KernelEvent::KvmMsi,
            Reader::Function => KernelEvent::Function,
        })
    }
}

/// Why a kind of record is not read.
enum Unread {
    Unknown,
    NoField,
}

fn reader(formats: &Formats, id: EventId, system: &str, name: &str) -> Result<Reader, Unread> {
    let maybe = |name: &str| formats.field(id, name);
    let field = |name: &str| maybe(name).ok_or(Unread::NoField);
    let block = |what| {
        let (device, sector, sectors) = (field("dev")?, field("sector")?, field("nr_sector")?);
        Ok(Reader::Block { what, device, sector, sectors, rwbs: maybe("rwbs") })
    };
    let access = |to, address, write: (&str, u64)| {
        Ok(Reader::Access { to, address: field(address)?, write: Some((field(write.0)?, write.1)) })
    };
    // A single call's tracepoint has its number, then its arguments by their names. `nr` is the number's first name.
    let number = || maybe("__syscall_nr").or(maybe("nr")).ok_or(Unread::NoField);
    Ok(match (system, name) {
        ("sched", "sched_switch") => {
            Reader::Switch { prev: field("prev_pid")?, state: field("prev_state")?, next: field("next_pid")? }
        }
        ("sched", "sched_waking") => Reader::Waking { pid: field("pid")? },
        ("raw_syscalls", "sys_enter") => {
            let args = field("args")?;
            Reader::SysEnter { nr: field("id")?, args: [0, 1, 2, 3].map(|i| args.element(i)) }
        }
        ("raw_syscalls", "sys_exit") => Reader::SysExit { single: None },
        ("syscalls", call) if call.starts_with("sys_enter_") => {
            let nr = number()?;
            let fields = formats.get(id).map(|format| format.fields.as_slice()).unwrap_or_default();
            let mut args = fields.iter().map(|(_, field)| *field).skip_while(|field| *field != nr).skip(1);
            Reader::SysEnter { nr, args: std::array::from_fn(|_| args.next()) }
        }
        ("syscalls", call) if call.starts_with("sys_exit_") => Reader::SysExit { single: Some(number()?) },
        ("block", "block_rq_insert") => block(Block::Insert)?,
        ("block", "block_rq_issue") => block(Block::Issue)?,
        ("block", "block_rq_complete") => block(Block::Complete)?,
        ("irq", "irq_handler_entry") => Reader::Irq { irq: field("irq")? },
        ("ftrace", "function") => Reader::Function,
        ("kvm", "kvm_exit") => Reader::Exit { isa: maybe("isa"), reason: field("exit_reason")? },
        ("kvm", "kvm_entry") => Reader::Entry,
        ("kvm", "kvm_pio") => access(KvmSpace::Port, "port", ("rw", 1))?,
        ("kvm", "kvm_mmio") => access(KvmSpace::Memory, "gpa", ("type", MMIO_WRITE))?,
        ("kvm", "kvm_fast_mmio") => Reader::Access { to: KvmSpace::Memory, address: field("gpa")?, write: None },
        ("kvm", "kvm_msr") => access(KvmSpace::Msr, "ecx", ("write", 1))?,
        ("kvm", "kvm_eoi") => Reader::Eoi,
        ("kvm", "kvm_userspace_exit") => Reader::UserspaceExit { reason: field("reason")?, errno: field("errno")? },
        ("kvm", "kvm_apic_accept_irq") => Reader::AcceptIrq { vector: field("vec")? },
        ("kvm", "kvm_set_irq") => Reader::SetIrq { gsi: field("gsi")?, level: field("level")? },
        ("kvm", "kvm_msi_set_irq") => Reader::Msi,
        _ => return Err(Unread::Unknown),
    })
}
