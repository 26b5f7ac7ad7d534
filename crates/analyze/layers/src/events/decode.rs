//! One side's trace, while it is read, and its records as the join's events: those of the measured disk and of QEMU's
//! threads, by the table of checkpoints.

use super::{CallKind, Event, GuestEvent, HostEvent, Mark, SECTOR, is_one_of, is_wait};
use crate::LayersError;
use crate::disk::decode::{ScsiRequest, kind_of_account, kind_of_header, on_device, request};
use crate::net::is_call_of_network;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use vmtax_model::{
    Checkpoint, CheckpointInfo, EventKind, IMPORTED_CLOCK, Missing, PROBE_GROUP, Side, TraceFacts,
};
use vmtax_trace::{
    CpuStats, Entry, EventId, Events, Field, Folder, Formats, KernelDecoder, KernelEvent, KvmSpace,
    frame_length, payload_word, system_call,
};

/// A probe of ours on a function of QEMU or of the guest's kernel: the fields that it has.
#[derive(Debug, Clone, Copy)]
struct Probe {
    address: Option<Field>,
    sector: Option<Field>,
    queue: Option<Field>,
    queue_since_10_1: Option<Field>,
    scsi: Option<Field>,
    kind: Option<Field>,
    account: Option<Field>,
    /// The event is one of a device model's account, which tells where a request begins and ends.
    accounts: bool,
    device: Option<Field>,
    device_until_5_2: Option<Field>,
    offset: Option<Field>,
    bytes: Option<Field>,
    level: Option<Field>,
    /// Beginning of a packet; `piece` is the length of its first piece, `next` the beginning of the second.
    head: Option<Field>,
    piece: Option<Field>,
    next: Option<Field>,
}

/// The records of one trace that matter.
#[derive(Debug)]
pub(crate) struct Readers {
    kernel: KernelDecoder,
    checkpoints: HashMap<EventId, Checkpoint>,
    probes: HashMap<EventId, Probe>,
    /// Where events of the network stack have the interface's name.
    interfaces: HashMap<EventId, Field>,
}

impl Readers {
    /// Finds the fields of one side's events, and which checkpoint of the table each is.
    pub fn new(formats: &Formats, table: &[CheckpointInfo], side: Side) -> Self {
        let checkpoints = formats.iter().filter_map(|(id, format)| {
            let mut infos = table.iter().filter(|info| info.side == side);
            let info = infos.find(|info| {
                info.sources
                    .iter()
                    .any(|s| s.gives(&format.system, &format.name))
            })?;
            Some((id, info.checkpoint))
        });
        let ours = formats
            .iter()
            .filter(|(_, format)| format.system.starts_with(PROBE_GROUP));
        let probes = ours.map(|(id, format)| {
            let field = |name| formats.field(id, name);
            let probe = Probe {
                address: field("elem"),
                sector: field("sector"),
                // A virtqueue, or the backend's part of a queue.
                queue: field("vq").or_else(|| field("client")),
                queue_since_10_1: field("vq_since_10_1"),
                scsi: field("request"),
                kind: field("type"),
                account: field("account"),
                accounts: ["begin", "end"].contains(&&*format.name),
                device: field("device"),
                device_until_5_2: field("device_until_5_2"),
                offset: field("offset"),
                bytes: field("bytes"),
                level: field("level"),
                head: field("head"),
                piece: field("piece"),
                next: field("next"),
            };
            (id, probe)
        });
        let of_network = formats.iter().filter(|(_, format)| format.system == "net");
        Readers {
            checkpoints: checkpoints.collect(),
            probes: probes.collect(),
            interfaces: of_network
                .filter_map(|(id, _)| Some((id, formats.field(id, "name")?)))
                .collect(),
            kernel: KernelDecoder::new(formats),
        }
    }

    /// Events that matter and cannot be read.
    pub fn unreadable(&self) -> &[String] {
        self.kernel.unreadable()
    }

    /// Returns true if the trace has the block layer's requests.
    pub fn has_requests(&self) -> bool {
        self.kernel.has_block_requests()
    }

