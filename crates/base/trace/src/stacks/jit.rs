//! Code that a process generates and registers with debuggers: QEMU's translated code.
//!
//! The interface is GDB's: a descriptor in the program, a list of object files in memory. QEMU's is one file over its whole
//! buffer, in every version with TCG, and says how a frame of translated code is left.

use crate::stacks::elf::Elf;
use object::{Object, ObjectSection};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// No object file in memory is larger; QEMU's is of some kilobytes.
const MAX_OBJECT: u64 = 16 << 20;
/// Entries of the list that are read at most.
const MAX_OBJECTS: usize = 64;

/// One region of such code.
#[derive(Debug)]
pub struct Jit {
    /// Where the code lies.
    pub range: Range<u64>,
    /// Unwind information of the code: its section `.debug_frame`.
    pub debug_frame: Vec<u8>,
}

/// The code registered in the descriptor at this address; empty where it is damaged.
pub fn read(pid: i32, descriptor: u64) -> Vec<Jit> {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return Vec::new();
    };
    let words = |at: u64| {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, at).ok()?;
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j]));
        Some([word(0), word(1), word(2), word(3)])
    };
    let mut found = Vec::new();
    // { u32 version; u32 action; entry *relevant; entry *first }
    let mut entry = words(descriptor).map_or(0, |[_, _, first, _]| first);
    while entry != 0 && found.len() < MAX_OBJECTS {
        // { entry *next; entry *previous; char *file; u64 size }
        let Some([next, _, file, size]) = words(entry) else {
            break;
        };
        let mut bytes = vec![0; size.min(MAX_OBJECT) as usize];
        if memory.read_exact_at(&mut bytes, file).is_ok() {
            found.extend(region(&bytes));
        }
        entry = next;
    }
    found
}

fn region(bytes: &[u8]) -> Option<Jit> {
    let file = object::File::parse(bytes).ok()?;
    let text = file.section_by_name(".text")?;
    let debug_frame = file.section_by_name(".debug_frame")?.data().ok()?.to_vec();
    let range = text.address()..text.address().checked_add(text.size())?;
    (!range.is_empty()).then_some(Jit { range, debug_frame })
}

/// The descriptor's address in a process, for the program that has it.
pub fn descriptor(elf: &Elf, bias: u64) -> Option<u64> {
    elf.jit.map(|at| at.wrapping_add(bias))
}
