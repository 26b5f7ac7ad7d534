//! The kernels' events of block requests: where on the disk a request is, and its kind, by the kernel's `rwbs` flags,
//! by the header of virtio disks or by QEMU's accounts; requests as QEMU's SCSI layer takes them up; and those of QEMU's log
//! backend, where the host's kernel may not be traced.

use super::NOWHERE;
use crate::LayersError;
use crate::events::{Event, GuestEvent, HostEvent, Mark, SECTOR};
use std::io::Read;
use std::path::Path;
use vmtax_findings::RequestKind;
use vmtax_model::{DISK, EventKind, Extent, GuestDisk, HostDisk, Moment};
use vmtax_trace::{BlockRequest, Entry, Formats, KernelEvent, QemuEvents};

/// The guest's event of a request to the measured disk.
pub(crate) fn request(event: KernelEvent<'_>, disk: &GuestDisk) -> Option<GuestEvent> {
    let (KernelEvent::BlockInsert(request)
    | KernelEvent::BlockIssue(request)
    | KernelEvent::BlockComplete(request)) = event
    else {
        return None;
    };
    (request.device == disk.device).then_some(())?;
    let offset = place(range(request));
    Some(match event {
        KernelEvent::BlockInsert(_) => GuestEvent::Insert { offset },
        KernelEvent::BlockIssue(_) => {
            let (_, bytes) = range(request)?;
            GuestEvent::Issue {
                offset,
                bytes,
                kind: kind_of_flags(request.rwbs, bytes),
            }
        }
        _ => GuestEvent::Complete { offset },
    })
}

/// The bytes of the host's device that a request transfers.
pub(crate) fn on_device(event: KernelEvent<'_>, disk: &HostDisk) -> Option<Mark> {
    let request = match event {
        KernelEvent::BlockInsert(request)
        | KernelEvent::BlockIssue(request)
        | KernelEvent::BlockComplete(request)
            if !disk.is_bio_based =>
        {
            request
        }
        KernelEvent::BioQueue(request) | KernelEvent::BioComplete(request) if disk.is_bio_based => {
            request
        }
        _ => return None,
    };
    let (offset, bytes) = range(request)?;
    (disk.device == Some(request.device)).then(|| Mark {
        kind: Some(kind_of_flags(request.rwbs, bytes)),
        ..Mark::range(offset, bytes)
    })
}

/// Where a guest's request is. One about no bytes is issued at sector 0, and completes at -1.
fn place(bytes: Option<(u64, u64)>) -> u64 {
    bytes
        .filter(|(_, bytes)| *bytes > 0)
        .map_or(NOWHERE, |(offset, _)| offset)
}

/// Where a block request is, and how long.
fn range(request: BlockRequest<'_>) -> Option<(u64, u64)> {
    Some((
        request.sector.checked_mul(SECTOR)?,
        request.sectors.checked_mul(SECTOR)?,
    ))
}

/// The disk's file on its device, by position on the device.
#[derive(Debug, Default)]
pub(crate) struct Extents(Vec<Extent>);

impl Extents {
    pub fn new(disk: &HostDisk) -> Self {
        let mut extents = disk.extents.clone();
        extents.sort_by_key(|e| e.device);
        Extents(extents)
    }

    /// A range of the device as ranges of the disk's file.
    pub fn in_file(&self, range: Mark) -> impl Iterator<Item = Mark> + '_ {
        let offset = range.offset.unwrap_or(0);
        let end = offset.saturating_add(range.bytes);
        let first = self
            .0
            .partition_point(|e| e.device.saturating_add(e.length) <= offset);
        self.0[first..]
            .iter()
            .take_while(move |e| e.device < end)
            .map(move |e| {
                let from = offset.max(e.device);
                let to = end.min(e.device.saturating_add(e.length));
                Mark {
                    kind: range.kind,
                    ..Mark::range(e.file.saturating_add(from - e.device), to - from)
                }
            })
    }
}

