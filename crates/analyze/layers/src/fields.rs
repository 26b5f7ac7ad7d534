//! Trace records as the join's events: the kernels' names and formats are here and nowhere else.

use crate::event::{Element, Event, Guest, Host, NOWHERE, Sched};
use crate::letters::kind;
use std::collections::HashMap;
use vmtax_model::TraceFacts;
use vmtax_trace::{EventId, Field, Formats};

/// A guest's kernel gives disks' places in sectors of this, whatever the disk's own are.
const SECTOR: u64 = 512;
/// `TRACE_FLAG_HARDIRQ`, `_SOFTIRQ` and `_NMI` (`include/linux/trace_events.h`).
const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;
/// Below this a `prev_state` tells why a task sleeps; above, only that it was preempted
/// (`TASK_REPORT_MAX`, `include/linux/sched.h`; 0x80 is the idle task's).
const STATES: u64 = 0xff;

/// The words of uprobe groups of ours.
const GROUP: &str = "vmtax_";

/// What a record means, by its kind.
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
    Enter {
        nr: Field,
        /// Those that mean something to a request.
        args: [Option<Field>; 4],
    },
    Exit,
    Woke,
    Issue {
        device: Field,
        sector: Field,
        sectors: Field,
        /// What it asks for, in letters.
        letters: Option<Field>,
    },
    Insert {
        device: Field,
        sector: Field,
        sectors: Field,
    },
    Complete {
        device: Field,
        sector: Field,
        sectors: Field,
    },
    Interrupt {
        irq: Field,
    },
    Function,
    Pop {
        address: Option<Field>,
        sector: Option<Field>,
        queue: Option<Field>,
    },
    Push {
        address: Option<Field>,
        sector: Option<Field>,
        queue: Option<Field>,
    },
    Submit {
        offset: Field,
        bytes: Option<Field>,
    },
    Notify {
        queue: Option<Field>,
    },
    Inject {
        level: Option<Field>,
    },
    /// A port or an address, and which value of which field says that it was written.
    Kick {
        address: Field,
        write: Option<(Field, u64)>,
    },
}

/// The records of one trace that matter.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_id: HashMap<EventId, (Reader, Option<Field>)>,
    /// Events that matter, without a field that they need.
    unreadable: Vec<String>,
}

impl Readers {
    /// Finds the fields. What a kernel does not have is left out; what it has with other fields is, too, and told.
    pub fn new(formats: &Formats) -> Self {
        let mut readers = Readers::default();
        for (id, format) in formats.iter() {
            let field = |name: &str| formats.field(id, name);
            let name = if format.system.starts_with(GROUP) {
                ("probe", format.name.as_str())
            } else {
                (format.system.as_str(), format.name.as_str())
            };
            match reader(name, &|name| field(name).ok_or(Unread::NoField)) {
                Ok(reader) => _ = readers.by_id.insert(id, (reader, field("common_flags"))),
                Err(Unread::NoField) => readers.unreadable.push(format!("{}:{}", format.system, format.name)),
                Err(Unread::OfNoMatter) => {}
            }
        }
        readers
    }

    /// Events that matter and cannot be read.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Whether the trace has the block layer's requests.
    pub fn has_requests(&self) -> bool {
        self.by_id.values().any(|(reader, _)| matches!(reader, Reader::Issue { .. }))
    }

