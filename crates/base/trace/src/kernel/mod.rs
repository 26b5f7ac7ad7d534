//! Meaning of the kernel's events.

mod architecture;
mod exit_reasons;
mod syscalls;
mod timeline;

pub use architecture::foreign_kvm;
pub(crate) use architecture::foreign_kvm_line;
pub use exit_reasons::{ExitReasons, SVM, VMX};
pub(crate) use exit_reasons::{NAMED_IN_TEXT, exit_reason_named};
pub use syscalls::{
    CallPhase, CallTimes, FUTEX, Moments, SystemCall, call_rows, system_call, system_call_name,
};
pub use timeline::{EventWindow, Moment, SchedTimeline, ThreadState, Waker};

use crate::format::Field;
use crate::{Event, Format, Formats};

/// Below this a `prev_state` says why a thread sleeps; above, only that it was preempted (`TASK_REPORT_MAX`,
/// `include/linux/sched.h`; 0x80 is the idle thread's).
const REPORTED_STATES: u64 = 0xff;
/// `EXIT_DEAD` and `EXIT_ZOMBIE`, among these.
const EXIT_STATES: u64 = 0x30;
/// Of `kvm_mmio`: `KVM_TRACE_MMIO_READ_UNSATISFIED`, `KVM_TRACE_MMIO_WRITE`.
const MMIO_UNSATISFIED: u64 = 0;
const MMIO_WRITE: u64 = 2;
/// The most fields that are read of a tracepoint.
const MAX_FIELDS: usize = 5;

/// A decoded tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelEvent<'a> {
    /// `sched_switch` or `sched_waking`: an event of the scheduler.
    Sched(Sched),
    /// `sys_enter` of all system calls, or of a single one.
    SysEnter {
        /// Number of the system call; -1 where a debugger took the call away.
        nr: i64,
        /// First arguments of the call; 0 where the record does not have one.
        args: [u64; 4],
    },
    /// `sys_exit`: a system call returns.
    SysExit {
        /// The call's number where the tracepoint is of that call alone: its entry may not be traced, then.
        single: Option<i64>,
        /// True if a signal, or work of the kernel's for the thread, ended it (EINTR), where the tracepoint is of that call alone.
        interrupted: bool,
    },
    /// `block_rq_insert`: a request is queued.
    BlockInsert(BlockRequest<'a>),
    /// `block_rq_issue`: a request goes to the driver.
    BlockIssue(BlockRequest<'a>),
    /// `block_rq_complete`: a request is complete.
    BlockComplete(BlockRequest<'a>),
    /// `block_bio_queue`: a bio goes to a device. One with a request queue makes it a part of a request.
    BioQueue(BlockRequest<'a>),
    /// `block_bio_complete`: a bio is complete.
    BioComplete(BlockRequest<'a>),
    /// A tracepoint of the network stack: a packet passes it.
    Packet(Packet),
    /// `irq_handler_entry`: an interrupt's handler begins.
    Irq {
        /// The interrupt's number.
        irq: u64,
    },
    /// `kvm_exit`: the vCPU left the guest.
    KvmExit {
        /// Whose reasons: 1 is VMX, 2 is SVM; 0 where the kernel does not say.
        isa: u32,
        /// Number of the exit reason.
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
    /// `kvm_apic_accept_irq`: the vCPU's APIC accepts an interrupt.
    KvmAcceptIrq {
        /// Vector of the interrupt.
        vector: u64,
    },
    /// `kvm_set_irq`: a line of the interrupt controllers is set.
    KvmSetIrq {
        /// Number of the line (global system interrupt, GSI).
        gsi: u64,
        /// 0: deasserted, which causes no interrupt.
        level: u64,
    },
    /// `kvm_msi_set_irq`: a message-signalled interrupt.
    KvmMsi {
        /// The vector that the vCPU is given, where the format has it.
        vector: Option<u8>,
    },
    /// `workqueue_queue_work`: work is queued for a worker of the kernel.
    WorkQueued {
        /// Address of the work, which no other has until it begins.
        work: u64,
    },
    /// `workqueue_execute_start`: the current thread, a worker, begins with it.
    WorkBegun {
        /// Address of the work.
        work: u64,
    },
    /// The function tracer.
    Function,
}

/// Event of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sched {
    /// A CPU goes from one thread to another.
    Switch {
        /// The thread that leaves.
        prev: i32,
        /// State in which that thread leaves.
        leaves: Leaves,
        /// The next thread.
        next: i32,
    },
    /// The current thread, or an interrupt, makes a thread runnable.
    Waking {
        /// TID of that thread.
        tid: i32,
    },
}

/// State in which a thread leaves its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// It was preempted.
    Runnable,
    /// Asleep until something wakes the thread.
    Sleeping,
    /// Ended: the thread is dead or a zombie.
    Ended,
}

/// A request of the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest<'a> {
    /// The device's number as the kernel's events have it: `major << 20 | minor`.
    pub device: u64,
    /// Where, in sectors of 512 bytes; -1 where it is about none.
    pub sector: u64,
    /// Length in sectors of 512 bytes.
    pub sectors: u64,
    /// Operation of the request and its flags, as letters (`blk_fill_rwbs`); empty where the record does not say.
    pub rwbs: &'a [u8],
}

/// A packet in a kernel's network stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The kernel's address for it, by which it is known until it is freed.
    pub skb: u64,
    /// Length of the packet at the tracepoint, bytes: with the link's header on its way out, without it on its way in;
    /// 0 where it is freed.
    pub len: u64,
    /// Number of packets that the card makes of it, at least 1.
    pub segments: u64,
}

/// A guest's access that KVM traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvmAccess {
    /// Address space of the access.
    pub to: KvmSpace,
    /// The port, the guest's physical address, or the register's number.
    pub address: u64,
    /// True if the access is a write.
    pub write: bool,
    /// A read whose value comes from QEMU: it is traced again with it.
    pub unsatisfied: bool,
}

