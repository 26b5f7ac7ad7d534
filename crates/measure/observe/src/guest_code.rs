//! Code that a guest's vCPUs execute, seen from outside: QEMU's monitor says where each one is, and what code is
//! there. This finds costs that make no exit, in guests without an agent, of any kernel.
//!
//! KVM takes a vCPU out of its guest between two instructions, so a sample finds it right behind what took long. (TCG
//! lets go at the end of a block of translated code only: there places would be those of the blocks.)

use crate::clock::until_next;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmtax_model::samples::{CodeBytes, CodeSamples, SampledCode, Spot};

/// Questions in a row that fail before nothing more is asked.
const MAX_FAILURES: u32 = 3;
/// SampledAddresses of which the code is kept.
const MAX_PLACES: usize = 1000;
/// The code around a place, bytes before and from there on.
const BEFORE: u64 = 64;
const FROM: u64 = 64;

/// Samples the vCPUs of a guest in turn, one of them `hz` times a second, until the timeout, QEMU is gone, or `stop` says
/// so. `ask` gives a vCPU's number and a command to QEMU's human monitor, and what that printed; `None` where that failed.
pub fn guest_code(
    vcpus: &[u32],
    hz: u32,
    time: Duration,
    stop: &dyn Fn() -> bool,
    ask: &mut dyn FnMut(u32, &str) -> Option<String>,
) -> CodeSamples {
    let step = Duration::from_secs(1) / hz.max(1);
    let (begin, mut samples, mut places) = (
        Instant::now(),
        CodeSamples::default(),
        SampledAddresses::default(),
    );
    let mut failed = 0;
    for &vcpu in vcpus.iter().cycle() {
        if begin.elapsed() >= time || stop() || failed == MAX_FAILURES {
            break;
        }
        let asked = Instant::now();
        failed = match ask(vcpu, COMMAND) {
            Some(text) => {
                samples.took_ns.push(asked.elapsed().as_nanos() as u64);
                // Not an x86 CPU.
                let Some(registers) = Registers::read(&text) else {
                    break;
                };
                samples.samples += 1;
                if registers.halted {
                    samples.halted += 1;
                } else {
                    places.add(&registers, &mut |command| ask(vcpu, command));
                }
                0
            }
            None => failed + 1,
        };
        std::thread::sleep(until_next(begin, step, time));
    }
    let SampledAddresses { counts, mut code } = places;
    let place = |(spot, count)| SampledCode {
        spot,
        count,
        code: code.remove(&spot),
    };
    samples.places = counts.into_iter().map(place).collect();
    samples
}

/// Where vCPUs were.
#[derive(Default)]
struct SampledAddresses {
    counts: BTreeMap<Spot, u64>,
    code: BTreeMap<Spot, CodeBytes>,
}

impl SampledAddresses {
    fn add(&mut self, registers: &Registers, ask: &mut dyn FnMut(&str) -> Option<String>) {
        let spot = registers.spot();
        *self.counts.entry(spot).or_default() += 1;
        if self.code.len() < MAX_PLACES && !self.code.contains_key(&spot) {
            self.code
                .extend(code_around(registers, ask).map(|code| (spot, code)));
        }
    }
}

/// The code around a place. The vCPU has gone on meanwhile: a program's is read only while that is the one that runs.
fn code_around(
    registers: &Registers,
    ask: &mut dyn FnMut(&str) -> Option<String>,
) -> Option<CodeBytes> {
    let at = registers.address;
    let mut bytes = |from: u64| {
        let text = ask(&format!("x /{}xb {from:#x}", at - from + FROM))?;
        Some((from, printed_bytes(&text, from))).filter(|(_, bytes)| !bytes.is_empty())
    };
    // The page before may not be there.
    let (from, bytes) = bytes(at.saturating_sub(BEFORE)).or_else(|| bytes(at))?;
    let same = registers.level == 0
        || ask(COMMAND)
            .and_then(|text| Registers::read(&text))
            .is_some_and(|now| now.space == registers.space);
    same.then_some(CodeBytes {
        from,
        bytes,
        bits: registers.bits,
    })
}

/// The command that prints a CPU's registers.
const COMMAND: &str = "info registers";

/// The registers of an x86 CPU that are needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Registers {
    /// Linear address of the next instruction.
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
fn printed_bytes(text: &str, from: u64) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of a guest of KVM, shortened.
    const PRINTED: &str = "\nCPU#0\nRAX=0000000000000001 RBX=0000000000000000 RCX=0000000000000040 RDX=0000000000000000\n\
        RIP=00000000000f186c RFL=00000046 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0\n\
        ES =0000 0000000000000000 ffffffff 00c00000\n\
        CS =0033 0000000000000000 ffffffff 00a0fb00 DPL=3 CS64 [-RA]\n\
        CR0=80000011 CR2=0000000000000000 CR3=0000000000001000 CR4=00000620\n";

    #[test]
    fn registers_are_read_in_every_mode() {
        let long = Registers::read(PRINTED).unwrap();
        assert_eq!(
            long,
            Registers {
                address: 0xf186c,
                bits: 64,
                level: 3,
                halted: false,
                space: 0x1000
            }
        );
        let real = "EIP=0000e05b EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\n\
            CS =f000 000f0000 0000ffff 00009b00\nCR0=60000010 CR2=00000000 CR3=00000000 CR4=00000000\n";
        let real = Registers::read(real).unwrap();
        assert_eq!(
            real,
            Registers {
                address: 0xfe05b,
                bits: 16,
                level: 0,
                halted: true,
                space: 0
            }
        );
        assert_eq!(
            Registers::read("PC=0000000040000000 X00=0\n"),
            None,
            "an Arm CPU"
        );
    }

    #[test]
    fn bytes_end_where_there_is_no_memory() {
        let text = "00000000000f1854: 0x4c 0x89 0xf0 0x31\r\n00000000000f1858: 0xd2 0x49\r\n";
        assert_eq!(
            printed_bytes(text, 0xf1854),
            [0x4c, 0x89, 0xf0, 0x31, 0xd2, 0x49]
        );
        assert_eq!(
            printed_bytes(
                "0000000000001000: 0x90\n0000000000001001: Cannot access memory\n",
                0x1000
            ),
            [0x90]
        );
        assert!(
            printed_bytes("00000000000f1854: 0x4c\n", 0).is_empty(),
            "of another place"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,200}", from: u64) {
            let _ = Registers::read(&text);
            prop_assert!(printed_bytes(&text, from).len() <= text.len());
        }
    }
}
