//! Requests of a disk on virtio-blk (virtio 1.2, 5.2.6), by the chain of descriptors that the guest made of each.

use super::descriptor::{CHAIN_FLAGS, DESCRIPTOR, Descriptor, Format, INDIRECT, NEXT, WRITE};
use super::layout::Layout;
use super::memory::Memory;

/// Longest chain that is read: the Linux driver takes 254 segments at most.
const MAX_CHAIN: usize = 1024;
/// Length of a request's header, and of its status behind the data, bytes.
const HEADER: u32 = 16;
const STATUS: u32 = 1;

/// A request of a disk as the guest wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest {
    /// Operation that the guest asks for.
    pub operation: Operation,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

/// Operation of a request of virtio-blk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `VIRTIO_BLK_T_IN`.
    Read,
    /// `VIRTIO_BLK_T_OUT`.
    Write,
    /// `VIRTIO_BLK_T_FLUSH`.
    Flush,
    /// Identification, discard, zeroing, zones.
    Other,
}

impl Operation {
    fn of(number: u32) -> Option<Operation> {
        match number {
            0 => Some(Operation::Read),
            1 => Some(Operation::Write),
            4 => Some(Operation::Flush),
            8 | 10 | 11 | 13..=26 => Some(Operation::Other),
            _ => None,
        }
    }
}

/// Reads the request whose chain begins in a slot of a table of `size` descriptors; `None` where the chain is that of no such request,
/// or leads out of the guest's memory.
pub(super) fn request(
    memory: &dyn Memory,
    layout: &Layout,
    format: Format,
    table: (u64, u32),
    slot: u16,
) -> Option<BlockRequest> {
    let (address, size) = table;
    let first = Descriptor::read(memory, address + DESCRIPTOR * u64::from(slot), format)?;
    let chain = match first.has(INDIRECT) {
        true => {
            let entries = first.length / DESCRIPTOR as u32;
            let is_table = first.length % DESCRIPTOR as u32 == 0
                && (1..=MAX_CHAIN as u32).contains(&entries)
                && !first.has(NEXT);
            let table = layout.host(first.address, u64::from(first.length));
            chain(memory, format, (table.filter(|_| is_table)?, entries), 0)?
        }
        false => chain(memory, format, (address, size), slot)?,
    };
    of_chain(memory, layout, &chain)
}

/// The descriptors of a chain, which has an end; in an indirect table of a packed queue all of them, in their order.
fn chain(
    memory: &dyn Memory,
    format: Format,
    (table, size): (u64, u32),
    slot: u16,
) -> Option<Vec<Descriptor>> {
    let mut chain: Vec<Descriptor> = Vec::new();
    let mut slot = u32::from(slot);
    loop {
        let address = table.checked_add(DESCRIPTOR * u64::from(slot))?;
        let one = Descriptor::read(memory, address, format)?;
        let is_sound = one.flags & !CHAIN_FLAGS == 0 && !one.has(INDIRECT);
        let is_last = match format {
            Format::Split => !one.has(NEXT),
            Format::Packed => slot + 1 == size,
        };
        slot = match format {
            Format::Split => u32::from(one.next),
            Format::Packed => slot + 1,
        };
        chain.push(one);
        let is_too_long = chain.len() >= MAX_CHAIN.min(size as usize) && !is_last;
        if !is_sound || is_too_long || (slot >= size && !is_last) {
            return None;
        }
        if is_last {
            return Some(chain);
        }
    }
}

/// The request of a chain: a header that the device reads, data, a status that it writes.
fn of_chain(memory: &dyn Memory, layout: &Layout, chain: &[Descriptor]) -> Option<BlockRequest> {
    let [header, data @ .., status] = chain else {
        return None;
    };
    let is_request = header.length == HEADER
        && !header.has(WRITE)
        && status.length == STATUS
        && status.has(WRITE);
    let at = layout.host(header.address, u64::from(HEADER));
    let mut bytes = [0; HEADER as usize];
    memory
        .read(at.filter(|_| is_request)?, &mut bytes)
        .then_some(())?;
    let number = u128::from_le_bytes(bytes);
    let operation = Operation::of(number as u32)?;
    let is_all = |written: bool| data.iter().all(|part| part.has(WRITE) == written);
    let is_sound = match operation {
        Operation::Read => !data.is_empty() && is_all(true),
        Operation::Write => !data.is_empty() && is_all(false),
        Operation::Flush => data.is_empty(),
        Operation::Other => true,
    };
    let bytes = data.iter().map(|part| u64::from(part.length)).sum();
    is_sound.then_some(BlockRequest {
        operation,
        sector: (number >> 64) as u64,
        bytes,
    })
}
