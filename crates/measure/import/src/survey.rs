//! Contents of one file, read once, before it is analyzed; and whose events each file has.

use crate::error::ImportError;
use crate::source::SourceFile;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use vmtax_model::{ImportedFile, Missing, TraceSide};
use vmtax_trace::{Counts, Entry, Event, EventId, Field, Formats, KernelDecoder, KernelEvent};

/// Contents of a file.
#[derive(Default)]
pub(crate) struct Survey {
    /// The times of its first and last event, ticks.
    pub span: Option<(u64, u64)>,
    pub counts: Counts,
    /// The threads that enter a guest.
    pub vcpus: BTreeMap<i32, VcpuThread>,
    /// True if KVM traced each exit.
    pub has_brackets: bool,
    /// True if KVM traced entries.
    pub has_entries: bool,
    /// True if KVM traced exits that it handed to QEMU.
    pub has_user_exits: bool,
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

fn survey(file: &SourceFile) -> Result<Survey, ImportError> {
    let decoder = KernelDecoder::new(file.formats());
    let fields = SurveyedFields::find(file.formats());
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
                survey.has_entries |= what == KernelEvent::KvmEntry;
                survey.has_user_exits |= matches!(what, KernelEvent::KvmUserspaceExit { .. });
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
    fn find(formats: &Formats) -> SurveyedFields {
        let vcpus = ["kvm_entry", "kvm_exit"]
            .into_iter()
            .filter_map(|name| formats.event("kvm", name))
            .filter_map(|id| Some((id, formats.field(id, "vcpu_id")?)))
            .collect();
        let tsc_offset = formats.event("kvm", "kvm_write_tsc_offset");
        let irq = formats.event("irq", "irq_handler_entry");
        SurveyedFields {
            vcpus,
            tsc_offset: tsc_offset.and_then(|id| Some((id, formats.field(id, "next_tsc_offset")?))),
            irq_name: irq.and_then(|id| formats.field(id, "name")),
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
                let offset = field.unsigned(event.data);
                self.tsc_offsets
                    .extend(offset.map(|offset| (event.pid, offset as i64)));
            }
        }
    }

    /// Counts an event of a thread that enters a guest.
    fn add_vcpu(&mut self, event: &Event<'_>, fields: &SurveyedFields) {
        if self.vcpus.len() < MAX_VCPUS || self.vcpus.contains_key(&event.pid) {
            let thread = self.vcpus.entry(event.pid).or_default();
            thread.events += 1;
            let field = fields.vcpus.get(&event.id);
            let number = field.and_then(|field| field.unsigned(event.data));
            // Text may not tell the vCPU.
            let known = number.and_then(|number| u32::try_from(number).ok());
            thread.number = thread.number.or(known.filter(|number| *number < u32::MAX));
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
            thread.number = thread.number.or_else(|| {
                let name = &file.threads()?.get(tid)?.name;
                let number = name.strip_prefix("CPU ")?.strip_suffix("/KVM")?;
                number.parse().ok()
            });
        }
        for (number, tid) in file.guests().flat_map(|guest| &guest.vcpus) {
            if let Some(thread) = self.vcpus.get_mut(tid) {
                thread.number = Some(*number);
            }
        }
    }
}

/// A file with what it holds.
pub(crate) struct Surveyed {
    pub file: SourceFile,
    pub survey: Survey,
    pub side: TraceSide,
}

impl Surveyed {
    /// Reads a file once.
    pub fn read(file: SourceFile) -> Result<Surveyed, ImportError> {
        Ok(Surveyed {
            survey: survey(&file)?,
            file,
            side: TraceSide::Host,
        })
    }

    /// Returns true if something in the file alone says that its kernel is a guest's.
    fn is_guests(&self) -> bool {
        let is_synchronized = self
            .file
            .dat()
            .is_some_and(|dat| !dat.time_shifts().is_empty());
        is_synchronized || !self.survey.disk_interrupts.is_empty()
    }

    /// Returns what is missing from a trace of which nothing says whose it is.
    pub fn unknown_kernel(&self) -> Missing {
        let path = self.file.path.display();
        Missing {
            what: "VM exits and requests by layer".to_owned(),
            why: format!(
                "nothing in {path} is of a VM, neither KVM's events nor virtio's interrupts"
            ),
            fix: format!("if it is of a guest's kernel, give `--guest-trace {path}`"),
        }
    }

    /// Events of exits.
    pub fn kvm_events(&self) -> u64 {
        self.survey.vcpus.values().map(|vcpu| vcpu.events).sum()
    }

