//! Trace records as the join's events: of a side's events those of the measured disk, in one form.

use crate::calls::is_wait;
use crate::event::{Element, Event, Guest, Host, NOWHERE, SECTOR};
use crate::rwbs::kind;
use std::collections::HashMap;
use vmtax_model::TraceFacts;
use vmtax_trace::{BlockRequest, EventId, Field, Formats, KernelDecoder, KernelEvent, KvmSpace, system_call};

/// The first letters of probe groups of ours.
const GROUP: &str = "vmtax_";

/// A probe of ours on a function of QEMU or of the guest's kernel, and the fields that it has.
#[derive(Debug, Clone)]
struct Probe {
    event: String,
    address: Option<Field>,
    sector: Option<Field>,
    queue: Option<Field>,
    offset: Option<Field>,
    bytes: Option<Field>,
    level: Option<Field>,
}

/// The records of one trace that matter.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    kernel: KernelDecoder,
    probes: HashMap<EventId, Probe>,
}

impl Readers {
    /// Finds the fields.
    pub fn new(formats: &Formats) -> Self {
        let ours = formats.iter().filter(|(_, format)| format.system.starts_with(GROUP));
        let probes = ours.map(|(id, format)| {
            let field = |name| formats.field(id, name);
            let probe = Probe {
                event: format.name.clone(),
                address: field("elem"),
                sector: field("sector"),
                queue: field("vq"),
                offset: field("offset"),
                bytes: field("bytes"),
                level: field("level"),
            };
            (id, probe)
        });
        Readers { kernel: KernelDecoder::new(formats), probes: probes.collect() }
    }

    /// Events that matter and cannot be read.
    pub fn unreadable(&self) -> &[String] {
        self.kernel.unreadable()
    }

    /// Whether the trace has the block layer's requests.
    pub fn has_requests(&self) -> bool {
        self.kernel.has_block_requests()
    }

    /// A record of the guest's trace.
    pub fn guest(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Option<Event<Guest>> {
        let disk = facts.guest_disk.as_ref();
        let ours = |request: BlockRequest<'_>| disk.is_some_and(|d| d.device == request.device);
        let what = match self.kernel.decode(event) {
            None => self.probes.get(&event.id).filter(|probe| probe.event == "notify").map(|_| Guest::Notify)?,
            Some(KernelEvent::Sched(sched)) => Guest::Sched(sched),
            Some(KernelEvent::SysEnter { .. }) => Guest::Enter,
            Some(KernelEvent::SysExit { .. }) => Guest::Exit,
            Some(KernelEvent::BlockInsert(request)) if ours(request) => Guest::Insert { offset: place(bytes(request)) },
            Some(KernelEvent::BlockIssue(request)) if ours(request) => {
                let (offset, bytes) = bytes(request)?;
                Guest::Issue { offset: place(Some((offset, bytes))), bytes, kind: kind(request.rwbs, bytes) }
            }
            Some(KernelEvent::BlockComplete(request)) if ours(request) => {
                Guest::Complete { offset: place(bytes(request)) }
            }
            // Where the kernel has probes of its own, one of those; else its function tracer.
            Some(KernelEvent::Function) => Guest::Notify,
            Some(KernelEvent::Irq { irq }) => {
                disk?.interrupts.iter().any(|i| u64::from(*i) == irq).then_some(Guest::Interrupt)?
            }
            Some(_) => return None,
        };
        Some(at(event, what))
    }

    /// A record of the host's trace.
    pub fn host(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Option<Event<Host>> {
        let ours = |request: BlockRequest<'_>| facts.host_disk.device == Some(request.device);
        let what = match self.kernel.decode(event) {
            None => self.probe(event)?,
            Some(KernelEvent::Sched(sched)) => Host::Sched(sched),
            Some(KernelEvent::SysEnter { nr, args }) => Host::Enter { nr: u32::try_from(nr).ok()?, args },
            // Where waits are traced alone, only their returns are.
            Some(KernelEvent::SysExit { single: Some(nr) }) if system_call(nr).is_some_and(is_wait) => Host::Woke,
            Some(KernelEvent::SysExit { .. }) => Host::Exit,
            Some(KernelEvent::KvmUserspaceExit { .. }) => Host::Woke,
            Some(KernelEvent::BlockIssue(request)) if ours(request) => {
                let (offset, bytes) = bytes(request)?;
                Host::Issue { offset, bytes }
            }
            Some(KernelEvent::BlockComplete(request)) if ours(request) => {
                let (offset, bytes) = bytes(request)?;
                Host::Complete { offset, bytes }
            }
            // A line that is lowered interrupts nobody.
            Some(KernelEvent::KvmSetIrq { level: 1.., .. } | KernelEvent::KvmMsi) => Host::Inject,
            Some(KernelEvent::KvmAccess(access)) if access.write && access.to != KvmSpace::Msr => {
                let within =
                    |(first, length): &(u64, u64)| access.address.checked_sub(*first).is_some_and(|at| at < *length);
                facts.notify.iter().any(within).then_some(Host::Kick)?
            }
            Some(_) => return None,
        };
        Some(at(event, what))
    }

    /// A hit of a probe on QEMU.
    fn probe(&self, event: &vmtax_trace::Event<'_>) -> Option<Host> {
        let probe = self.probes.get(&event.id)?;
        let number = |field: Option<Field>| field.and_then(|f| f.unsigned(event.data));
        let element = || Element {
            address: number(probe.address),
            offset: number(probe.sector).map(|s| s.wrapping_mul(SECTOR)),
            queue: number(probe.queue),
        };
        Some(match probe.event.as_str() {
            "pop" => Host::Pop(element()),
            "push" => Host::Push(element()),
            "submit" => Host::Submit { offset: number(probe.offset)?, bytes: number(probe.bytes).unwrap_or(1) },
            "notify" => Host::Notify { queue: number(probe.queue).unwrap_or(0) },
            "inject" => Host::Inject,
            "line" if number(probe.level) != Some(0) => Host::Inject,
            _ => return None,
        })
    }
}

fn at<W>(event: &vmtax_trace::Event<'_>, what: W) -> Event<W> {
    Event { at: event.ticks, cpu: event.cpu, tid: event.pid, interrupt: event.in_interrupt(), what }
}

/// Where a guest's request is. One about no bytes is issued at sector 0, and completes at -1.
fn place(bytes: Option<(u64, u64)>) -> u64 {
    bytes.filter(|(_, bytes)| *bytes > 0).map_or(NOWHERE, |(offset, _)| offset)
}

/// Where a block request is, and how long.
fn bytes(request: BlockRequest<'_>) -> Option<(u64, u64)> {
    Some((request.sector.checked_mul(SECTOR)?, request.sectors.checked_mul(SECTOR)?))
}