/// Returns the kind of a request by the kernel's flags (`blk_fill_rwbs`): an F before other letters asks for a flush
/// before the request.
pub(crate) fn kind_of_flags(rwbs: &[u8], bytes: u64) -> RequestKind {
    let letter = rwbs.iter().take(2).find(|l| **l != b'F' || bytes == 0);
    match letter {
        Some(b'R') => RequestKind::Read,
        Some(b'W') => RequestKind::Write,
        Some(b'D') => RequestKind::Discard,
        Some(b'F') => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}

/// Only of a legacy device: a request before which all others must be done.
const BARRIER: u64 = 0x8000_0000;

/// Returns the kind of a request by the type in its header (virtio 1.2, 5.2.6).
pub(crate) fn kind_of_header(kind: u64) -> RequestKind {
    match kind & !BARRIER {
        0 => RequestKind::Read,
        1 => RequestKind::Write,
        4 => RequestKind::Flush,
        11 => RequestKind::Discard,
        _ => RequestKind::Other,
    }
}

/// The kind that a device model accounts for, by QEMU's `BlockAcctType`. Kinds behind a flush have other numbers since 8.1.
pub(crate) fn kind_of_account(kind: u64) -> RequestKind {
    match kind {
        1 => RequestKind::Read,
        2 => RequestKind::Write,
        3 => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}

/// A request of a SCSI disk on virtio-scsi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScsiRequest {
    /// QEMU's address of its virtqueue element.
    pub element: u64,
    /// The kind of request.
    pub kind: RequestKind,
    /// The place on the disk, bytes; `None` for a command that is about no place.
    pub offset: Option<u64>,
}

impl ScsiRequest {
    /// Reads QEMU's `SCSIRequest` from its byte 40 on, 64 bytes: `hba_private`, `residual` and the command, which is 16
    /// bytes of CDB, its length, the bytes to transfer (`xfer`) and the block (`lba`). Since 10.1 they lie 8 bytes
    /// further on, behind the
    /// request's LUN
    /// and two statuses, which are -1 as long as nothing is done.
    pub fn read(bytes: &[u8]) -> Option<ScsiRequest> {
        let is_since_10_1 = word(bytes, 0)? >> 32 == u64::from(u32::MAX);
        let request = bytes.get(if is_since_10_1 { 8 } else { 0 }..)?;
        let (element, bytes, block) = (word(request, 0)?, word(request, 40)?, word(request, 48)?);
        let cdb = request.get(16..32)?;
        let kind = kind(*cdb.first()?, cdb.get(1)? & UNMAP != 0);
        let is_somewhere = matches!(kind, RequestKind::Read | RequestKind::Write);
        // QEMU counts in blocks of the disk, of which the command says how many it wants.
        let block_bytes = || bytes.checked_div(blocks(cdb)?);
        let offset = is_somewhere
            .then(block_bytes)
            .flatten()
            .and_then(|size| block.checked_mul(size));
        Some(ScsiRequest {
            element,
            kind,
            offset,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The bit of WRITE SAME that lets the disk forget the blocks.
const UNMAP: u8 = 1 << 3;

/// The kind of request, by the command's operation code and its bit UNMAP (SBC-3).
fn kind(operation: u8, unmaps: bool) -> RequestKind {
    match operation {
        0x08 | 0x28 | 0x88 | 0xa8 => RequestKind::Read,
        // The last three verify what they have written.
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae => RequestKind::Write,
        0x35 | 0x91 => RequestKind::Flush,
        0x42 => RequestKind::Discard,
        // Linux discards by WRITE SAME where a disk wants that, and writes zeros by it.
        0x41 | 0x93 if unmaps => RequestKind::Discard,
        _ => RequestKind::Other,
    }
}

/// The number of blocks that a read or write transfers: the length of a CDB goes by the first three bits of its operation
/// code (SPC-4, 4.2.5.1).
fn blocks(cdb: &[u8]) -> Option<u64> {
    let number = |from: usize, to: usize| {
        Some(
            cdb.get(from..to)?
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    match cdb.first()? >> 5 {
        // Where one byte says how many, 0 is 256.
        0 => number(4, 5).map(|blocks| if blocks == 0 { 256 } else { blocks }),
        1 | 2 => number(7, 9),
        4 => number(10, 14),
        5 => number(6, 10),
        _ => None,
    }
}

/// Resolution of its timestamps, ns.
pub(crate) const LOG_RESOLUTION_NS: f64 = 1000.0;

/// The events of a log, in order of time, at host ticks by the moments known on both clocks.
///
/// # Errors
/// [`LayersError::Trace`] when the file cannot be read.
pub(crate) fn read_log(
    log: impl Read,
    path: &Path,
    moments: &[Moment],
) -> Result<Vec<Event<HostEvent>>, LayersError> {
    let [first, .., last] = moments else {
        return Ok(Vec::new());
    };
    let qemu = QemuEvents::block_requests();
    let mut log = qemu.log_from(log, path);
    let mut events = Vec::new();
    while let Some(entry) = log.next()? {
        let Entry::Event(event) = entry else { continue };
        let what = what(qemu.formats(), &event);
        let at = ticks(event.ticks, first, last);
        events.extend(what.map(|what| Event {
            at,
            cpu: 0,
            tid: event.pid,
            interrupt: false,
            kind: EventKind::Tracepoint,
            what,
        }));
    }
    // Threads write as they come; their stamps may be a line apart.
    events.sort_by_key(|e| e.at);
    Ok(events)
}

fn what(formats: &Formats, event: &vmtax_trace::Event<'_>) -> Option<HostEvent> {
    let name = formats.get(event.id)?.name.as_str();
    let info = DISK
        .iter()
        .find(|info| info.sources.iter().any(|source| source.gives("qemu", name)))?;
    let number = |field: &str| formats.field(event.id, field)?.unsigned(event.data);
    let mark = Mark {
        address: number("req"),
        offset: number("offset").or_else(|| number("sector")?.checked_mul(SECTOR)),
        bytes: number("size").unwrap_or(1),
        queue: number("vq"),
        ..Mark::default()
    };
    Some(HostEvent::Passes(info.checkpoint, mark))
}

/// The host's ticks at a time of day, on the line through two moments.
fn ticks(ns: u64, first: &Moment, last: &Moment) -> u64 {
    let took = (i128::from(last.realtime_ns) - i128::from(first.realtime_ns)).max(1);
    let ticked = i128::from(last.ticks) - i128::from(first.ticks);
    let since = i128::from(ns) - i128::from(first.realtime_ns);
    let at = i128::from(first.ticks) + since.saturating_mul(ticked) / took;
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::Checkpoint;

    #[test]
    fn flags_say_the_kind_of_a_request() {
        let kind_of = |rwbs: &str, bytes| kind_of_flags(rwbs.as_bytes(), bytes);
        assert_eq!(
            (kind_of("R", 4096), kind_of("RA", 8192), kind_of("RM\0", 1)),
            (RequestKind::Read, RequestKind::Read, RequestKind::Read)
        );
        assert_eq!(
            (kind_of("WS", 4096), kind_of("FWFS", 4096)),
            (RequestKind::Write, RequestKind::Write)
        );
        assert_eq!(
            (kind_of("FF", 0), kind_of("F", 0), kind_of("D", 4096)),
            (RequestKind::Flush, RequestKind::Flush, RequestKind::Discard)
        );
        assert_eq!(
            (kind_of("N", 0), kind_of("", 0), kind_of("", 4096)),
            (RequestKind::Other, RequestKind::Other, RequestKind::Other)
        );
    }

    #[test]
    fn a_request_is_of_the_kind_that_its_number_says() {
        use RequestKind::{Discard, Flush, Other, Read, Write};
        assert_eq!(
            [0, 1, BARRIER | 1, 4, 8, 11, 13].map(kind_of_header),
            [Read, Write, Write, Flush, Other, Discard, Other]
        );
        assert_eq!(
            [0, 1, 2, 3, 4].map(kind_of_account),
            [Other, Read, Write, Flush, Other]
        );
    }

    /// As QEMU has it in memory, from byte 40 on.
    fn memory(is_since_10_1: bool, cdb: &[u8], bytes: u64, block: u64) -> Vec<u8> {
        let mut all = if is_since_10_1 {
            vec![3, 0, 0, 0, 255, 255, 255, 255]
        } else {
            Vec::new()
        };
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        all.extend(
            [0x7f20_0000_1230_u64, 0]
                .into_iter()
                .flat_map(u64::to_ne_bytes),
        );
        all.extend(whole);
        all.extend([10, bytes, block].into_iter().flat_map(u64::to_ne_bytes));
        all.resize(64, 0xab);
        all
    }

    #[test]
    fn the_place_of_a_request_is_found_whatever_the_disks_blocks_and_the_version() {
        let read_10 = [0x28, 0, 0, 0, 0, 40, 0, 0, 8, 0];
        let write_16 = [0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0];
        let read_6 = [0x08, 0, 0, 9, 0, 0];
        let write_12 = [0xaa, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0];
        for is_since_10_1 in [false, true] {
            let read = |cdb: &[u8], bytes, block| {
                ScsiRequest::read(&memory(is_since_10_1, cdb, bytes, block)).unwrap()
            };
            let expected = |kind, offset| ScsiRequest {
                element: 0x7f20_0000_1230,
                kind,
                offset,
            };
            assert_eq!(
                read(&read_10, 4096, 40),
                expected(RequestKind::Read, Some(40 * 512))
            );
            assert_eq!(
                read(&write_16, 4096, 5),
                expected(RequestKind::Write, Some(5 * 4096))
            );
            assert_eq!(
                read(&read_6, 256 * 512, 9),
                expected(RequestKind::Read, Some(9 * 512))
            );
            assert_eq!(
                read(&write_12, 1024, 3),
                expected(RequestKind::Write, Some(3 * 512))
            );
            assert_eq!(
                read(&[0x35], 0, u64::MAX),
                expected(RequestKind::Flush, None)
            );
            assert_eq!(
                read(&[0x42], 24, u64::MAX),
                expected(RequestKind::Discard, None)
            );
            assert_eq!(
                read(&[0x93, UNMAP], 512, u64::MAX),
                expected(RequestKind::Discard, None)
            );
            assert_eq!(
                read(&[0x93, 0], 512, u64::MAX),
                expected(RequestKind::Other, None)
            );
            assert_eq!(
                read(&[0x12], 36, u64::MAX),
                expected(RequestKind::Other, None)
            );
        }
    }

    proptest! {
        #[test]
        fn any_memory_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = ScsiRequest::read(&bytes);
        }
    }

    /// The events of a text whose stamps are as many ticks as nanoseconds.
    fn events(text: &str) -> Vec<(i32, u64, HostEvent)> {
        let moments = [0, 1 << 62].map(|at| Moment {
            ticks: at,
            realtime_ns: at,
        });
        let events = read_log(text.as_bytes(), "log".as_ref(), &moments).unwrap();
        events.into_iter().map(|e| (e.tid, e.at, e.what)).collect()
    }

    #[test]
    fn lines_as_qemu_writes_them() {
        let lines = "4711@1700000000.000123:virtio_blk_handle_read vdev 0x55d0 req 0x7f20 sector 64 nsectors 8\n\
            4711@1700000000.000150:virtio_blk_submit_multireq vdev 0x55d0 mrb 0x7f00 start 0 num_reqs 1 offset 32768 size 4096 is_write 0\n\
            4711@1700000000.000200:virtio_blk_req_complete vdev 0x55d0 req 0x7f20 status 0\n\
            4711@1700000000.000201:virtio_notify_irqfd vdev 0x55d0 vq 0x55e1\n";
        let element = |offset| Mark {
            address: Some(0x7f20),
            offset,
            bytes: 1,
            ..Mark::default()
        };
        let expected = [
            (123, Checkpoint::QemuPop, element(Some(32768))),
            (150, Checkpoint::QemuSubmit, Mark::range(32768, 4096)),
            (200, Checkpoint::QemuPush, element(None)),
            (
                201,
                Checkpoint::QemuNotify,
                Mark {
                    queue: Some(0x55e1),
                    bytes: 1,
                    ..Mark::default()
                },
            ),
        ];
        let expected = expected.map(|(us, c, mark)| {
            (
                4711,
                1_700_000_000_000_000_000 + us * 1000,
                HostEvent::Passes(c, mark),
            )
        });
        assert_eq!(events(lines), expected);
        for other in [
            "",
            "qemu: warning: x",
            "1@2.3:virtio_notify_irqfd vdev 0x1 vq 0x2",
            "1@2.000003:else",
            "@.:",
        ] {
            assert_eq!(events(other), [], "{other}");
        }
    }

    #[test]
    fn times_of_day_become_ticks() {
        let moment = |ticks, realtime_ns| Moment { ticks, realtime_ns };
        let (a, b) = (moment(1000, 5_000_000), moment(3000, 6_000_000));
        assert_eq!(
            [4_500_000, 5_000_000, 5_500_000, 6_500_000].map(|ns| ticks(ns, &a, &b)),
            [0, 1000, 2000, 4000]
        );
        assert_eq!(ticks(7, &a, &a), 1000);
        assert_eq!(
            ticks(u64::MAX, &moment(0, 0), &moment(u64::MAX, 1)),
            u64::MAX
        );
    }

    proptest! {
        #[test]
        fn any_line_is_survived(text in "\\PC*", tid in any::<i64>(), ns in any::<u64>(), hex in any::<u64>()) {
            let moments = [0, 1 << 62].map(|at| Moment { ticks: at, realtime_ns: at });
            let _ = read_log(text.as_bytes(), "log".as_ref(), &moments);
            let _ = read_log(format!("{tid}@{ns}.{ns:06}:virtio_blk_handle_read vdev 0x1 req {hex:#x} sector {hex} {text}").as_bytes(), "log".as_ref(), &moments);
        }
    }
}
