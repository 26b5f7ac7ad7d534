//! Where things lie in the guest's RAM: byte offsets in the file that QEMU is given as memory, which are the guest's
//! physical addresses too. The ROM is assembled from these constants, so both sides agree by construction.

/// The guest's RAM, bytes.
pub const RAM_BYTES: usize = 64 << 20;

/// The mailbox: one page. Its words are at the offsets in [`words`].
pub const MAILBOX: usize = 0x10_0000;

/// Address of the data that a write puts on the disk: the ROM's marker words, the first of each block its sector.
pub const BUFFER: usize = 0x20_0000;

/// Address of the request that a round trip sends: the card's header, then the frame.
pub const FRAME: usize = BUFFER;

/// Bytes of a legacy virtio-net's header, without merged buffers.
pub const NET_HEADER: usize = 10;

/// The largest request of a round trip with that header, bytes: what each of the guest's buffers holds.
pub const MAX_FRAME: u32 = 2048;

/// Where the number of a request is in it: behind that header and those of Ethernet, IPv4 and UDP.
pub const KEY: usize = NET_HEADER + 14 + 20 + 8;

/// The results of the last order: [`REQUEST_WORDS`] or [`EXIT_WORDS`] words each.
pub const TABLE: usize = 0x80_0000;

/// Words of a request: before notify, after notify, interrupt handler, completion seen, sector. Of a round trip the last
/// is its number.
pub const REQUEST_WORDS: usize = 5;

/// Words of an exit: stamp before, stamp after.
pub const EXIT_WORDS: usize = 2;

/// The most requests, or exits, of one order; the table of so many ends below [`RAM_BYTES`].
pub const MAX_COUNT: u32 = 1_000_000;

/// The largest block, bytes.
pub const MAX_BLOCK: u32 = 64 << 10;

/// A sector, bytes: virtio-blk's unit.
pub const SECTOR: u32 = 512;

/// Value that the ROM writes into [`words::MAGIC`]: "VMTXMIC" and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"VMTXMIC1");

/// Every word of a block that the ROM writes to the disk, save the first, which is the block's first sector.
pub const WRITE_MARK: u64 = u64::from_le_bytes(*b"vmtaxROM");

/// Words of the mailbox, byte offsets from [`MAILBOX`]. Cells that both sides write at once have cache lines of their own.
pub mod words {
    /// The host's stamp, for [`crate::micro_guest::Order::Ping`]: the host writes its time stamp counter here.
    pub const HOST_STAMP: usize = 0;
    /// The guest's: it writes its own here as soon as the host's has changed.
    pub const GUEST_STAMP: usize = 64;

    /// [`super::MAGIC`], once the ROM is in its own code.
    pub const MAGIC: usize = 128;
    /// The number of the order that this is about, times 256, plus a state.
    pub const STATE: usize = 136;
    /// Why the order failed.
    pub const FAILURE: usize = 144;
    /// More about that.
    pub const DETAIL: usize = 152;
    /// Number of complete entries in the table.
    pub const COUNT: usize = 160;
    /// Sectors of the disk, once a run has found it.
    pub const CAPACITY: usize = 168;

    /// The number of the order; the host writes it last, the guest waits for it to change.
    pub const ORDER: usize = 256;
    /// Command of the order: a value of `command`.
    pub const COMMAND: usize = 264;
    /// Number of repetitions that the order asks for.
    pub const HOW_MANY: usize = 272;
    /// Time limit for one completion or interrupt, ticks.
    pub const TIMEOUT: usize = 280;
    /// Number of the exit kind; or twice the number of the antipattern, and one more for its fix.
    pub const KIND: usize = 288;
    /// Bytes of a request; of a round trip those at [`super::FRAME`].
    pub const BLOCK: usize = 296;
    /// virtio-blk's request type: 0 reads, 1 writes.
    pub const DIRECTION: usize = 304;
    /// Method of detecting completion: a value of `completion`.
    pub const COMPLETION: usize = 312;
    /// Blocks in the range.
    pub const BLOCKS: usize = 320;
    /// Blocks to go on by; 0 draws them at random.
    pub const STRIDE: usize = 328;
    /// Start value of the random draw; the number of the first round trip.
    pub const SEED: usize = 336;
}

/// Values of [`words::COMMAND`].
pub(crate) mod command {
    pub const PING: u64 = 1;
    pub const RUN: u64 = 2;
    pub const EXITS: u64 = 3;
    pub const LEAVE: u64 = 4;
    pub const ANTIPATTERNS: u64 = 5;
    pub const ROUND_TRIPS: u64 = 6;
}

/// Low byte of [`words::STATE`].
pub(crate) mod state {
    pub const READY: u64 = 1;
    pub const RUNNING: u64 = 2;
    pub const DONE: u64 = 3;
    pub const FAILED: u64 = 4;
}

/// Values of [`words::FAILURE`].
pub(crate) mod failure {
    pub const UNKNOWN: u64 = 1;
    pub const NO_DISK: u64 = 2;
    pub const NO_MSIX: u64 = 3;
    pub const BAD_QUEUE: u64 = 4;
    pub const SMALL_DISK: u64 = 5;
    pub const IO: u64 = 6;
    pub const TIMEOUT: u64 = 7;
    pub const TRAP: u64 = 8;
    pub const NO_TIMER: u64 = 9;
    pub const NO_X2APIC: u64 = 10;
    pub const NO_HPET: u64 = 11;
    pub const NO_CARD: u64 = 12;
}

/// Values of [`words::COMPLETION`].
pub(crate) mod completion {
    pub const POLLED: u64 = 0;
    pub const MSIX: u64 = 1;
    pub const INTX: u64 = 2;
}

/// Multiplier and increment of the ROM's random draw (Knuth's MMIX): `x = x * LCG_MUL + LCG_ADD`, and the block is the
/// high half of x, scaled to the range.
pub(crate) mod lcg {
    pub const MUL: u64 = 6_364_136_223_846_793_005;
    pub const ADD: u64 = 1_442_695_040_888_963_407;
}
