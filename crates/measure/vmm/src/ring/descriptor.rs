//! Descriptors of virtqueues in their two formats (virtio 1.2, 2.7.5 and 2.8.13).

use super::memory::Memory;

/// Size of a descriptor, bytes.
pub(super) const DESCRIPTOR: u64 = 16;
/// Flags: the chain goes on, the device writes the bytes, they are a table of further descriptors.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
/// Flags that a chain's descriptor may have; those of a packed queue have its lap beside them.
pub(super) const CHAIN_FLAGS: u16 = NEXT | WRITE | INDIRECT;

/// Format of a virtqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// A table of descriptors, a ring of available heads, a ring of used ones.
    Split,
    /// One ring of descriptors.
    Packed,
}

/// Bytes of the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub address: u64,
    pub length: u32,
    pub flags: u16,
    /// Slot of the chain's next one, in the table of a split queue.
    pub next: u16,
}

impl Descriptor {
    /// Reads the descriptor at an address of the process.
    pub fn read(memory: &dyn Memory, address: u64, format: Format) -> Option<Descriptor> {
        let mut bytes = [0; DESCRIPTOR as usize];
        memory.read(address, &mut bytes).then_some(())?;
        Some(Descriptor::of(bytes, format))
    }

    pub fn of(bytes: [u8; DESCRIPTOR as usize], format: Format) -> Descriptor {
        let number = u128::from_le_bytes(bytes);
        let (third, fourth) = ((number >> 96) as u16, (number >> 112) as u16);
        let (flags, next) = match format {
            Format::Split => (third, fourth),
            Format::Packed => (fourth & CHAIN_FLAGS, third),
        };
        Descriptor {
            address: number as u64,
            length: (number >> 64) as u32,
            flags,
            next,
        }
    }

    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the driver has written it. An older one links those that it has not written yet.
    pub fn is_written(&self) -> bool {
        self.address != 0 || self.length != 0
    }

    /// The slot at which the chain goes on.
    pub fn next(&self) -> Option<u16> {
        self.has(NEXT).then_some(self.next)
    }
}