/// Address space of a [`KvmAccess`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmSpace {
    /// An I/O port.
    Port,
    /// Guest physical memory: memory-mapped I/O (MMIO).
    Memory,
    /// A model-specific register.
    Msr,
}

/// Decoder for the records of one trace.
#[derive(Debug, Default)]
pub struct KernelDecoder {
    /// Readers of the known tracepoints, by event ID.
    readers: Vec<Option<Reader>>,
    unreadable: Vec<String>,
    has_block_requests: bool,
}

/// Reader of the records of one tracepoint.
#[derive(Debug, Clone, Copy)]
struct Reader {
    fields: [Option<Field>; MAX_FIELDS],
    read: Read,
}

/// A record, with the fields of its tracepoint by their positions in [`TRACEPOINTS`].
struct Record<'r, 'a> {
    fields: &'r [Option<Field>; MAX_FIELDS],
    data: &'a [u8],
}

impl<'a> Record<'_, 'a> {
    fn number(&self, field: usize) -> Option<u64> {
        self.fields[field]?.unsigned(self.data)
    }

    fn signed(&self, field: usize) -> Option<i64> {
        self.fields[field]?.signed(self.data)
    }

    fn tid(&self, field: usize) -> Option<i32> {
        i32::try_from(self.signed(field)?).ok()
    }

    fn request(&self) -> Option<BlockRequest<'a>> {
        let (device, sector, sectors) = (self.number(0)?, self.number(1)?, self.number(2)?);
        let rwbs = self.fields[3]
            .and_then(|rwbs| rwbs.bytes(self.data))
            .unwrap_or_default();
        Some(BlockRequest {
            device,
            sector,
            sectors,
            rwbs,
        })
    }

    /// An access to the address that is the first field, if it is known what it does.
    fn access(&self, to: KvmSpace, write: bool, unsatisfied: bool) -> Option<KernelEvent<'a>> {
        Some(KernelEvent::KvmAccess(KvmAccess {
            to,
            address: self.number(0)?,
            write,
            unsatisfied,
        }))
    }
}

/// Decodes a record; `None` where it is too short for a field.
type Read = for<'a> fn(&Record<'_, 'a>) -> Option<KernelEvent<'a>>;

