//! Parser of a CPU's registers as QEMU's human monitor prints them.

use vmtax_model::samples::Spot;

/// The command that prints a CPU's registers.
pub(super) const COMMAND: &str = "info registers";

/// Of an x86 CPU's registers, those that are needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    /// Of the next instruction, linear.
    pub address: u64,
    /// 16, 32 or 64: how its code is to be read.
    pub bits: u32,
    /// The privilege level.
    pub level: u8,
    pub halted: bool,
    /// Address space: CR3, without what Linux keeps in its low bits (PCID).
    pub space: u64,
}

impl Registers {
    /// Reads what `info registers` prints: words as `RIP=00000000000f0257`, and a line for the code segment, as `CS =0008
    /// 00000000 ffffffff 00af9b00 DPL=0 CS64 [-RA]`. `None` where it is of no x86 CPU.
    pub fn read(text: &str) -> Option<Registers> {
        let words = || text.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let value = |name: &str| {
            words().find_map(|word| hex(word.strip_prefix(name)?.strip_prefix('=')?))
        };
        let segment = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("CS ="))?;
        let (bits, base) = if segment.contains("CS64") {
            (64, 0)
        } else {
            let bits = if segment.contains("CS32") { 32 } else { 16 };
            (
                bits,
                segment
                    .split_ascii_whitespace()
                    .nth(1)
                    .and_then(hex)
                    .unwrap_or(0),
            )
        };
        Some(Registers {
            address: value("RIP").or_else(|| value("EIP"))?.wrapping_add(base),
            bits,
            level: u8::try_from(value("CPL")?)
                .ok()
                .filter(|level| *level <= 3)?,
            halted: value("HLT")? != 0,
            space: value("CR3")? & if bits == 64 { !0xfff } else { u64::MAX },
        })
    }

    /// Where the CPU is. A kernel is the same in every address space.
    pub fn spot(&self) -> Spot {
        let space = if self.level == 0 { 0 } else { self.space };
        Spot {
            address: self.address,
            level: self.level,
            space,
        }
    }
}

/// Reads what `x /NNxb ADDRESS` prints, lines as `00000000000f1854: 0x4c 0x89 …`: the bytes from there on, as far as there
/// are any.
pub(super) fn bytes(text: &str, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let Some((address, values)) = line.trim().split_once(':') else {
            break;
        };
        let expected = from.checked_add(bytes.len() as u64);
        if u64::from_str_radix(address.trim_start_matches("0x"), 16).ok() != expected {
            break;
        }
        for value in values.split_ascii_whitespace() {
            let Some(Ok(byte)) = value
                .strip_prefix("0x")
                .map(|digits| u8::from_str_radix(digits, 16))
            else {
                return bytes;
            };
            bytes.push(byte);
        }
    }
    bytes
}