    /// A record of the guest's trace.
    pub fn guest(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Event<GuestEvent> {
        let what = self.kernel.decode(event);
        let kind = self.kind(event, what.as_ref(), EventKind::Kprobe);
        at(
            event,
            kind,
            self.guest_event(event, what, facts)
                .unwrap_or(GuestEvent::Other),
        )
    }

    fn guest_event(
        &self,
        event: &vmtax_trace::Event<'_>,
        what: Option<KernelEvent<'_>>,
        facts: &TraceFacts,
    ) -> Option<GuestEvent> {
        let disk = facts.guest_disk.as_ref();
        let is_of_device = |irq: u64| {
            let of_disk = disk.into_iter().flat_map(|disk| &disk.interrupts);
            let of_nic = facts.guest_nic.iter().flat_map(|nic| &nic.interrupts);
            of_disk.chain(of_nic).any(|own| u64::from(*own) == irq)
        };
        Some(match what {
            None if self.probes.contains_key(&event.id) => {
                GuestEvent::Passes(self.checkpoint(event)?)
            }
            Some(KernelEvent::Sched(sched)) => GuestEvent::Sched(sched),
            Some(KernelEvent::SysEnter { nr, args }) => GuestEvent::Enter {
                // Where a debugger took the call away: none that anybody knows.
                nr: u32::try_from(nr).unwrap_or(u32::MAX),
                args,
            },
            Some(KernelEvent::SysExit { .. }) => GuestEvent::Exit,
            Some(KernelEvent::Irq { irq }) if is_of_device(irq) => {
                GuestEvent::Passes(self.checkpoint(event)?)
            }
            Some(KernelEvent::Function) => GuestEvent::Passes(self.checkpoint(event)?),
            Some(KernelEvent::Packet(_)) if self.is_of_another_card(event, facts) => return None,
            Some(KernelEvent::Packet(packet)) => {
                GuestEvent::Packet(self.checkpoint(event)?, packet)
            }
            Some(other) => request(other, disk?)?,
            None => return None,
        })
    }

    /// A record of the host's trace.
    pub fn host(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> Event<HostEvent> {
        let what = self.kernel.decode(event);
        let kind = self.kind(event, what.as_ref(), EventKind::Uprobe);
        at(
            event,
            kind,
            self.host_event(event, what, facts)
                .unwrap_or(HostEvent::Other),
        )
    }

    fn host_event(
        &self,
        event: &vmtax_trace::Event<'_>,
        what: Option<KernelEvent<'_>>,
        facts: &TraceFacts,
    ) -> Option<HostEvent> {
        Some(match what {
            None => HostEvent::Passes(self.checkpoint(event)?, self.probe(event)?),
            Some(KernelEvent::Sched(sched)) => HostEvent::Sched(sched),
            Some(KernelEvent::Packet(packet)) => HostEvent::Packet(self.checkpoint(event)?, packet),
            Some(KernelEvent::SysEnter { nr, args }) if !facts.tap.is_empty() => {
                near_tap(u32::try_from(nr).ok()?, args, &facts.tap)
            }
            // Of a round trip over the network single calls are checkpoints themselves.
            Some(KernelEvent::SysEnter { .. } | KernelEvent::SysExit { .. })
                if self.checkpoint(event).is_some_and(is_call_of_network) =>
            {
                HostEvent::Passes(self.checkpoint(event)?, Mark::default())
            }
            Some(KernelEvent::SysEnter { nr, args }) => HostEvent::Enter {
                nr: u32::try_from(nr).ok()?,
                args,
            },
            // Where waits are traced alone, only their returns are.
            Some(KernelEvent::SysExit {
                single: Some(nr),
                interrupted,
            }) if system_call(nr).is_some_and(is_wait) => {
                // The thread has learned of no work: it waits again, as when io_uring completes a request.
                if interrupted {
                    HostEvent::Other
                } else {
                    HostEvent::Woke
                }
            }
            Some(KernelEvent::SysExit { .. }) => HostEvent::Exit,
            Some(KernelEvent::KvmUserspaceExit { .. }) => HostEvent::Woke,
            Some(KernelEvent::WorkQueued { work }) => HostEvent::InterruptQueued(work),
            Some(KernelEvent::WorkBegun { work }) => HostEvent::InterruptBegun(work),
            // A line that is lowered interrupts nobody.
            Some(KernelEvent::KvmSetIrq { level: 1.., .. } | KernelEvent::KvmMsi { .. }) => {
                HostEvent::Passes(self.checkpoint(event)?, Mark::default())
            }
            Some(KernelEvent::KvmAccess(access)) if access.write && access.to != KvmSpace::Msr => {
                let within = |(first, length): &(u64, u64)| {
                    access
                        .address
                        .checked_sub(*first)
                        .is_some_and(|at| at < *length)
                };
                facts.notify.iter().any(within).then_some(())?;
                HostEvent::Passes(self.checkpoint(event)?, Mark::default())
            }
            Some(other) => {
                HostEvent::OnDevice(self.checkpoint(event)?, on_device(other, &facts.host_disk)?)
            }
        })
    }

    /// Returns the mechanism by which the kernel recorded the event; `probe`: the mechanism of vmtax's own probes on
    /// this side.
    fn kind(
        &self,
        event: &vmtax_trace::Event<'_>,
        what: Option<&KernelEvent<'_>>,
        probe: EventKind,
    ) -> EventKind {
        match what {
            _ if self.probes.contains_key(&event.id) => probe,
            Some(KernelEvent::Sched(_)) => EventKind::Schedule,
            Some(KernelEvent::SysEnter { .. } | KernelEvent::SysExit { .. }) => EventKind::Call,
            _ => EventKind::Tracepoint,
        }
    }

    /// The path, among QEMU's objects, of the device whose request an event is, where that tells.
    pub fn device<'a>(&self, event: &vmtax_trace::Event<'a>) -> Option<Cow<'a, str>> {
        let probe = self.probes.get(&event.id)?;
        let fields = [probe.device, probe.device_until_5_2].into_iter().flatten();
        // In an account, what lies where another version of QEMU has the path is none.
        let is_told = |path: &Cow<'_, str>| !probe.accounts || path.starts_with('/');
        fields
            .filter_map(|field| field.text(event.data))
            .find(is_told)
    }

