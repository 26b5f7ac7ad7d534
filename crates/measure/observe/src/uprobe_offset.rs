//! Where in a function a uprobe is cheap.
//!
//! The kernel emulates a few instructions under a uprobe (`push`, `nop`, relative jumps and calls: 0.6 us a hit); every
//! other one it copies out of line and single-steps (10 us a hit). So a probe moves down from where it is wanted to the
//! first instruction of the first kind, as far as everyone goes who comes by; arguments are followed through the moves
//! on the way.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
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

/// An argument or a result of a function, in its register (System V ABI).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// The register, all 64 bits of it.
    pub register: Register,
    /// True if only the register's lower 32 bits are wanted.
    pub narrow: bool,
}

/// Each argument with the registers that hold it.
pub(crate) struct ArgumentRegisters(Vec<Value>);

struct Value {
    narrow: bool,
    registers: Vec<Register>,
}

impl ArgumentRegisters {
    pub fn new(arguments: &[Argument]) -> ArgumentRegisters {
        ArgumentRegisters(
            arguments
                .iter()
                .map(|a| Value {
                    narrow: a.narrow,
                    registers: vec![a.register],
                })
                .collect(),
        )
    }

    /// A register for each argument; `None` when one is lost.
    pub fn registers(&self) -> Option<Vec<Register>> {
        self.0
            .iter()
            .map(|value| value.registers.first().copied())
            .collect()
    }

    /// Returns true if this register holds each of the arguments.
    pub fn all_in(&self, register: Register) -> bool {
        self.0
            .iter()
            .all(|value| value.registers.contains(&register))
    }

    /// Removes the registers that an instruction overwrites, and adds those that it copies an argument to.
    pub fn pass(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        for value in &mut self.0 {
            let copy = value.copied_to(instruction);
            for used in info.info(instruction).used_registers() {
                let stays = matches!(
                    used.access(),
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                );
                if !stays {
                    value
                        .registers
                        .retain(|register| *register != used.register().full_register());
                }
            }
            value.registers.extend(copy);
        }
    }
}

impl Value {
    /// The register that a `mov` copies it to.
    fn copied_to(&self, instruction: &Instruction) -> Option<Register> {
        let registers = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register;
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let enough = to.is_gpr64() || (self.narrow && to.is_gpr32());
        (registers && enough && self.registers.contains(&from.full_register()))
            .then(|| to.full_register())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::Register::{self, *};
    use proptest::prelude::*;

    fn wide(register: Register) -> Argument {
        Argument {
            register,
            narrow: false,
        }
    }

    fn cheap(offset: u64, registers: &[Register]) -> UprobeOffset {
        UprobeOffset {
            offset,
            cheap: true,
            registers: registers.to_vec(),
        }
    }

    fn dear(registers: &[Register]) -> UprobeOffset {
        UprobeOffset {
            offset: 0,
            cheap: false,
            registers: registers.to_vec(),
        }
    }

    /// `virtqueue_push`: push %r12; mov %edx,%r12d; …
    #[test]
    fn a_push_at_the_entry_is_as_good_as_any() {
        let code = Code::new(&[0x41, 0x54, 0x41, 0x89, 0xd4, 0x55, 0xc3]);
        assert_eq!(code.entry(&[wide(RDI), wide(RSI)]), cheap(0, &[RDI, RSI]));
    }

    /// `virtqueue_pop` of 7.2: movabs; mov 0x60(%rdi),%rdx; and 0x1b0(%rdx),%rax; jne; testb; je; jmp …
    const POP: &[u8] = &[
        0x48, 0xb8, 0, 0, 0, 0xff, 0, 0xff, 0, 0, 0x48, 0x8b, 0x57, 0x60, 0x48, 0x23, 0x82, 0xb0,
        1, 0, 0, 0x75, 0x19, 0xf6, 0x82, 0xb4, 0, 0, 0, 4, 0x74, 8, 0xe9, 0xdb, 0xf1, 0xff, 0xff,
        0x0f, 0x1f, 0, 0xe9, 0xd3, 0xf7, 0xff, 0xff, 0x0f, 0x1f, 0, 0x31, 0xc0, 0xc3,
    ];

    #[test]
    fn the_first_branch_is_passed_by_every_call() {
        assert_eq!(Code::new(POP).entry(&[wide(RDI)]), cheap(0x15, &[RDI]));
        // %rdx is overwritten on the way there.
        assert_eq!(Code::new(POP).entry(&[wide(RDX)]), dear(&[RDX]));
    }

    /// `bdrv_co_preadv`: mov %r8d,%r9d; xor %r8d,%r8d; jmp bdrv_co_preadv_part.
    #[test]
    fn a_tail_jump_is_a_place() {
        let code = Code::new(&[
            0x45, 0x89, 0xc1, 0x45, 0x31, 0xc0, 0xe9, 0x65, 0xfd, 0xff, 0xff,
        ]);
        assert_eq!(code.entry(&[wide(RSI), wide(RDX)]), cheap(6, &[RSI, RDX]));
        // Its last argument is moved, but only 32 bits of it.
        assert_eq!(
            code.entry(&[Argument {
                register: R8,
                narrow: true
            }]),
            cheap(6, &[R9])
        );
        assert_eq!(code.entry(&[wide(R8)]), dear(&[R8]));
    }

    /// `blk_aio_preadv` of 5.2: sub $8,%rsp; mov %rdx,%r10; mov 0x20(%rdx),%rdx; push %r9 …
    #[test]
    fn arguments_are_followed_through_moves() {
        let code = Code::new(&[
            0x48, 0x83, 0xec, 8, 0x49, 0x89, 0xd2, 0x48, 0x8b, 0x52, 0x20, 0x41, 0x51, 0xc3,
        ]);
        assert_eq!(
            code.entry(&[wide(RSI), wide(RDX), wide(R9)]),
            cheap(11, &[RSI, R10, R9])
        );
    }

    /// Instructions `endbr64; push %rbp`: the CPU, but not every kernel, takes the first for a nop.
    #[test]
    fn a_landing_pad_is_passed() {
        let code = Code::new(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3]);
        assert_eq!(code.entry(&[wide(RDI)]), cheap(4, &[RDI]));
    }

