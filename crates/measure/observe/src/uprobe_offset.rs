//! Where in a function a uprobe is cheap.
//!
//! The kernel emulates a few instructions under a uprobe (`push`, `nop`, relative jumps and calls: 0.6 us a hit); every
//! other one it copies out of line and single-steps (10 us a hit). So a probe moves down from where it is wanted to the
//! first instruction of the first kind, as far as everyone goes who comes by; arguments are followed through the moves
//! on the way.

use crate::argument_registers::{Argument, ArgumentRegisters};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpKind, Register,
};
use std::collections::HashSet;

/// A place further down than this many instructions says little about where the probe was wanted.
const MAX_OFFSET: usize = 32;

/// Where to put a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UprobeOffset {
    /// Bytes after the function's first.
    pub offset: u64,
    /// True if the kernel emulates the instruction there.
    pub cheap: bool,
    /// Where the arguments are there, in the order in which they were asked for.
    pub registers: Vec<Register>,
}

/// A function's instructions.
pub struct Code<'c> {
    bytes: &'c [u8],
    instructions: Vec<Instruction>,
    /// Where its own direct jumps lead.
    joints: HashSet<u64>,
}

impl<'c> Code<'c> {
    /// Decodes the bytes of a function; jumps are relative to the first.
    pub fn new(bytes: &'c [u8]) -> Code<'c> {
        let instructions: Vec<Instruction> = Decoder::new(64, bytes, DecoderOptions::NONE)
            .into_iter()
            .collect();
        let joints = instructions
            .iter()
            .filter(|i| is_jump(i))
            .map(Instruction::near_branch64)
            .collect();
        Code {
            bytes,
            instructions,
            joints,
        }
    }

    /// The first cheap place at which all `arguments` still are in some register; the expensive entry when there is none.
    pub fn entry(&self, arguments: &[Argument]) -> UprobeOffset {
        let mut held = ArgumentRegisters::new(arguments);
        self.walk(0, &mut held)
            .and_then(|i| self.cheap(i, &held))
            .unwrap_or_else(|| UprobeOffset {
                offset: 0,
                cheap: false,
                registers: arguments.iter().map(|a| a.register).collect(),
            })
    }

    /// The cheap place behind each call of the function that lies `distance` bytes from this one's first byte, where that
    /// gave something else than zero and all `results` still are in some register.
    pub fn after(&self, distance: i64, results: &[Argument]) -> Vec<UprobeOffset> {
        let calls = self.instructions.iter().filter(|i| {
            let direct =
                i.flow_control() == FlowControl::Call && i.op0_kind() == OpKind::NearBranch64;
            direct && i.near_branch64() as i64 == distance
        });
        calls
            .filter_map(|call| self.after_call(call, results))
            .collect()
    }

    fn after_call(&self, call: &Instruction, results: &[Argument]) -> Option<UprobeOffset> {
        let mut held = ArgumentRegisters::new(results);
        let branch = self.walk(call.next_ip(), &mut held)?;
        // `test %rax,%rax` right before it decides; on goes the way of a result that is not zero.
        let test = self
            .instructions
            .iter()
            .find(|i| i.next_ip() == branch.ip())?;
        let tests = test.mnemonic() == Mnemonic::Test
            && test.op0_register() == test.op1_register()
            && held.all_in(test.op0_register());
        let on = match branch.condition_code() {
            ConditionCode::e => branch.next_ip(),
            ConditionCode::ne => branch.near_branch64(),
            _ => return None,
        };
        let alone = !self
            .instructions
            .iter()
            .any(|i| i.ip() != branch.ip() && is_jump(i) && i.near_branch64() == on);
        if !tests || !alone {
            return None;
        }
        self.walk(on, &mut held).and_then(|i| self.cheap(i, &held))
    }

    /// Goes from `begin` on with what is held, as far as everyone goes who comes by there: to the first instruction that
    /// is cheap or leads elsewhere (direct jumps are both).
    fn walk(&self, begin: u64, held: &mut ArgumentRegisters) -> Option<&Instruction> {
        let first = self
            .instructions
            .binary_search_by_key(&begin, Instruction::ip)
            .ok()?;
        let mut info = InstructionInfoFactory::new();
        for instruction in self.instructions[first..].iter().take(MAX_OFFSET) {
            // Where others join, a probe would count them too.
            if instruction.is_invalid()
                || (instruction.ip() > begin && self.joints.contains(&instruction.ip()))
            {
                return None;
            }
            if self.is_cheap(instruction) || instruction.flow_control() != FlowControl::Next {
                return Some(instruction);
            }
            held.pass(instruction, &mut info);
        }
        None
    }

    fn cheap(&self, instruction: &Instruction, held: &ArgumentRegisters) -> Option<UprobeOffset> {
        let registers = held.registers().filter(|_| self.is_cheap(instruction))?;
        Some(UprobeOffset {
            offset: instruction.ip(),
            cheap: true,
            registers,
        })
    }

    fn is_cheap(&self, instruction: &Instruction) -> bool {
        self.bytes
            .get(instruction.ip() as usize..)
            .is_some_and(is_cheap)
    }
}

/// Returns true if a uprobe on the instruction that begins `code` is emulated, as `arch/x86/kernel/uprobes.c` has it
/// since Linux 4.16. Newer kernels emulate more (5-byte nops); those are left out so that a place is good on all.
pub fn is_cheap(code: &[u8]) -> bool {
    match code {
        // push of any register.
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => true,
        // nop, call, jmp, short conditional jumps.
        [0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] => true,
        // Near conditional jumps.
        [0x0f, 0x80..=0x8f, ..] => true,
        _ => false,
    }
}

fn is_jump(instruction: &Instruction) -> bool {
    let jump = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    jump && instruction.op0_kind() == OpKind::NearBranch64
}
