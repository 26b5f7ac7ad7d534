//! Registers that hold a function's arguments while its first instructions are executed.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

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
