//! Writes the events of files of other tools as one trace, as vmtax's own tracer leaves it: QEMU's trace events as those of
//! vmtax's probes on QEMU, which the analysis reads.

use crate::error::ImportError;
use crate::source::SourceFile;
use Number::{Argument, Header, Sector};
use std::collections::{BTreeSet, HashMap};
use vmtax_model::IMPORTED_CLOCK;
use vmtax_recording::{RecordingError, TrialFiles};
use vmtax_trace::{Entry, Event, EventId, FolderWriter, Formats, Keep, KernelDecoder};

/// Bytes of one side's trace that are kept.
const MAX_BYTES: u64 = 1 << 30;

/// A file whose events go into a trace.
pub(crate) struct FolderInput<'a> {
    pub file: &'a SourceFile,
    /// From its CPU and ticks to the trace's ticks.
    pub ticks: Box<dyn Fn(u32, u64) -> u64 + 'a>,
}

/// Result of writing a trace.
pub(crate) struct WrittenFolder {
    /// The trace was longer than what is kept.
    pub is_full: bool,
    /// Records that could not be kept.
    pub left_out: u64,
}

/// Writes the events that analyses read of a kernel's file, and those of QEMU's files, into a folder of the trial.
pub(crate) fn write(
    name: &str,
    kernel: Option<&FolderInput<'_>>,
    qemu: &[FolderInput<'_>],
    trial: &mut TrialFiles,
) -> Result<WrittenFolder, ImportError> {
    let mut keep = |file: &str, content: &[u8]| trial.append(&format!("{name}/{file}"), content);
    let mut formats = kernel.map_or_else(Formats::default, |input| input.file.formats().clone());
    let mut records = if qemu.is_empty() {
        QemuRecords::default()
    } else {
        QemuRecords::new(&mut formats)
    };
    let mut writer = TraceWriter {
        writer: FolderWriter::default(),
        keep: &mut keep,
        used: BTreeSet::new(),
        kept: 0,
    };
    if let Some(input) = kernel {
        let decoder = KernelDecoder::new(input.file.formats());
        writer.copy(input, 0, |event, record| {
            decoder.decode(event)?;
            record.extend_from_slice(event.data);
            Some(event.id)
        })?;
    }
    for (n, input) in (FIRST_QEMU..).zip(qemu) {
        let of_file = input.file.formats();
        writer.copy(input, n, |event, record| {
            records.record(of_file, event, record)
        })?;
    }
    let TraceWriter {
        writer, used, kept, ..
    } = writer;
    let used: Vec<EventId> = used.into_iter().collect();
    writer.head::<RecordingError>(&formats, &used, IMPORTED_CLOCK, &mut keep)?;
    Ok(WrittenFolder {
        is_full: kept > MAX_BYTES,
        left_out: writer.finish(&mut keep)?,
    })
}

/// A trace in the making.
struct TraceWriter<'a, 'k> {
    writer: FolderWriter,
    keep: &'a mut Keep<'k, RecordingError>,
    used: BTreeSet<EventId>,
    /// Bytes of its events; more than [`MAX_BYTES`] where the trace is longer than what is kept.
    kept: u64,
}

impl TraceWriter<'_, '_> {
    /// Writes the events of a file that `to_record` makes a record of, into the instances of the trace from `first` on.
    fn copy(
        &mut self,
        input: &FolderInput<'_>,
        first: u32,
        mut to_record: impl FnMut(&Event<'_>, &mut Vec<u8>) -> Option<EventId>,
    ) -> Result<(), ImportError> {
        let mut events = input.file.events()?;
        let mut record = Vec::new();
        while let Some(entry) = events.next()? {
            match entry {
                Entry::Event(event) => {
                    record.clear();
                    let Some(id) = to_record(&event, &mut record) else {
                        continue;
                    };
                    self.kept += record.len() as u64 + 8;
                    if self.kept > MAX_BYTES {
                        break;
                    }
                    self.used.insert(id);
                    let (instance, ticks) =
                        (first + event.input, (input.ticks)(event.cpu, event.ticks));
                    self.writer
                        .event(instance, event.cpu, ticks, &record, self.keep)?;
                }
                Entry::Lost(lost) => {
                    let (instance, events) = (first + lost.input, lost.events.unwrap_or(1));
                    let cpu = lost.cpu.unwrap_or(0);
                    self.writer.lost(instance, cpu, events, self.keep)?;
                }
            }
        }
        Ok(())
    }
}

/// Instances of QEMU's files are numbered from here, beyond the inputs of any kernel.
const FIRST_QEMU: u32 = 1 << 20;

/// QEMU's own events as the ones that vmtax's probes on QEMU record.
#[derive(Debug, Default)]
struct QemuRecords {
    /// By position in [`QEMU_EVENTS`].
    ids: Vec<EventId>,
    /// The sector of each request in flight: QEMU's completion does not tell it.
    sectors: HashMap<u64, u64>,
}

/// One of QEMU's events.
struct QemuEvent {
    name: &'static str,
    /// The probe's event.
    probe: &'static str,
    /// Where its numbers come from, and the probe's fields.
    numbers: &'static [(Number, &'static str)],
}

