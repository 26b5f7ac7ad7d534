//! The kernels' events of block requests: where on the disk a request is, and its kind, by the kernel's `rwbs` flags, by
//! the header of virtio disks or by QEMU's accounts.

use super::NOWHERE;
use crate::events::{GuestEvent, Mark, SECTOR};
use vmtax_findings::RequestKind;
use vmtax_model::{Extent, GuestDisk, HostDisk};
use vmtax_trace::{BlockRequest, KernelEvent};

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
    (disk.device == Some(request.device)).then(|| Mark::range(offset, bytes))
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
                Mark::range(e.file.saturating_add(from - e.device), to - from)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
