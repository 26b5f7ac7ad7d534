//! Code that a guest's vCPUs execute, seen from outside: QEMU's monitor says where each one is, and what code is
//! there. This finds costs that make no exit, in guests without an agent, of any kernel.
//!
//! KVM takes a vCPU out of its guest between two instructions, so a sample finds it right behind what took long. (TCG
//! lets go at the end of a block of translated code only: there places would be those of the blocks.)

mod registers;
#[cfg(test)]
mod tests;

use crate::clock::until_next;
use registers::Registers;
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
        failed = match ask(vcpu, registers::COMMAND) {
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
        Some((from, registers::bytes(&text, from))).filter(|(_, bytes)| !bytes.is_empty())
    };
    // The page before may not be there.
    let (from, bytes) = bytes(at.saturating_sub(BEFORE)).or_else(|| bytes(at))?;
    let same = registers.level == 0
        || ask(registers::COMMAND)
            .and_then(|text| Registers::read(&text))
            .is_some_and(|now| now.space == registers.space);
    same.then_some(CodeBytes {
        from,
        bytes,
        bits: registers.bits,
    })
}
