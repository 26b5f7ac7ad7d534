//! Where things lie in the guest's RAM: byte offsets in the file that QEMU is given as memory, which are the guest's
//! physical addresses too. The ROM is assembled from these constants, so both sides agree by construction.

use std::arch::global_asm;
use vmtax_model::Antipattern;

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

/// Address at which the machine shows the last 64 KiB of its firmware below 1 MiB.
const ROM_ADDRESS: u32 = 0xf_0000;
/// Size of the ROM's image, bytes: QEMU wants firmware to be a multiple of it.
const IMAGE_BYTES: usize = 64 << 10;
/// Room for the code; assembling fails when it is more.
const CODE_BYTES: usize = 8192;
/// `jmp 0xf000:0`, at the address where a CPU begins.
const RESET: [u8; 5] = [0xea, 0x00, 0x00, 0x00, 0xf0];
const RESET_AT: usize = 0xfff0;

/// The I/O ports of the disk, as the ROM places them.
const DISK_PORTS: u16 = 0xc000;
/// I/O ports of the network card, as the ROM places them.
const NET_PORTS: u16 = 0xc100;
/// I/O ports of the power management, as the ROM places them.
const POWER_PORTS: u16 = 0xb000;
/// The vector of MSI-X and of interrupts that the guest sends itself.
const EVENT_VECTOR: u8 = 0x30;

/// Assembles the parts with each constant under its name.
macro_rules! assemble {
    ($($name:ident = $value:expr,)*) => {
        global_asm!(
            ".pushsection .rodata.vmtax_micro_rom, \"a\", @progbits",
            ".balign 16",
            ".globl vmtax_micro_rom",
            ".hidden vmtax_micro_rom",
            "vmtax_micro_rom:",
            $(concat!(".set ", stringify!($name), ", {", stringify!($name), "}"),)*
            include_str!("rom/boot.s"),
            include_str!("rom/serve.s"),
            include_str!("rom/traps.s"),
            include_str!("rom/run.s"),
            include_str!("rom/net.s"),
            include_str!("rom/exits.s"),
            include_str!("rom/antipatterns.s"),
            ".org vmtax_micro_rom + CODE_BYTES",
            ".popsection",
            $($name = const $value,)*
            options(att_syntax)
        );
    };
}

assemble! {
    CODE_BYTES = CODE_BYTES,
    ROM = ROM_ADDRESS,
    RAM_BYTES = RAM_BYTES,
    DISK_PORTS = DISK_PORTS,
    NET_PORTS = NET_PORTS,
    POWER_PORTS = POWER_PORTS,
    VECTOR_EVENT = EVENT_VECTOR,
    MAILBOX = MAILBOX,
    BUFFER = BUFFER,
    FRAME = FRAME,
    KEY = KEY,
    TABLE = TABLE,
    REQUEST_WORDS = REQUEST_WORDS,
    EXIT_WORDS = EXIT_WORDS,
    ANTIPATTERN_BATCH = Antipattern::BATCH,
    MAX_BLOCK = MAX_BLOCK,
    MAGIC_VALUE = MAGIC,
    WRITE_MARK = WRITE_MARK,
    LCG_MUL = lcg::MUL,
    LCG_ADD = lcg::ADD,
    HOST_STAMP = words::HOST_STAMP,
    GUEST_STAMP = words::GUEST_STAMP,
    MAGIC = words::MAGIC,
    STATE = words::STATE,
    FAILURE = words::FAILURE,
    DETAIL = words::DETAIL,
    COUNT = words::COUNT,
    CAPACITY = words::CAPACITY,
    ORDER = words::ORDER,
    COMMAND = words::COMMAND,
    HOW_MANY = words::HOW_MANY,
    TIMEOUT = words::TIMEOUT,
    KIND = words::KIND,
    BLOCK = words::BLOCK,
    DIRECTION = words::DIRECTION,
    COMPLETION = words::COMPLETION,
    BLOCKS = words::BLOCKS,
    STRIDE = words::STRIDE,
    SEED = words::SEED,
    COMMAND_PING = command::PING,
    COMMAND_RUN = command::RUN,
    COMMAND_EXITS = command::EXITS,
    COMMAND_LEAVE = command::LEAVE,
    COMMAND_ANTIPATTERNS = command::ANTIPATTERNS,
    COMMAND_ROUND_TRIPS = command::ROUND_TRIPS,
    STATE_READY = state::READY,
    STATE_RUNNING = state::RUNNING,
    STATE_DONE = state::DONE,
    STATE_FAILED = state::FAILED,
    FAILURE_UNKNOWN = failure::UNKNOWN,
    FAILURE_NO_DISK = failure::NO_DISK,
    FAILURE_NO_MSIX = failure::NO_MSIX,
    FAILURE_BAD_QUEUE = failure::BAD_QUEUE,
    FAILURE_SMALL_DISK = failure::SMALL_DISK,
    FAILURE_IO = failure::IO,
    FAILURE_TIMEOUT = failure::TIMEOUT,
    FAILURE_TRAP = failure::TRAP,
    FAILURE_NO_TIMER = failure::NO_TIMER,
    FAILURE_NO_X2APIC = failure::NO_X2APIC,
    FAILURE_NO_HPET = failure::NO_HPET,
    FAILURE_NO_CARD = failure::NO_CARD,
    COMPLETION_POLLED = completion::POLLED,
    COMPLETION_MSIX = completion::MSIX,
    COMPLETION_INTX = completion::INTX,
}

// SAFETY: the block above defines this symbol, in read-only memory, with exactly so many bytes after it (`.org`), which
// are never written: any byte is a u8.
unsafe extern "C" {
    safe static vmtax_micro_rom: [u8; CODE_BYTES];
}

/// The 64 KiB image for QEMU's `-bios`.
pub fn rom() -> Vec<u8> {
    let mut image = vec![0; IMAGE_BYTES];
    image[..CODE_BYTES].copy_from_slice(&vmtax_micro_rom);
    image[RESET_AT..RESET_AT + RESET.len()].copy_from_slice(&RESET);
    image
}
