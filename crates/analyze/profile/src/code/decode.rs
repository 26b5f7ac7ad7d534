//! Instructions around a place: those on the way to it, and those from it on.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use std::collections::BTreeMap;

/// An instruction is at most 15 bytes long, so of as many places in a row one begins an instruction.
const STARTS: usize = 16;

/// Some of a guest's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    /// The address of its first byte.
    pub from: u64,
    pub bytes: Vec<u8>,
    /// 16, 32 or 64.
    pub bits: u32,
}

/// A window's instructions in a row.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub instructions: Vec<Instruction>,
    /// Of those, how many are before the place.
    pub at: usize,
}

impl Window {
    /// The instructions from an address on, as far as they can be read.
    pub fn after(&self, address: u64) -> impl Iterator<Item = Instruction> {
        let skipped = address.checked_sub(self.from).and_then(|skipped| usize::try_from(skipped).ok());
        let bytes = skipped.and_then(|skipped| self.bytes.get(skipped..)).unwrap_or_default();
        let mut decoder = Decoder::with_ip(self.bits, bytes, address, DecoderOptions::NONE);
        std::iter::from_fn(move || {
            let instruction = decoder.can_decode().then(|| decoder.decode())?;
            (!instruction.is_invalid()).then_some(instruction)
        })
    }

    /// The instructions around an address where one begins. Nobody says where those before it begin, but reading from any
    /// byte falls into step with them soon: what most ways agree on counts.
    pub fn around(&self, address: u64) -> Code {
        let mut ways: BTreeMap<u64, (usize, Vec<Instruction>)> = BTreeMap::new();
        for start in (0..STARTS as u64).filter_map(|skipped| self.from.checked_add(skipped)) {
            let way: Vec<Instruction> = self.after(start).take_while(|i| i.ip() < address).collect();
            let Some(last) = way.last().filter(|last| last.next_ip() == address) else { continue };
            let known = ways.entry(last.ip()).or_insert((0, way));
            known.0 += 1;
        }
        let (_, mut instructions) = ways.into_values().max_by_key(|(agree, _)| *agree).unwrap_or_default();
        let at = instructions.len();
        instructions.extend(self.after(address));
        Code { instructions, at }
    }
}

impl Code {
    /// The one that was done last.
    pub fn done(&self) -> Option<&Instruction> {
        self.at.checked_sub(1).and_then(|last| self.instructions.get(last))
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
