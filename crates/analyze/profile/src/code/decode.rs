//! Instructions around a place: those on the way to it, and those from it on.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use std::collections::BTreeMap;
use vmtax_model::samples::CodeBytes;

/// An instruction is at most 15 bytes long, so of as many places in a row one begins an instruction.
const STARTS: usize = 16;

/// Instructions in a row.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub instructions: Vec<Instruction>,
    /// Of those, how many are before the place.
    pub at: usize,
}

/// The instructions from an address on, as far as they can be decoded.
pub(super) fn instructions_from(
    code: &CodeBytes,
    address: u64,
) -> impl Iterator<Item = Instruction> {
    let skipped = address
        .checked_sub(code.from)
        .and_then(|skipped| usize::try_from(skipped).ok());
    let bytes = skipped
        .and_then(|skipped| code.bytes.get(skipped..))
        .unwrap_or_default();
    let mut decoder = Decoder::with_ip(code.bits, bytes, address, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        (!instruction.is_invalid()).then_some(instruction)
    })
}

/// The instructions around an address where one begins. Nobody says where those before it begin, but decoding from any byte
/// falls into step with them soon: what most attempts agree on counts.
pub(super) fn instructions_around(code: &CodeBytes, address: u64) -> Code {
    let mut attempts: BTreeMap<u64, (usize, Vec<Instruction>)> = BTreeMap::new();
    for start in (0..STARTS as u64).filter_map(|skipped| code.from.checked_add(skipped)) {
        let attempt: Vec<Instruction> = instructions_from(code, start)
            .take_while(|i| i.ip() < address)
            .collect();
        let Some(last) = attempt.last().filter(|last| last.next_ip() == address) else {
            continue;
        };
        let known = attempts.entry(last.ip()).or_insert((0, attempt));
        known.0 += 1;
    }
    let (_, mut instructions) = attempts
        .into_values()
        .max_by_key(|(agree, _)| *agree)
        .unwrap_or_default();
    let at = instructions.len();
    instructions.extend(instructions_from(code, address));
    Code { instructions, at }
}

impl Code {
    /// The one that was done last.
    pub fn done(&self) -> Option<&Instruction> {
        self.at
            .checked_sub(1)
            .and_then(|last| self.instructions.get(last))
    }

    /// The one that comes next.
    pub fn next(&self) -> Option<&Instruction> {
        self.instructions.get(self.at)
    }
}

/// As Intel writes it.
pub(super) fn words(instruction: &Instruction) -> String {
    let (mut text, mut formatter) = (String::new(), IntelFormatter::new());
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    formatter.format(instruction, &mut text);
    text
}