    /// Returns what is missing from a second trace of the host's kernel.
    pub fn unused(&self) -> Missing {
        Missing {
            what: format!("events of {}", self.file.path.display()),
            why: "one trace of the host's kernel is analyzed, and another has more events of KVM"
                .to_owned(),
            fix: "record all events of the host in one trace; name the guest's with --guest-trace"
                .to_owned(),
        }
    }

    /// Returns the facts of the file for the recording.
    pub fn facts(&self) -> ImportedFile {
        let counts = &self.survey.counts;
        ImportedFile {
            file: self.file.path.display().to_string(),
            format: self.file.format().to_owned(),
            side: self.side,
            clock: self.file.clock().to_owned(),
            events: counts.events,
            lost: counts.lost,
            unknown: counts.unknown,
        }
    }

    /// Returns the parts of the file that could not be read.
    pub fn missing(&self) -> Vec<Missing> {
        let path = self.file.path.display();
        let counts = &self.survey.counts;
        let again = "copy the file again, or record it again";
        let larger = "record with larger buffers (`trace-cmd record -b`)";
        let why = [
            "pages or records are invalid or cut off",
            "records do not fit their format",
            "times events were lost",
            "events are out of order or far ahead",
            "tracepoints have other fields than are known",
        ];
        let unreadable = self.survey.unreadable.len() as u64;
        let parts = [
            (counts.damaged_pages, "parts", again),
            (counts.short, "some events", again),
            (counts.losses, "some events", larger),
            (counts.backwards + counts.leaps, "the order of events", ""),
            (unreadable, "some events", ""),
        ];
        let lacking = parts.iter().zip(why).filter(|((count, ..), _)| *count > 0);
        let missing = lacking.map(|((count, what, fix), why)| Missing {
            what: format!("{what} of {path}"),
            why: format!("{count} {why}"),
            fix: (*fix).to_owned(),
        });
        missing.collect()
    }
}

/// Decides whose events each file has: QEMU's; of kernels the guest's is the one that was named, that trace-cmd
/// synchronized with its host, or that has no events of KVM.
pub(crate) fn assign_sides(
    files: &mut [Surveyed],
    guest: Option<&Path>,
) -> Result<(), ImportError> {
    for file in files.iter_mut() {
        let is_synchronized = file
            .file
            .dat()
            .is_some_and(|dat| !dat.time_shifts().is_empty());
        file.side = match guest {
            _ if file.file.is_of_qemu() => TraceSide::Qemu,
            Some(guest) if file.file.path == guest => TraceSide::Guest,
            Some(_) => TraceSide::Host,
            None if is_synchronized => TraceSide::Guest,
            None if file.survey.vcpus.is_empty() => TraceSide::Guest,
            None => TraceSide::Host,
        };
    }
    if let ([file], None) = (&mut *files, guest) {
        // Nothing in it is of a VM.
        if file.side == TraceSide::Guest && !file.is_guests() {
            file.side = TraceSide::Unknown;
        }
    }
    let is_empty = |file: &Surveyed| match file.side {
        TraceSide::Host => file.survey.vcpus.is_empty(),
        TraceSide::Guest | TraceSide::Unknown => file.survey.block_devices.is_empty(),
        TraceSide::Qemu => file.survey.threads.is_empty(),
    };
    if let Some(first) = files.first().filter(|_| files.iter().all(is_empty)) {
        return Err(ImportError::Nothing {
            path: first.file.path.clone(),
        });
    }
    one_clock_of_qemu(files)?;
    let mut guests = files.iter().filter(|file| file.side == TraceSide::Guest);
    match guests.next().zip(guests.next()) {
        Some((first, second)) => Err(ImportError::Guests {
            first: first.file.path.clone(),
            second: second.file.path.clone(),
        }),
        None => Ok(()),
    }
}

/// Nothing joins the clocks of two traces of QEMU: neither bounds the other's by cause and effect.
fn one_clock_of_qemu(files: &[Surveyed]) -> Result<(), ImportError> {
    let mut of_qemu = files
        .iter()
        .filter(|file| file.side == TraceSide::Qemu && !file.survey.threads.is_empty());
    let Some(first) = of_qemu.next() else {
        return Ok(());
    };
    match of_qemu.find(|file| file.file.clock() != first.file.clock()) {
        Some(second) => Err(ImportError::QemuClocks {
            first: first.file.path.clone(),
            first_clock: first.file.clock().to_owned(),
            second: second.file.path.clone(),
            second_clock: second.file.clock().to_owned(),
        }),
        None => Ok(()),
    }
}