    /// Tells whether the trace has the accounts of device models.
    pub fn tells_accounts(&self) -> bool {
        self.probes.values().any(|probe| probe.accounts)
    }

    /// Tells whether an event is one of a device model's account.
    pub fn is_account(&self, event: &vmtax_trace::Event<'_>) -> bool {
        self.probes
            .get(&event.id)
            .is_some_and(|probe| probe.accounts)
    }

    /// The interface of the host that a packet passes, where that tells.
    pub fn interface<'a>(&self, event: &vmtax_trace::Event<'a>) -> Option<Cow<'a, str>> {
        self.interfaces.get(&event.id)?.text(event.data)
    }

    /// Returns true if a packet passes an interface of the guest other than the measured card, for example its
    /// loopback device.
    fn is_of_another_card(&self, event: &vmtax_trace::Event<'_>, facts: &TraceFacts) -> bool {
        let card = facts.guest_nic.as_ref().map_or("", |nic| nic.name.as_str());
        !card.is_empty()
            && self
                .interface(event)
                .is_some_and(|interface| interface != card)
    }

    /// Returns true if the trace has the packets that QEMU transmits or receives.
    pub fn tells_packets(&self) -> bool {
        self.probes.values().any(|probe| probe.head.is_some())
    }

    /// Returns true if events of requests contain the device.
    pub fn tells_devices(&self) -> bool {
        self.probes.values().any(|probe| probe.device.is_some())
    }

    fn checkpoint(&self, event: &vmtax_trace::Event<'_>) -> Option<Checkpoint> {
        self.checkpoints.get(&event.id).copied()
    }

    /// Reads the request's data from a hit of a probe on QEMU; `None` for an interrupt line that is lowered.
    fn probe(&self, event: &vmtax_trace::Event<'_>) -> Option<Mark> {
        let probe = self.probes.get(&event.id)?;
        let number = |field: Option<Field>| field.and_then(|f| f.unsigned(event.data));
        let sector = || number(probe.sector).map(|s| s.wrapping_mul(SECTOR));
        let head = probe.head.and_then(|head| head.bytes(event.data));
        if let Some(request) = probe.scsi {
            let ScsiRequest {
                element,
                kind,
                offset,
            } = ScsiRequest::read(request.bytes(event.data)?)?;
            // What lies where the other versions of QEMU have it is no address, and gives 0.
            let queue = [probe.queue, probe.queue_since_10_1]
                .into_iter()
                .filter_map(number)
                .find(|queue| *queue != 0);
            return Some(Mark {
                address: Some(element),
                kind: Some(kind),
                offset,
                bytes: 1,
                queue,
                ..Mark::default()
            });
        }
        (number(probe.level) != Some(0)).then(|| Mark {
            address: number(probe.address),
            kind: number(probe.kind)
                .map(kind_of_header)
                .or_else(|| number(probe.account).map(kind_of_account)),
            offset: number(probe.offset).or_else(sector),
            bytes: number(probe.bytes)
                .or_else(|| head.and_then(frame_length))
                .unwrap_or(1),
            queue: number(probe.queue),
            round_trip: head
                .and_then(|head| payload_word(head, number(probe.piece), number(probe.next))),
        })
    }
}