    #[test]
    fn without_a_cheap_instruction_the_entry_is_left() {
        // `msi_send_message` of 7.2: jmp *0x510(%rdi).
        assert_eq!(
            Code::new(&[0xff, 0xa7, 0x10, 5, 0, 0]).entry(&[wide(RDI)]),
            dear(&[RDI])
        );
        // mov; ret; push: the push is of another function.
        assert_eq!(
            Code::new(&[0x89, 0xd0, 0xc3, 0x55]).entry(&[wide(RDI)]),
            dear(&[RDI])
        );
        // A push of memory is single-stepped.
        assert_eq!(
            Code::new(&[0xff, 0x77, 8, 0xc3]).entry(&[wide(RDI)]),
            dear(&[RDI])
        );
        assert_eq!(Code::new(&[]).entry(&[]), dear(&[]));
        // Cut off in the middle, and no instruction at all.
        assert_eq!(Code::new(&[0x48, 0xb8, 0, 0]).entry(&[]), dear(&[]));
        assert_eq!(Code::new(&[0x06, 0x55]).entry(&[]), dear(&[]));
    }

    #[test]
    fn a_place_where_a_loop_begins_would_count_its_rounds() {
        // mov %esi,%eax; A: push %rdi; dec %eax; jne A.
        let code = Code::new(&[0x89, 0xf0, 0x57, 0xff, 0xc8, 0x75, 0xfb, 0xc3]);
        assert_eq!(code.entry(&[wide(RDI)]), dear(&[RDI]));
    }

    /// `virtio_blk_handle_vq` of 7.2, its loop: A: mov %r12,0x40(%rax); pxor; mov %r13,%rsi; mov %rax,%rdi;
    /// mov %rbp,0x48(%rax); movups; movups; call handle_request; test; jne; mov; mov; call virtqueue_pop; mov %rax,%rbx;
    /// test %rax,%rax; jne A; …
    const HANDLE: &[u8] = &[
        0x4c, 0x89, 0x60, 0x40, 0x66, 0x0f, 0xef, 0xc0, 0x4c, 0x89, 0xee, 0x48, 0x89, 0xc7, 0x48,
        0x89, 0x68, 0x48, 0x0f, 0x11, 0x80, 0xb8, 0, 0, 0, 0x0f, 0x11, 0x80, 0xc8, 0, 0, 0, 0xe8,
        0x7b, 0xf5, 0xff, 0xff, 0x85, 0xc0, 0x0f, 0x85, 0xb3, 0, 0, 0, 0xbe, 0xf0, 0, 0, 0, 0x48,
        0x89, 0xef, 0xe8, 0x96, 0xeb, 4, 0, 0x48, 0x89, 0xc3, 0x48, 0x85, 0xc0, 0x75, 0xbe, 0x45,
        0x84, 0xf6, 0x75, 0x69, 0xc3,
    ];
    /// Where that call leads: behind the call, and as far as it says.
    const POPPED: i64 = 0x3a + 0x4eb96;

    #[test]
    fn behind_a_call_the_way_of_a_result_is_taken() {
        assert_eq!(
            Code::new(HANDLE).after(POPPED, &[wide(RAX)]),
            [cheap(0x20, &[RAX])]
        );
        assert_eq!(Code::new(HANDLE).after(POPPED + 1, &[wide(RAX)]), []);
        // The other way round: je elsewhere, and on: call; test %rax,%rax; je; push %rbx.
        let code = [0xe8, 0xfb, 0, 0, 0, 0x48, 0x85, 0xc0, 0x74, 1, 0x53, 0xc3];
        assert_eq!(
            Code::new(&code).after(0x100, &[wide(RAX)]),
            [cheap(10, &[RAX])]
        );
        // Another condition, or another register tested, says nothing of the result.
        let mut other = code;
        other[8] = 0x78;
        assert_eq!(Code::new(&other).after(0x100, &[wide(RAX)]), []);
        let mut other = code;
        other[7] = 0xdb;
        assert_eq!(Code::new(&other).after(0x100, &[wide(RAX)]), []);
        // Somebody else joins there: a jump to the push.
        let mut joined = code.to_vec();
        joined.extend([0xeb, 0xfc]);
        assert_eq!(Code::new(&joined).after(0x100, &[wide(RAX)]), []);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_place(code in proptest::collection::vec(any::<u8>(), 0..200), distance in any::<i64>()) {
            let decoded = Code::new(&code);
            let place = decoded.entry(&[wide(RDI), Argument { register: RSI, narrow: true }]);
            prop_assert_eq!(place.registers.len(), 2);
            prop_assert!(!place.cheap || is_cheap(&code[place.offset as usize..]));
            prop_assert!(place.cheap || place.offset == 0);
            for place in decoded.after(distance, &[wide(RAX)]) {
                prop_assert!(is_cheap(&code[place.offset as usize..]));
            }
        }
    }
}
