//! QEMU's trace events as those of vmtax's probes on QEMU, which the analysis reads.

use std::collections::HashMap;
use vmtax_trace::{EventId, Formats};

/// QEMU's own events as the ones that vmtax's probes on QEMU record.
#[derive(Debug, Default)]
pub(crate) struct QemuRecords {
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

use Number::{Argument, Header, Sector};

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
    pub fn new(formats: &mut Formats) -> QemuRecords {
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

    /// The record of one of QEMU's events; `None` for one that is not of a request.
    pub fn record(
        &mut self,
        formats: &Formats,
        event: &vmtax_trace::Event<'_>,
        record: &mut Vec<u8>,
    ) -> Option<EventId> {
        let name = formats.get(event.id)?.name.as_str();
        let at = QEMU_EVENTS.iter().position(|known| known.name == name)?;
        let id = *self.ids.get(at)?;
        let number = |name: &str| formats.field(event.id, name)?.unsigned(event.data);
        record.clear();
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
    let number = |(n, (_, field)): (usize, &(Number, &str))| {
        format!(
            "\tfield:u64 {field};\toffset:{};\tsize:8;\tsigned:0;\n",
            HEADER + 8 * n
        )
    };
    let numbers: String = event.numbers.iter().enumerate().map(number).collect();
    let device = HEADER + 8 * event.numbers.len();
    format!(
        "name: {}\nID: {}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n{numbers}\
         \tfield:__data_loc char[] device;\toffset:{device};\tsize:4;\tsigned:0;\n",
        event.probe, id.0
    )
}