/// The tracepoints that are known: subsystem, name, the fields that are read, and what they say. A kernel may lack a field
/// with `?` behind its name; `args[1]` is an element of an array.
const TRACEPOINTS: &[(&str, &str, &[&str], Read)] = &[
    (
        "sched",
        "sched_switch",
        &["prev_pid", "prev_state", "next_pid"],
        |r| {
            let leaves = match r.number(1)? & REPORTED_STATES {
                0 => Leaves::Runnable,
                state if state & EXIT_STATES != 0 => Leaves::Ended,
                _ => Leaves::Sleeping,
            };
            Some(KernelEvent::Sched(Sched::Switch {
                prev: r.tid(0)?,
                leaves,
                next: r.tid(2)?,
            }))
        },
    ),
    ("sched", "sched_waking", &["pid"], |r| {
        Some(KernelEvent::Sched(Sched::Waking { tid: r.tid(0)? }))
    }),
    (
        "raw_syscalls",
        "sys_enter",
        &["id", "args[0]", "args[1]?", "args[2]?", "args[3]?"],
        sys_enter,
    ),
    ("raw_syscalls", "sys_exit", &[], |_| {
        Some(KernelEvent::SysExit {
            single: None,
            interrupted: false,
        })
    }),
    ("block", "block_rq_insert", BLOCK, |r| {
        Some(KernelEvent::BlockInsert(r.request()?))
    }),
    ("block", "block_rq_issue", BLOCK, |r| {
        Some(KernelEvent::BlockIssue(r.request()?))
    }),
    ("block", "block_rq_complete", BLOCK, |r| {
        Some(KernelEvent::BlockComplete(r.request()?))
    }),
    ("block", "block_bio_queue", BLOCK, |r| {
        Some(KernelEvent::BioQueue(r.request()?))
    }),
    ("block", "block_bio_complete", BLOCK, |r| {
        Some(KernelEvent::BioComplete(r.request()?))
    }),
    ("net", "net_dev_queue", PACKET, packet),
    ("net", "net_dev_start_xmit", PACKET, packet),
    ("net", "napi_gro_receive_entry", PACKET, packet),
    ("net", "netif_receive_skb", PACKET, packet),
    ("skb", "skb_copy_datagram_iovec", PACKET, packet),
    ("skb", "consume_skb", &["skbaddr"], |r| {
        Some(KernelEvent::Packet(Packet {
            skb: r.number(0)?,
            len: 0,
            segments: 1,
        }))
    }),
    ("irq", "irq_handler_entry", &["irq"], |r| {
        Some(KernelEvent::Irq { irq: r.number(0)? })
    }),
    ("ftrace", "function", &[], |_| Some(KernelEvent::Function)),
    ("kvm", "kvm_exit", &["exit_reason", "isa?"], |r| {
        let isa = r
            .number(1)
            .and_then(|isa| u32::try_from(isa).ok())
            .unwrap_or(0);
        Some(KernelEvent::KvmExit {
            isa,
            reason: r.number(0)?,
        })
    }),
    ("kvm", "kvm_entry", &[], |_| Some(KernelEvent::KvmEntry)),
    ("kvm", "kvm_pio", &["port", "rw"], |r| {
        r.access(KvmSpace::Port, r.number(1) == Some(1), false)
    }),
    ("kvm", "kvm_mmio", &["gpa", "type"], |r| {
        r.access(
            KvmSpace::Memory,
            r.number(1) == Some(MMIO_WRITE),
            r.number(1) == Some(MMIO_UNSATISFIED),
        )
    }),
    ("kvm", "kvm_fast_mmio", &["gpa"], |r| {
        r.access(KvmSpace::Memory, true, false)
    }),
    ("kvm", "kvm_msr", &["ecx", "write"], |r| {
        r.access(KvmSpace::Msr, r.number(1) == Some(1), false)
    }),
    ("kvm", "kvm_eoi", &[], |_| Some(KernelEvent::KvmEoi)),
    ("kvm", "kvm_userspace_exit", &["reason", "errno"], |r| {
        let reason = if r.signed(1)? >= 0 { r.number(0) } else { None };
        Some(KernelEvent::KvmUserspaceExit { reason })
    }),
    ("kvm", "kvm_apic_accept_irq", &["vec"], |r| {
        Some(KernelEvent::KvmAcceptIrq {
            vector: r.number(0)?,
        })
    }),
    ("kvm", "kvm_set_irq", &["gsi", "level"], |r| {
        Some(KernelEvent::KvmSetIrq {
            gsi: r.number(0)?,
            level: r.number(1)?,
        })
    }),
    ("kvm", "kvm_msi_set_irq", &["data?"], |r| {
        // The lowest byte of a message's data (Intel SDM, volume 3, "Message Data Register Format").
        Some(KernelEvent::KvmMsi {
            vector: r.number(0).map(|data| data as u8),
        })
    }),
    ("workqueue", "workqueue_queue_work", &["work"], |r| {
        Some(KernelEvent::WorkQueued { work: r.number(0)? })
    }),
    ("workqueue", "workqueue_execute_start", &["work"], |r| {
        Some(KernelEvent::WorkBegun { work: r.number(0)? })
    }),
];

