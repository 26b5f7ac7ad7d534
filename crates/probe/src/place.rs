//! Where in a function a uprobe is cheap.
//!
//! The kernel emulates a few instructions under a uprobe (`push`, `nop`, relative jumps and calls: 0.6 us a hit); every
//! other one it copies out of line and single-steps (10 us a hit). So a probe moves down from the function's entry to the
//! first instruction of the first kind. The instructions up to the first branch are passed by every call, and a branch is
//! of the cheap kind itself, so nothing is missed; arguments are followed through the moves on the way.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// An argument's register at a function's entry (System V ABI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// The register, all 64 bits of it.
    pub register: Register,
    /// Whether only its lower 32 bits are wanted.
    pub narrow: bool,
}

/// Where to put a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Bytes after the function's first.
    pub offset: u64,
    /// Whether the kernel emulates the instruction there.
    pub cheap: bool,
    /// Where the arguments are there, in the order in which they were asked for.
    pub registers: Vec<Register>,
}

/// The first cheap place in the function whose bytes are `code`, at which all `arguments` still are in some register;
/// its expensive entry when there is none.
pub fn place(code: &[u8], arguments: &[Argument]) -> Place {
    straight(code, 0, arguments).unwrap_or_else(|| Place {
        offset: 0,
        cheap: false,
        registers: arguments.iter().map(|a| a.register).collect(),
    })
}

/// Cheap places behind each call from `code` to the function that lies `distance` bytes from its first, at which all
/// `results` still are in some register.
pub fn places_after(code: &[u8], distance: i64, results: &[Argument]) -> Vec<Place> {
    let calls = Decoder::new(64, code, DecoderOptions::NONE).into_iter().filter(|i| {
        i.flow_control() == FlowControl::Call && i.op0_kind() == OpKind::NearBranch64 && i.near_branch64() as i64 == distance
    });
    calls.filter_map(|call| straight(code, call.next_ip(), results)).collect()
}

/// From `begin` on to the first cheap instruction, as far as everyone goes who comes by there.
fn straight(code: &[u8], begin: u64, arguments: &[Argument]) -> Option<Place> {
    let mut decoder = Decoder::with_ip(64, code.get(begin as usize..)?, begin, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut values: Vec<Value> = arguments.iter().map(Value::new).collect();
    for instruction in &mut decoder {
        let bytes = code.get(instruction.ip() as usize..instruction.next_ip() as usize)?;
        if is_cheap(bytes) && !jumped_into(code, begin, instruction.ip()) {
            let registers: Option<Vec<Register>> = values.iter().map(Value::register).collect();
            return registers.map(|registers| Place { offset: instruction.ip(), cheap: true, registers });
        }
        // Beyond a branch not everyone passes.
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        values.iter_mut().for_each(|value| value.pass(&instruction, &mut info));
    }
    None
}

/// Whether a uprobe on the instruction that begins `code` is emulated, as `arch/x86/kernel/uprobes.c` has it since
/// Linux 4.16. Newer kernels emulate more (5-byte nops); those are left out so that a place is good on all.
pub fn is_cheap(code: &[u8]) -> bool {
    match code {
        // push of any register.
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => true,
        // nop, jmp, call, short conditional jumps.
        [0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] => true,
        // Near conditional jumps.
        [0x0f, 0x80..=0x8f, ..] => true,
        _ => false,
    }
}

/// Whether a branch leads behind `begin`, to `place` or before it: then a probe there would count more than those who
/// come by `begin`.
fn jumped_into(code: &[u8], begin: u64, place: u64) -> bool {
    Decoder::new(64, code, DecoderOptions::NONE).into_iter().any(|i| {
        let branch = matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        branch && i.op0_kind() == OpKind::NearBranch64 && (begin + 1..=place).contains(&i.near_branch64())
    })
}

/// One argument and the registers that hold it.
struct Value {
    narrow: bool,
    held: Vec<Register>,
}

impl Value {
    fn new(argument: &Argument) -> Value {
        Value { narrow: argument.narrow, held: vec![argument.register] }
    }

    fn register(&self) -> Option<Register> {
        self.held.first().copied()
    }

    /// What is left of it behind an instruction.
    fn pass(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        let copy = self.copied_to(instruction);
        for used in info.info(instruction).used_registers() {
            let read = matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            if !read {
                self.held.retain(|held| *held != used.register().full_register());
            }
        }
        self.held.extend(copy);
    }

    /// The register that `mov` copies it to.
    fn copied_to(&self, instruction: &Instruction) -> Option<Register> {
        let registers = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register;
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let wide = to.is_gpr64() || (self.narrow && to.is_gpr32());
        (registers && wide && self.held.contains(&from.full_register())).then(|| to.full_register())
    }
}