/// A system call of a VMM that has a tap by these descriptors: a write to it hands a packet to the host's stack.
fn near_tap(nr: u32, args: [u64; 4], tap: &[i32]) -> HostEvent {
    if CallKind::from_call(nr, &args).writes() && is_one_of(tap, args[0]) {
        HostEvent::Passes(Checkpoint::NetTapWrite, Mark::default())
    } else {
        HostEvent::Enter { nr, args }
    }
}

fn at<W>(event: &vmtax_trace::Event<'_>, kind: EventKind, what: W) -> Event<W> {
    Event {
        at: event.ticks,
        cpu: event.cpu,
        tid: event.pid,
        interrupt: event.in_interrupt(),
        kind,
        what,
    }
}

/// The trace clock that both sides have to use.
const CLOCK: &str = "x86-tsc";

/// A period in which events were lost, host ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    pub from: u64,
    pub to: u64,
    pub events: u64,
}

/// One side's trace, opened.
pub(crate) struct Trace {
    folder: Folder,
    pub readers: Readers,
}

/// Opens a trace; `None` where this side's kernel was not traced.
pub(crate) fn open(
    path: &Path,
    table: &[CheckpointInfo],
    side: Side,
) -> Result<Option<Trace>, LayersError> {
    // Where raw pages are, this is too.
    if !path.join("header_page").exists() {
        return Ok(None);
    }
    let folder = Folder::open(path)?;
    if ![CLOCK, IMPORTED_CLOCK].contains(&folder.clock()) {
        return Err(LayersError::Clock {
            path: path.to_owned(),
            clock: folder.clock().to_owned(),
        });
    }
    let readers = Readers::new(folder.formats(), table, side);
    Ok(Some(Trace { folder, readers }))
}

/// Calls a function with every event of a trace.
pub(crate) fn each(
    trace: &Trace,
    mut take: impl FnMut(&Readers, &vmtax_trace::Event<'_>),
) -> Result<(), LayersError> {
    let mut events = trace.folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            take(&trace.readers, &event);
        }
    }
    Ok(())
}

/// One side's trace, while it is read.
pub(crate) struct TraceReader<'f, M> {
    trace: &'f Trace,
    events: Events<'f>,
    /// From its ticks to the host's.
    map: M,
    /// One for each of the trace's inputs.
    inputs: Vec<Input>,
    losses: Vec<Loss>,
}