/// Error number of an interrupted call.
const EINTR: i64 = 4;

const BLOCK: &[&str] = &["dev", "sector", "nr_sector", "rwbs?"];

const PACKET: &[&str] = &["skbaddr", "len", "gso_segs?"];

fn packet<'a>(record: &Record<'_, 'a>) -> Option<KernelEvent<'a>> {
    let segments = record.number(2).unwrap_or(1).max(1);
    Some(KernelEvent::Packet(Packet {
        skb: record.number(0)?,
        len: record.number(1)?,
        segments,
    }))
}

/// The number, then arguments.
fn sys_enter<'a>(record: &Record<'_, 'a>) -> Option<KernelEvent<'a>> {
    let args = [1, 2, 3, 4].map(|arg| record.number(arg).unwrap_or(0));
    Some(KernelEvent::SysEnter {
        nr: record.signed(0)?,
        args,
    })
}

fn single_sys_exit<'a>(record: &Record<'_, 'a>) -> Option<KernelEvent<'a>> {
    Some(KernelEvent::SysExit {
        single: Some(record.signed(0)?),
        interrupted: record.signed(1) == Some(-EINTR),
    })
}

impl KernelDecoder {
    /// Finds the fields of the tracepoints that are known.
    pub fn new(formats: &Formats) -> KernelDecoder {
        let mut decoder = KernelDecoder::default();
        for (id, format) in formats.iter() {
            match reader(format) {
                Some(Ok(reader)) => {
                    let at = usize::from(id.0);
                    decoder
                        .readers
                        .resize(decoder.readers.len().max(at + 1), None);
                    decoder.readers[at] = Some(reader);
                    decoder.has_block_requests |= format.name == "block_rq_issue";
                }
                Some(Err(NoField)) => decoder
                    .unreadable
                    .push(format!("{}:{}", format.system, format.name)),
                None => {}
            }
        }
        decoder
    }

    /// Known tracepoints that this kernel has with other fields: `system:name`.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Returns true if the trace can have an event of the block layer's `block_rq_issue`.
    pub fn has_block_requests(&self) -> bool {
        self.has_block_requests
    }

    /// Decodes a record; `None` for an unknown tracepoint.
    #[inline]
    pub fn decode<'a>(&self, event: &Event<'a>) -> Option<KernelEvent<'a>> {
        let Reader { fields, read } = self.readers.get(usize::from(event.id.0))?.as_ref()?;
        read(&Record {
            fields,
            data: event.data,
        })
    }
}

/// A known tracepoint lacks a field that is read.
struct NoField;

/// Returns the reader of a tracepoint; `None` for one that is not known.
fn reader(format: &Format) -> Option<Result<Reader, NoField>> {
    if format.system == "syscalls" {
        return single_call_reader(format);
    }
    let known = TRACEPOINTS
        .iter()
        .find(|(system, name, ..)| (*system, *name) == (&format.system, &format.name));
    let (_, _, names, read) = known?;
    let mut fields = [None; MAX_FIELDS];
    for (place, name) in fields.iter_mut().zip(*names) {
        let required = !name.ends_with('?');
        let name = name.trim_end_matches('?');
        *place = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((array, index)) => format
                .field(array)
                .and_then(|array| array.element(index.parse().ok()?)),
            None => format.field(name),
        };
        if place.is_none() && required {
            return Some(Err(NoField));
        }
    }
    let read = *read;
    Some(Ok(Reader { fields, read }))
}

/// Returns the reader of the tracepoint of a single call: it has the call's number, then its arguments by their names.
fn single_call_reader(format: &Format) -> Option<Result<Reader, NoField>> {
    let read = match format.name.as_str() {
        name if name.starts_with("sys_enter_") => sys_enter as Read,
        name if name.starts_with("sys_exit_") => single_sys_exit,
        _ => return None,
    };
    // `nr` is the number's first name.
    let Some(nr) = format.field("__syscall_nr").or(format.field("nr")) else {
        return Some(Err(NoField));
    };
    let mut fields = [None; MAX_FIELDS];
    let all = format.fields.iter().map(|(_, field)| Some(*field));
    for (place, field) in fields
        .iter_mut()
        .zip(all.skip_while(|field| *field != Some(nr)))
    {
        *place = field;
    }
    Some(Ok(Reader { fields, read }))
}
