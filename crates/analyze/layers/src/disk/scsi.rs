//! Requests as QEMU's SCSI layer takes them up.

use vmtax_findings::RequestKind;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
