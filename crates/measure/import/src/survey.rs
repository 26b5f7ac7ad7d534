//! Contents of one file: read once, before it is analyzed.

use crate::error::ImportError;
use crate::source::SourceFile;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_trace::{Counts, Entry, Event, EventId, Field, Formats, KernelDecoder, KernelEvent};

/// Contents of a file.
#[derive(Default)]
pub(crate) struct Survey {
    /// The times of its first and last event, ticks.
    pub span: Option<(u64, u64)>,
    pub counts: Counts,
    /// The threads that enter a guest.
    pub vcpus: BTreeMap<i32, VcpuThread>,
    /// True if KVM traced each exit and entry.
    pub has_brackets: bool,
    /// True if the file has system calls.
    pub has_calls: bool,
    /// Block requests by device.
    pub block_devices: BTreeMap<u64, u64>,
    /// Threads whose events a file of QEMU has.
    pub threads: BTreeSet<i32>,
    /// Interrupts of virtio devices.
    pub disk_interrupts: BTreeSet<u32>,
    /// Offsets that KVM adds to the host's counter for a guest, the last of each thread: guest minus host, ticks.
    pub tsc_offsets: BTreeMap<i32, i64>,
    /// Known tracepoints with unknown fields.
    pub unreadable: Vec<String>,
}

/// A thread that enters a guest.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VcpuThread {
    /// Events of exits.
    pub events: u64,
    /// Number of the vCPU that the thread runs; `None` where the trace does not say.
    pub number: Option<u32>,
}

/// More threads than these are no vCPUs of one trace.
const MAX_VCPUS: usize = 1 << 16;
const MAX_DEVICES: usize = 1 << 12;

pub(crate) fn survey(file: &SourceFile) -> Result<Survey, ImportError> {
    let decoder = KernelDecoder::new(file.formats());
    let fields = SurveyedFields::of(file.formats());
    let mut survey = Survey {
        unreadable: decoder.unreadable().to_vec(),
        ..Survey::default()
    };
    let mut events = file.events()?;
    while let Some(entry) = events.next()? {
        let Entry::Event(event) = entry else { continue };
        survey.add_time(event.ticks);
        survey.add_tsc_offset(&event, &fields);
        match decoder.decode(&event) {
            Some(
                what @ (KernelEvent::KvmExit { .. }
                | KernelEvent::KvmEntry
                | KernelEvent::KvmAccess(_)
                | KernelEvent::KvmUserspaceExit { .. }),
            ) => {
                survey.has_brackets |= matches!(what, KernelEvent::KvmExit { .. });
                survey.add_vcpu(&event, &fields);
            }
            Some(KernelEvent::SysEnter { .. }) => survey.has_calls = true,
            Some(KernelEvent::BlockIssue(request)) => survey.add_request(request.device),
            Some(KernelEvent::Irq { irq }) => survey.add_interrupt(irq, &event, &fields),
            None if file.is_of_qemu() && survey.threads.len() < MAX_VCPUS => {
                survey.threads.insert(event.pid);
            }
            _ => {}
        }
    }
    survey.counts = *events.counts();
    survey.number_vcpus(file);
    Ok(survey)
}

/// Fields that a survey reads itself, beside those that are decoded.
struct SurveyedFields {
    /// The vCPU's number, by the event that has it.
    vcpus: BTreeMap<EventId, Field>,
    /// The event by which KVM sets the offset of a guest's counter, and the offset in it.
    tsc_offset: Option<(EventId, Field)>,
    /// The name of an interrupt's device.
    irq_name: Option<Field>,
}

impl SurveyedFields {
    /// Looks up the fields in the formats of a file.
    fn of(formats: &Formats) -> SurveyedFields {
        let vcpus = ["kvm_entry", "kvm_exit"]
            .into_iter()
            .filter_map(|name| formats.event("kvm", name))
            .filter_map(|id| Some((id, formats.field(id, "vcpu_id")?)))
            .collect();
        let tsc_offset = formats.event("kvm", "kvm_write_tsc_offset");
        let tsc_offset =
            tsc_offset.and_then(|id| Some((id, formats.field(id, "next_tsc_offset")?)));
        let irq_name = formats
            .event("irq", "irq_handler_entry")
            .and_then(|id| formats.field(id, "name"));
        SurveyedFields {
            vcpus,
            tsc_offset,
            irq_name,
        }
    }
}

impl Survey {
    /// Extends the span of the file to the time of an event.
    fn add_time(&mut self, ticks: u64) {
        let (first, last) = self.span.unwrap_or((ticks, ticks));
        self.span = Some((first.min(ticks), last.max(ticks)));
    }

    /// Takes the offset of a guest's counter from the event that sets it.
    fn add_tsc_offset(&mut self, event: &Event<'_>, fields: &SurveyedFields) {
        if let Some((_, field)) = fields.tsc_offset.filter(|(id, _)| *id == event.id) {
            if self.tsc_offsets.len() < MAX_VCPUS {
                self.tsc_offsets.extend(
                    field
                        .unsigned(event.data)
                        .map(|offset| (event.pid, offset as i64)),
                );
            }
        }
    }

    /// Counts an event of a thread that enters a guest.
    fn add_vcpu(&mut self, event: &Event<'_>, fields: &SurveyedFields) {
        if self.vcpus.len() < MAX_VCPUS || self.vcpus.contains_key(&event.pid) {
            let thread = self.vcpus.entry(event.pid).or_default();
            thread.events += 1;
            let number = fields
                .vcpus
                .get(&event.id)
                .and_then(|field| field.unsigned(event.data));
            thread.number = thread.number.or(number.and_then(known_vcpu));
        }
    }

    /// Counts a block request of a device.
    fn add_request(&mut self, device: u64) {
        let known = self.block_devices.contains_key(&device);
        if known || self.block_devices.len() < MAX_DEVICES {
            *self.block_devices.entry(device).or_default() += 1;
        }
    }

    /// Adds an interrupt if it is one of a virtio device.
    fn add_interrupt(&mut self, irq: u64, event: &Event<'_>, fields: &SurveyedFields) {
        if self.disk_interrupts.len() < MAX_DEVICES {
            let name = fields.irq_name.and_then(|field| field.text(event.data));
            let is_virtio = name.is_some_and(|name| name.contains("virtio"));
            self.disk_interrupts
                .extend(u32::try_from(irq).ok().filter(|_| is_virtio));
        }
    }

    /// Numbers the vCPUs by the names of their threads where their events do not, and those of the guests that
    /// trace-cmd's session has as it does.
    fn number_vcpus(&mut self, file: &SourceFile) {
        // Threads of QEMU are named by their vCPU.
        for (tid, thread) in &mut self.vcpus {
            let name = file
                .threads()
                .and_then(|threads| threads.get(tid))
                .map(|thread| thread.name.as_str());
            thread.number = thread.number.or_else(|| {
                name?
                    .strip_prefix("CPU ")?
                    .strip_suffix("/KVM")?
                    .parse()
                    .ok()
            });
        }
        for (number, tid) in file
            .dat()
            .into_iter()
            .flat_map(|dat| dat.guests())
            .flat_map(|guest| &guest.vcpus)
        {
            if let Some(thread) = self.vcpus.get_mut(tid) {
                thread.number = Some(*number);
            }
        }
    }
}

/// Text may not tell the vCPU.
fn known_vcpu(number: u64) -> Option<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number < u32::MAX)
}
