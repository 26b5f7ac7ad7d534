//! The ROM itself, assembled with the crate: no assembler is needed, and its constants are those of [`crate::micro_guest::layout`].

use super::layout::{self, command, completion, failure, lcg, state, words};
use std::arch::global_asm;
use vmtax_model::Antipattern;

/// Where the machine shows the last 64 KiB of its firmware below 1 MiB.
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
    RAM_BYTES = layout::RAM_BYTES,
    DISK_PORTS = DISK_PORTS,
    NET_PORTS = NET_PORTS,
    POWER_PORTS = POWER_PORTS,
    VECTOR_EVENT = EVENT_VECTOR,
    MAILBOX = layout::MAILBOX,
    BUFFER = layout::BUFFER,
    FRAME = layout::FRAME,
    KEY = layout::KEY,
    TABLE = layout::TABLE,
    REQUEST_WORDS = layout::REQUEST_WORDS,
    EXIT_WORDS = layout::EXIT_WORDS,
    ANTIPATTERN_BATCH = Antipattern::BATCH,
    MAX_BLOCK = layout::MAX_BLOCK,
    MAGIC_VALUE = layout::MAGIC,
    WRITE_MARK = layout::WRITE_MARK,
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