/// One CPU's part of a trace.
#[derive(Debug, Clone, Copy, Default)]
struct Input {
    /// Time of its last event, host ticks.
    last: u64,
    /// Events lost since, if any.
    lost: Option<u64>,
}

impl<'f, M: Fn(u64) -> u64> TraceReader<'f, M> {
    pub fn begin(trace: &'f Trace, map: M) -> Result<Self, LayersError> {
        let inputs = vec![Input::default(); trace.folder.inputs().len()];
        Ok(TraceReader {
            trace,
            events: trace.folder.events()?,
            map,
            inputs,
            losses: Vec::new(),
        })
    }

    /// Host ticks of an event. Events reported as lost before it were lost after the previous one.
    fn event(&mut self, ticks: u64, input: u32) -> u64 {
        let at = (self.map)(ticks);
        if let Some(input) = self.inputs.get_mut(input as usize) {
            self.losses.extend(input.lost.take().map(|events| Loss {
                from: input.last,
                to: at,
                events,
            }));
            input.last = at;
        }
        at
    }

    /// Ends the trace. A full buffer drops all later events.
    pub fn end(self, losses: &mut Vec<Loss>, missing: &mut Vec<Missing>) {
        losses.extend(self.losses);
        let folder = &self.trace.folder;
        for (input, raw) in self.inputs.iter().zip(folder.inputs()) {
            let of_cpu = |s: &&CpuStats| s.instance == raw.instance && s.cpu == raw.cpu;
            let dropped = folder.stats().iter().find(of_cpu).map_or(0, |s| s.dropped);
            let events = input.lost.unwrap_or(0).saturating_add(dropped);
            if events > 0 {
                losses.push(Loss {
                    from: input.last,
                    to: u64::MAX,
                    events,
                });
            }
        }
        let counts = self.events.counts();
        let nested: u64 = folder.stats().iter().map(|s| s.commit_overrun).sum();
        let clock = (
            counts.backwards + counts.leaps,
            "a monotonic trace clock",
            "events of one CPU's trace are out of order or far ahead",
        );
        let records = (
            counts.unknown + counts.short,
            "some events",
            "records match no format file, which is from another kernel",
        );
        let overrun = (
            nested,
            "some events",
            "events were lost at an unknown time (commit overrun by nested interrupts)",
        );
        let seen = [clock, records, overrun].into_iter();
        missing.extend(
            seen.filter(|(count, ..)| *count > 0)
                .map(|(count, what, why)| invalid(count, what.to_owned(), why)),
        );
        let unreadable = self.trace.readers.unreadable().iter();
        missing.extend(unreadable.map(|event| {
            let what = format!("the event {event}");
            invalid(1, what, "format file lacks required fields")
        }));
    }
}

/// Data that a trace lacks because of this many invalid events.
fn invalid(count: u64, what: String, why: &str) -> Missing {
    Missing {
        what,
        why: format!("{count} {why}"),
        fix: RECORD_AGAIN.to_owned(),
    }
}

const RECORD_AGAIN: &str = "record the trial again; `vmtax doctor` checks the clock";

/// The next event, in host ticks.
pub(crate) fn next<M: Fn(u64) -> u64, W>(
    side: &mut Option<TraceReader<'_, M>>,
    read: impl Fn(&Readers, &vmtax_trace::Event<'_>) -> Event<W>,
) -> Result<Option<Event<W>>, LayersError> {
    let Some(side) = side else { return Ok(None) };
    loop {
        let (ticks, input, found) = match side.events.next()? {
            None => return Ok(None),
            Some(Entry::Event(event)) => {
                (event.ticks, event.input, read(&side.trace.readers, &event))
            }
            Some(Entry::Lost(lost)) => {
                if let Some(input) = side.inputs.get_mut(lost.input as usize) {
                    // At least one where the number is unknown.
                    let events = lost.events.unwrap_or(1);
                    input.lost = Some(input.lost.unwrap_or(0).saturating_add(events));
                }
                continue;
            }
        };
        let at = side.event(ticks, input);
        return Ok(Some(Event { at, ..found }));
    }
}
