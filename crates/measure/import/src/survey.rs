//! Contents of one file: read once, before it is analyzed.

use crate::error::ImportError;
use crate::source::SourceFile;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_trace::{Counts, Entry, EventId, Field, KernelDecoder, KernelEvent};

/// Contents of a file.
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
    let formats = file.formats();
    let decoder = KernelDecoder::new(formats);
    let vcpu_fields: BTreeMap<EventId, Field> = ["kvm_entry", "kvm_exit"]
        .into_iter()
        .filter_map(|name| formats.event("kvm", name))
        .filter_map(|id| Some((id, formats.field(id, "vcpu_id")?)))
        .collect();
    let mut survey = Survey {
        span: None,
        counts: Counts::default(),
        vcpus: BTreeMap::new(),
        has_brackets: false,
        has_calls: false,
        block_devices: BTreeMap::new(),
        threads: BTreeSet::new(),
        disk_interrupts: BTreeSet::new(),
        tsc_offsets: BTreeMap::new(),
        unreadable: decoder.unreadable().to_vec(),
    };
    let tsc_offset = formats.event("kvm", "kvm_write_tsc_offset");
    let tsc_offset = tsc_offset.and_then(|id| Some((id, formats.field(id, "next_tsc_offset")?)));
    let irq_name = formats
        .event("irq", "irq_handler_entry")
        .and_then(|id| formats.field(id, "name"));
    let mut events = file.events()?;
    while let Some(entry) = events.next()? {
        let Entry::Event(event) = entry else { continue };
        let (first, last) = survey.span.unwrap_or((event.ticks, event.ticks));
        survey.span = Some((first.min(event.ticks), last.max(event.ticks)));
        if let Some((_, field)) = tsc_offset.filter(|(id, _)| *id == event.id) {
            if survey.tsc_offsets.len() < MAX_VCPUS {
                survey.tsc_offsets.extend(
                    field
                        .unsigned(event.data)
                        .map(|offset| (event.pid, offset as i64)),
                );
            }
        }
        match decoder.decode(&event) {
            Some(
                what @ (KernelEvent::KvmExit { .. }
                | KernelEvent::KvmEntry
                | KernelEvent::KvmAccess(_)
                | KernelEvent::KvmUserspaceExit { .. }),
            ) => {
                survey.has_brackets |= matches!(what, KernelEvent::KvmExit { .. });
                if survey.vcpus.len() < MAX_VCPUS || survey.vcpus.contains_key(&event.pid) {
                    let thread = survey.vcpus.entry(event.pid).or_default();
                    thread.events += 1;
                    let number = vcpu_fields
                        .get(&event.id)
                        .and_then(|field| field.unsigned(event.data));
                    thread.number = thread.number.or(number.and_then(known_vcpu));
                }
            }
            Some(KernelEvent::SysEnter { .. }) => survey.has_calls = true,
            Some(KernelEvent::BlockIssue(request)) => {
                let known = survey.block_devices.contains_key(&request.device);
                if known || survey.block_devices.len() < MAX_DEVICES {
                    *survey.block_devices.entry(request.device).or_default() += 1;
                }
            }
            Some(KernelEvent::Irq { irq }) if survey.disk_interrupts.len() < MAX_DEVICES => {
                let name = irq_name.and_then(|field| field.text(event.data));
                let is_virtio = name.is_some_and(|name| name.contains("virtio"));
                survey
                    .disk_interrupts
                    .extend(u32::try_from(irq).ok().filter(|_| is_virtio));
            }
            None if file.is_of_qemu() && survey.threads.len() < MAX_VCPUS => {
                survey.threads.insert(event.pid);
            }
            _ => {}
        }
    }
    survey.counts = *events.counts();
    // Threads of QEMU are named by their vCPU.
    for (tid, thread) in &mut survey.vcpus {
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
        if let Some(thread) = survey.vcpus.get_mut(tid) {
            thread.number = Some(*number);
        }
    }
    Ok(survey)
}

/// Text may not tell the vCPU.
fn known_vcpu(number: u64) -> Option<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number < u32::MAX)
}
