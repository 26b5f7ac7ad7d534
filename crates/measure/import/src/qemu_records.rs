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

/// QEMU's event, the probe's event, its numbers (QEMU's argument and the probe's field).
const QEMU_EVENTS: &[(&str, &str, &[(&str, &str)])] = &[
    ("virtio_blk_handle_read", "pop", &[("req", "elem"), ("sector", "sector"), (TYPE, "type")]),
    ("virtio_blk_handle_write", "pop", &[("req", "elem"), ("sector", "sector"), (TYPE, "type")]),
    ("virtio_blk_submit_multireq", "submit", &[("offset", "offset"), ("size", "bytes")]),
    ("virtio_blk_req_complete", "push", &[("req", "elem"), (SECTOR, "sector")]),
    ("virtio_notify_irqfd", "notify", &[]),
];
/// What is not among the arguments of QEMU's event: the sector at the completion, and the type of a request.
const SECTOR: &str = "";
const TYPE: &str = "type";
/// The type in the header of a write (virtio 1.2, 5.2.6); that of a read is 0.
const WRITE: u64 = 1;
/// No disk has it.
const UNKNOWN_SECTOR: u64 = u64::MAX / 512;
/// More requests than these are not in flight.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// Of the group of probes.
const GROUP: &str = "vmtax_import";
/// The common fields.
const HEADER: usize = 8;

impl QemuRecords {
    /// Adds the formats of the probes' events.
    pub fn new(formats: &mut Formats) -> QemuRecords {
        let mut ids: Vec<(&str, EventId)> = Vec::new();
        let ids = QEMU_EVENTS
            .iter()
            .filter_map(|(_, name, fields)| {
                if let Some((_, id)) = ids.iter().find(|(known, _)| known == name) {
                    return Some(*id);
                }
                let id = (1..=u16::MAX).map(EventId).find(|id| formats.get(*id).is_none())?;
                let number = |(n, (_, field)): (usize, &(&str, &str))| {
                    format!("\tfield:u64 {field};\toffset:{};\tsize:8;\tsigned:0;\n", HEADER + 8 * n)
                };
                let numbers: String = fields.iter().enumerate().map(number).collect();
                let device = HEADER + 8 * fields.len();
                let text = format!(
                    "name: {name}\nID: {}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                     \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n{numbers}\
                     \tfield:__data_loc char[] device;\toffset:{device};\tsize:4;\tsigned:0;\n",
                    id.0
                );
                formats.add(GROUP, &text).ok()?;
                ids.push((name, id));
                Some(id)
            })
            .collect();
        QemuRecords { ids, sectors: HashMap::new() }
    }

    /// The record of one of QEMU's events; `None` for one that is not of a request.
    pub fn record(
        &mut self,
        formats: &Formats,
        event: &vmtax_trace::Event<'_>,
        record: &mut Vec<u8>,
    ) -> Option<EventId> {
        let name = formats.get(event.id)?.name.as_str();
        let at = QEMU_EVENTS.iter().position(|(qemu, ..)| *qemu == name)?;
        let (id, (_, _, fields)) = (*self.ids.get(at)?, QEMU_EVENTS[at]);
        let number = |name: &str| formats.field(event.id, name)?.unsigned(event.data);
        record.clear();
        record.extend_from_slice(&u32::from(id.0).to_le_bytes());
        record.extend_from_slice(&event.pid.to_le_bytes());
        for (argument, _) in fields {
            let value = match *argument {
                TYPE => u64::from(name == "virtio_blk_handle_write") * WRITE,
                SECTOR => self.sectors.remove(&number("req")?).unwrap_or(UNKNOWN_SECTOR),
                argument => number(argument)?,
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