    /// A record of the guest's trace.
    pub fn guest(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Option<Event<Guest>> {
        let (reader, interrupt) = self.of(event)?;
        let data = event.data;
        let disk = facts.guest_disk.as_ref();
        let ours = |device: Field| disk.is_some_and(|d| device.unsigned(data) == Some(d.device));
        let what = match reader {
            Reader::Switch { .. } | Reader::Waking { .. } => Guest::Sched(sched(reader, data)?),
            Reader::Enter { .. } => Guest::Enter,
            Reader::Exit => Guest::Exit,
            Reader::Insert { device, sector, sectors } if ours(device) => {
                Guest::Insert { offset: place(bytes(sector, sectors, data)) }
            }
            Reader::Issue { device, sector, sectors, letters } if ours(device) => {
                let (offset, bytes) = bytes(sector, sectors, data)?;
                let offset = place(Some((offset, bytes)));
                Guest::Issue { offset, bytes, kind: kind(letters.and_then(|l| l.bytes(data)), bytes) }
            }
            Reader::Complete { device, sector, sectors } if ours(device) => {
                Guest::Complete { offset: place(bytes(sector, sectors, data)) }
            }
            // Where the kernel has probes of its own, one of those; else its function tracer.
            Reader::Function | Reader::Notify { .. } => Guest::Notify,
            Reader::Interrupt { irq } => {
                let irq = irq.unsigned(data)?;
                disk?.interrupts.iter().any(|i| u64::from(*i) == irq).then_some(Guest::Interrupt)?
            }
            _ => return None,
        };
        Some(Event { at: event.ticks, cpu: event.cpu, tid: event.pid, interrupt, what })
    }

    /// A record of the host's trace.
    pub fn host(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Option<Event<Host>> {
        let (reader, interrupt) = self.of(event)?;
        let data = event.data;
        let number = |field: Option<Field>| field.and_then(|f| f.unsigned(data));
        let ours = |device: Field| facts.host_disk.device.is_some_and(|d| device.unsigned(data) == Some(d));
        let element = |address, sector, queue| Element {
            address: number(address),
            offset: number(sector).map(|s| s.wrapping_mul(SECTOR)),
            queue: number(queue),
        };
        let what = match reader {
            Reader::Switch { .. } | Reader::Waking { .. } => Host::Sched(sched(reader, data)?),
            Reader::Enter { nr, args } => {
                let args = args.map(|a| number(a).unwrap_or(0));
                Host::Enter { nr: u32::try_from(nr.unsigned(data)?).ok()?, args }
            }
            Reader::Exit => Host::Exit,
            Reader::Woke => Host::Woke,
            Reader::Issue { device, sector, sectors, .. } if ours(device) => {
                let (offset, bytes) = bytes(sector, sectors, data)?;
                Host::Issue { offset, bytes }
            }
            Reader::Complete { device, sector, sectors } if ours(device) => {
                let (offset, bytes) = bytes(sector, sectors, data)?;
                Host::Complete { offset, bytes }
            }
            Reader::Pop { address, sector, queue } => Host::Pop(element(address, sector, queue)),
            Reader::Push { address, sector, queue } => Host::Push(element(address, sector, queue)),
            Reader::Submit { offset, bytes } => {
                Host::Submit { offset: offset.unsigned(data)?, bytes: number(bytes).unwrap_or(1) }
            }
            Reader::Notify { queue } => Host::Notify { queue: number(queue).unwrap_or(0) },
            // A line that is lowered interrupts nobody.
            Reader::Inject { level } if number(level) != Some(0) => Host::Inject,
            Reader::Kick { address, write } if write.is_none_or(|(f, value)| f.unsigned(data) == Some(value)) => {
                let address = address.unsigned(data)?;
                let within = |(first, length): &(u64, u64)| address.checked_sub(*first).is_some_and(|at| at < *length);
                facts.notify.iter().any(within).then_some(Host::Kick)?
            }
            _ => return None,
        };
        Some(Event { at: event.ticks, cpu: event.cpu, tid: event.pid, interrupt, what })
    }

    fn of(&self, event: &vmtax_trace::Event<'_>) -> Option<(Reader, bool)> {
        let (reader, flags) = *self.by_id.get(&event.id)?;
        let flags = flags.and_then(|f| f.unsigned(event.data)).unwrap_or(0);
        Some((reader, flags & IN_INTERRUPT != 0))
    }
}

/// Why a kind of record is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unread {
    OfNoMatter,
    NoField,
}

/// How to read one kind of record.
fn reader(name: (&str, &str), field: &dyn Fn(&str) -> Result<Field, Unread>) -> Result<Reader, Unread> {
    let block = || Ok((field("dev")?, field("sector")?, field("nr_sector")?));
    let maybe = |name: &str| field(name).ok();
    Ok(match name {
        ("sched", "sched_switch") => {
            Reader::Switch { prev: field("prev_pid")?, state: field("prev_state")?, next: field("next_pid")? }
        }
        ("sched", "sched_waking") => Reader::Waking { pid: field("pid")? },
        ("raw_syscalls", "sys_enter") => {
            let args = field("args")?;
            Reader::Enter { nr: field("id")?, args: [0, 1, 2, 3].map(|i| args.element(i)) }
        }
        ("raw_syscalls", "sys_exit") => Reader::Exit,
        // Single ones name their arguments: futex, io_uring_enter, preadv and their like.
        ("syscalls", call) if call.starts_with("sys_enter_") => {
            let first = |names: [&str; 2]| names.into_iter().find_map(maybe);
            let args = [None, first(["op", "to_submit"]), maybe("min_complete"), first(["pos", "pos_l"])];
            Reader::Enter { nr: field("__syscall_nr")?, args }
        }
        ("syscalls", call) => match call.strip_prefix("sys_exit_").ok_or(Unread::OfNoMatter)? {
            "io_submit" | "io_uring_enter" | "futex" | "fdatasync" => Reader::Exit,
            call if call.starts_with("pread") || call.starts_with("pwrite") => Reader::Exit,
            _ => Reader::Woke,
        },
        ("block", "block_rq_issue") => {
            let (device, sector, sectors) = block()?;
            Reader::Issue { device, sector, sectors, letters: maybe("rwbs") }
        }
        ("block", "block_rq_insert") => {
            let (device, sector, sectors) = block()?;
            Reader::Insert { device, sector, sectors }
        }
        ("block", "block_rq_complete") => {
            let (device, sector, sectors) = block()?;
            Reader::Complete { device, sector, sectors }
        }
        ("irq", "irq_handler_entry") => Reader::Interrupt { irq: field("irq")? },
        ("ftrace", "function") => Reader::Function,
        ("probe", "pop") => Reader::Pop { address: maybe("elem"), sector: maybe("sector"), queue: maybe("vq") },
        ("probe", "push") => Reader::Push { address: maybe("elem"), sector: maybe("sector"), queue: maybe("vq") },
        ("probe", "submit") => Reader::Submit { offset: field("offset")?, bytes: maybe("bytes") },
        ("probe", "notify") => Reader::Notify { queue: maybe("vq") },
        ("probe", "inject") => Reader::Inject { level: None },
        ("probe", "line") => Reader::Inject { level: Some(field("level")?) },
        ("kvm", "kvm_userspace_exit") => Reader::Woke,
        ("kvm", "kvm_set_irq") => Reader::Inject { level: maybe("level") },
        ("kvm", "kvm_msi_set_irq") => Reader::Inject { level: None },
        // `KVM_PIO_OUT` and `KVM_TRACE_MMIO_WRITE`.
        ("kvm", "kvm_pio") => Reader::Kick { address: field("port")?, write: Some((field("rw")?, 1)) },
        ("kvm", "kvm_mmio") => Reader::Kick { address: field("gpa")?, write: Some((field("type")?, 2)) },
        ("kvm", "kvm_fast_mmio") => Reader::Kick { address: field("gpa")?, write: None },
        _ => return Err(Unread::OfNoMatter),
    })
}

fn sched(reader: Reader, data: &[u8]) -> Option<Sched> {
    let task = |f: Field| i32::try_from(f.signed(data)?).ok();
    match reader {
        Reader::Switch { prev, state, next } => {
            Some(Sched::Switch { prev: task(prev)?, preempted: state.unsigned(data)? & STATES == 0, next: task(next)? })
        }
        Reader::Waking { pid } => Some(Sched::Waking { tid: task(pid)? }),
        _ => None,
    }
}

/// Where a guest's request is. One about no bytes is issued at sector 0, and completes at -1.
fn place(bytes: Option<(u64, u64)>) -> u64 {
    bytes.filter(|(_, bytes)| *bytes > 0).map_or(NOWHERE, |(offset, _)| offset)
}

/// Where a block request is, and how long.
fn bytes(sector: Field, sectors: Field, data: &[u8]) -> Option<(u64, u64)> {
    let (sector, sectors) = (sector.unsigned(data)?, sectors.unsigned(data)?);
    Some((sector.checked_mul(SECTOR)?, sectors.checked_mul(SECTOR)?))
}
