//! What a guest's processors execute, seen from outside: QEMU's monitor says where each one is, and what code is there. So
//! costs are found that make no exit, in guests without an agent, of any kernel.
//!
//! KVM takes a processor out of its guest between two instructions, so a look finds it right behind what took long. (TCG
//! lets go at the end of a block of translated code only: there places would be those of the blocks.)

mod decode;
mod findings;
mod said;
#[cfg(test)]
mod tests;

pub use findings::findings;

use crate::wall::until_next;
use decode::Window;
use said::Registers;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Questions in a row that fail before nothing more is asked.
const PATIENCE: u32 = 3;
/// Places of which the code is kept.
const MOST_PLACES: usize = 1000;
/// The code around a place, bytes before and from there on.
const BEFORE: u64 = 64;
const FROM: u64 = 64;

/// Where a processor was: its address, its privilege level, and, of a program, in which address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    address: u64,
    level: u8,
    space: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Looked {
    looks: u64,
    halted: u64,
    spots: BTreeMap<Spot, u64>,
    code: BTreeMap<Spot, Window>,
    /// How long each answer took.
    took: Vec<Duration>,
}

/// Looks at the processors of a guest in turn, at one of them `hz` times a second, until the time is over, QEMU is gone, or
/// `stop` says so. `ask` gives a processor's number and a command to QEMU's human monitor, and what that printed; `None` where
/// that failed.
pub fn look(
    processors: &[u32],
    hz: u32,
    time: Duration,
    stop: &dyn Fn() -> bool,
    ask: &mut dyn FnMut(u32, &str) -> Option<String>,
) -> Looked {
    let step = Duration::from_secs(1) / hz.max(1);
    let (begin, mut looked) = (Instant::now(), Looked::default());
    let mut failed = 0;
    for &processor in processors.iter().cycle() {
        if begin.elapsed() >= time || stop() || failed == PATIENCE {
            break;
        }
        let asked = Instant::now();
        failed = match ask(processor, said::REGISTERS) {
            Some(text) => {
                looked.took.push(asked.elapsed());
                // Not an x86 processor.
                let Some(registers) = Registers::read(&text) else { break };
                looked.add(&registers, &mut |command| ask(processor, command));
                0
            }
            None => failed + 1,
        };
        std::thread::sleep(until_next(begin, step, time));
    }
    looked
}

impl Looked {
    fn add(&mut self, registers: &Registers, ask: &mut dyn FnMut(&str) -> Option<String>) {
        self.looks += 1;
        if registers.halted {
            self.halted += 1;
            return;
        }
        let spot = registers.spot();
        *self.spots.entry(spot).or_default() += 1;
        if self.code.len() < MOST_PLACES && !self.code.contains_key(&spot) {
            self.code.extend(window(registers, ask).map(|window| (spot, window)));
        }
    }
}

/// The code around a place. The processor has gone on meanwhile: a program's is read only while that is the one that runs.
fn window(registers: &Registers, ask: &mut dyn FnMut(&str) -> Option<String>) -> Option<Window> {
    let at = registers.address;
    let mut bytes = |from: u64| {
        let text = ask(&format!("x /{}xb {from:#x}", at - from + FROM))?;
        Some((from, said::bytes(&text, from))).filter(|(_, bytes)| !bytes.is_empty())
    };
    // The page before may not be there.
    let (from, bytes) = bytes(at.saturating_sub(BEFORE)).or_else(|| bytes(at))?;
    let same = registers.level == 0
        || ask(said::REGISTERS).and_then(|text| Registers::read(&text)).is_some_and(|now| now.space == registers.space);
    same.then_some(Window { from, bytes, bits: registers.bits })
}
