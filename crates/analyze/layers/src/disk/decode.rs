//! The kernels' events of block requests.

use super::request::NOWHERE;
use super::rwbs::kind;
use crate::events::event::{GuestEvent, Mark, SECTOR};
use vmtax_model::{GuestDisk, HostDisk};
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
                kind: kind(request.rwbs, bytes),
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