/// Where a number comes from.
#[derive(Clone, Copy)]
enum Number {
    /// An argument of QEMU's event.
    Argument(&'static str),
    /// The type in the header of a request.
    Header(u64),
    /// The sector of the request that completes.
    Sector,
}

/// Types of requests (virtio 1.2, 5.2.6).
const READ: u64 = 0;
const WRITE: u64 = 1;

const QEMU_EVENTS: &[QemuEvent] = &[
    QemuEvent {
        name: "virtio_blk_handle_read",
        probe: "pop",
        numbers: &[
            (Argument("req"), "elem"),
            (Argument("sector"), "sector"),
            (Header(READ), "type"),
        ],
    },
    QemuEvent {
        name: "virtio_blk_handle_write",
        probe: "pop",
        numbers: &[
            (Argument("req"), "elem"),
            (Argument("sector"), "sector"),
            (Header(WRITE), "type"),
        ],
    },
    QemuEvent {
        name: "virtio_blk_submit_multireq",
        probe: "submit",
        numbers: &[(Argument("offset"), "offset"), (Argument("size"), "bytes")],
    },
    QemuEvent {
        name: "virtio_blk_req_complete",
        probe: "push",
        numbers: &[(Argument("req"), "elem"), (Sector, "sector")],
    },
    QemuEvent {
        name: "virtio_notify_irqfd",
        probe: "notify",
        numbers: &[],
    },
];

/// No disk has it.
const UNKNOWN_SECTOR: u64 = u64::MAX / 512;
/// More requests than these are not in flight.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// Of the group of probes.
const GROUP: &str = "vmtax_import";
/// The common fields, bytes.
const HEADER: usize = 8;

impl QemuRecords {
    /// Adds the formats of the probes' events.
    fn new(formats: &mut Formats) -> QemuRecords {
        let mut ids: Vec<(&str, EventId)> = Vec::new();
        let mut id_of = |event: &QemuEvent| {
            if let Some((_, id)) = ids.iter().find(|(known, _)| *known == event.probe) {
                return Some(*id);
            }
            let id = (1..=u16::MAX)
                .map(EventId)
                .find(|id| formats.get(*id).is_none())?;
            formats.add(GROUP, &format(event, id)).ok()?;
            ids.push((event.probe, id));
            Some(id)
        };
        QemuRecords {
            ids: QEMU_EVENTS.iter().filter_map(&mut id_of).collect(),
            sectors: HashMap::new(),
        }
    }

    /// Makes the record of one of QEMU's events; `None` for one that is not of a request.
    fn record(
        &mut self,
        formats: &Formats,
        event: &Event<'_>,
        record: &mut Vec<u8>,
    ) -> Option<EventId> {
        let name = formats.get(event.id)?.name.as_str();
        let at = QEMU_EVENTS.iter().position(|known| known.name == name)?;
        let id = *self.ids.get(at)?;
        let number = |name: &str| formats.field(event.id, name)?.unsigned(event.data);
        record.extend_from_slice(&u32::from(id.0).to_le_bytes());
        record.extend_from_slice(&event.pid.to_le_bytes());
        for (source, _) in QEMU_EVENTS[at].numbers {
            let value = match *source {
                Argument(name) => number(name)?,
                Header(kind) => kind,
                Sector => self
                    .sectors
                    .remove(&number("req")?)
                    .unwrap_or(UNKNOWN_SECTOR),
            };
            record.extend_from_slice(&value.to_le_bytes());
        }
        if let Some((request, sector)) = number("req").zip(number("sector")) {
            if self.sectors.len() < MAX_IN_FLIGHT {
                self.sectors.insert(request, sector);
            }
        }
        let device = format!("virtio-blk device at {:#x}\0", number("vdev")?);
        let place = (record.len() + 4) as u32 | (device.len() as u32) << 16;
        record.extend_from_slice(&place.to_le_bytes());
        record.extend_from_slice(device.as_bytes());
        Some(id)
    }
}

/// The format of a probe's event: its numbers, then the device.
fn format(event: &QemuEvent, id: EventId) -> String {
    let mut numbers = String::new();
    let mut device = HEADER;
    for (_, field) in event.numbers {
        numbers += &format!("\tfield:u64 {field};\toffset:{device};\tsize:8;\tsigned:0;\n");
        device += 8;
    }
    format!(
        "name: {}\nID: {}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n{numbers}\
         \tfield:__data_loc char[] device;\toffset:{device};\tsize:4;\tsigned:0;\n",
        event.probe, id.0
    )
}
