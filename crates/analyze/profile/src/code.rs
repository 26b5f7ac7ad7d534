//! Code that a guest's vCPUs execute: costs that make no exit, in guests without an agent, of any kernel.

use crate::summary::share;
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter,
    Mnemonic, OpKind,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use vmtax_findings::{CodePlace, GuestCode};
use vmtax_model::samples::{CodeBytes, CodeSamples, SampledCode, Spot};
use vmtax_rules::{CodePattern, Evidence, GuestCodeSamples};

/// Places that are told.
const MAX_REPORTED: usize = 100;
/// Instructions between the saving of the interrupt flag and its clearing, and between two calls in a row, at most.
const MAX_DISTANCE: usize = 8;
/// Instructions of a small function, at most.
const MAX_SMALL_FUNCTION: usize = 24;
/// Bytes that one of its moves takes, at most.
const WORD_BYTES: usize = 8;

/// Instructions that save the interrupt flag.
const SAVES_FLAGS: [Mnemonic; 3] = [Mnemonic::Pushf, Mnemonic::Pushfd, Mnemonic::Pushfq];
/// Instructions that restore it.
const RESTORES_FLAGS: [Mnemonic; 3] = [Mnemonic::Popf, Mnemonic::Popfd, Mnemonic::Popfq];

/// Returns the findings from samples of vCPUs; `None` where there are no samples.
pub fn findings(sampled: &CodeSamples) -> Option<GuestCode> {
    if sampled.samples == 0 {
        return None;
    }
    let share_of_samples = |part: u64| share(part, sampled.samples);
    let codes: BTreeMap<Spot, Code> = windows(sampled)
        .map(|(spot, code)| (spot, instructions_around(code, spot.address)))
        .collect();
    let place = |SampledCode { spot, count, .. }: &SampledCode| {
        let code = codes.get(spot);
        let said = |one: fn(&Code) -> Option<&Instruction>| {
            code.and_then(one).map(words).unwrap_or_default()
        };
        let (done, next) = (said(Code::done), said(Code::next));
        CodePlace {
            address: spot.address,
            level: spot.level,
            share: share_of_samples(*count),
            done,
            next,
        }
    };
    let mut places: Vec<CodePlace> = sampled.places.iter().map(place).collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.share.samples));
    places.truncate(MAX_REPORTED);
    let mut took_ns = sampled.took_ns.clone();
    took_ns.sort_unstable();
    let look_ns = took_ns.get(took_ns.len() / 2).map_or(0.0, |ns| *ns as f64);
    let patterns = patterns(sampled, &codes);
    let advice = vmtax_rules::evaluate(&Evidence {
        code: Some(&patterns),
        ..Evidence::default()
    });
    Some(GuestCode {
        looks: sampled.samples,
        halted: share_of_samples(sampled.halted),
        look_ns,
        places,
        advice,
    })
}

/// Places with the code around them.
fn windows(sampled: &CodeSamples) -> impl Iterator<Item = (Spot, &CodeBytes)> {
    sampled
        .places
        .iter()
        .filter_map(|place| Some((place.spot, place.code.as_ref()?)))
}

/// Counts the samples at each pattern.
fn patterns(sampled: &CodeSamples, codes: &BTreeMap<Spot, Code>) -> GuestCodeSamples {
    let pieces = pieces(sampled, codes);
    let mut found: BTreeMap<CodePattern, Vec<(u64, u64)>> = BTreeMap::new();
    for (spot, code) in codes {
        let is_in_piece = |(of, piece): &(Spot, RangeInclusive<u64>)| {
            same(of, spot) && piece.contains(&spot.address)
        };
        let patterns = [
            (CodePattern::Division, divides(code)),
            (CodePattern::LockSavesInterrupts, saves_interrupts(code)),
            (CodePattern::SmallCopies, pieces.iter().any(is_in_piece)),
        ];
        let mut places = sampled.places.iter();
        let count = places
            .find(|place| place.spot == *spot)
            .map_or(0, |place| place.count);
        for (pattern, _) in patterns.into_iter().filter(|(_, matches)| *matches) {
            let at = found.entry(pattern).or_default();
            at.push((count, spot.address));
        }
    }
    let samples = |(pattern, at): (CodePattern, Vec<(u64, u64)>)| {
        let (_, most) = at.iter().max()?;
        let count = at.iter().map(|(count, _)| count).sum();
        Some((pattern, share(count, sampled.samples), *most))
    };
    GuestCodeSamples {
        samples: sampled.samples,
        patterns: found.into_iter().filter_map(samples).collect(),
    }
}

/// Right behind a division of 128 by 64 bits.
fn divides(code: &Code) -> bool {
    code.done()
        .is_some_and(|done| matches!(done.code(), Opcode::Div_rm64 | Opcode::Idiv_rm64))
}

/// Behind the saving of the interrupt flag, up to right behind its restoring, where a lock is taken with the flag cleared.
fn saves_interrupts(code: &Code) -> bool {
    let saves = |i: &Instruction| SAVES_FLAGS.contains(&i.mnemonic());
    let restores = |i: &Instruction| RESTORES_FLAGS.contains(&i.mnemonic());
    let leaves = |i: &Instruction| {
        matches!(
            i.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch
        )
    };
    (0..code.at).any(|begin| {
        let rest = code.instructions.get(begin..).unwrap_or_default();
        let Some((true, end)) = rest.first().map(saves).zip(rest.iter().position(restores)) else {
            return false;
        };
        let inside = rest.get(..end).unwrap_or_default();
        let cleared = inside
            .iter()
            .take(MAX_DISTANCE)
            .position(|i| i.mnemonic() == Mnemonic::Cli);
        let locks = cleared.is_some_and(|cleared| inside.iter().skip(cleared).any(is_atomic));
        locks && !inside.iter().any(leaves) && code.at <= begin + end + 1
    })
}

/// Returns true if an instruction reads and writes memory atomically, as locks do.
fn is_atomic(i: &Instruction) -> bool {
    let memory = i.op0_kind() == OpKind::Memory || i.op1_kind() == OpKind::Memory;
    i.has_lock_prefix() || (i.mnemonic() == Mnemonic::Xchg && memory)
}

/// Returns true if both spots have the same privilege level and address space, so the same code at the same addresses.
fn same(a: &Spot, b: &Spot) -> bool {
    (a.level, a.space) == (b.level, b.space)
}

/// Where a few bytes are handed over piece by piece: a small function that copies a word, and those who call it twice in a
/// row, from the first call to behind the second. Each with a place of the same code.
fn pieces(sampled: &CodeSamples, codes: &BTreeMap<Spot, Code>) -> Vec<(Spot, RangeInclusive<u64>)> {
    let mut pieces = Vec::new();
    for (spot, code) in codes {
        let calls = code
            .instructions
            .iter()
            .enumerate()
            .filter(|(_, i)| i.is_call_near());
        let calls: Vec<(usize, &Instruction)> = calls.collect();
        for pair in calls.windows(2) {
            let [(at, first), (then, second)] = *pair else {
                continue;
            };
            let between = code.instructions.get(at + 1..then).unwrap_or_default();
            let in_a_row = between.len() <= MAX_DISTANCE
                && between
                    .iter()
                    .all(|i| i.flow_control() == FlowControl::Next);
            let to = first.near_branch_target();
            if !in_a_row || second.near_branch_target() != to {
                continue;
            }
            let mut windows = windows(sampled).filter(|(of, _)| same(of, spot));
            if let Some(function) = windows.find_map(|(_, code)| small_copy(code, to)) {
                pieces
                    .extend([first.ip()..=second.next_ip(), function].map(|piece| (*spot, piece)));
            }
        }
    }
    pieces
}

/// The function that begins there, if all that it does to memory is to store one word that it loaded.
fn small_copy(code: &CodeBytes, begin: u64) -> Option<RangeInclusive<u64>> {
    let all: Vec<Instruction> = instructions_from(code, begin)
        .take(MAX_SMALL_FUNCTION)
        .collect();
    let end = all
        .iter()
        .position(|i| i.flow_control() == FlowControl::Return)?;
    let (body, end) = (all.get(..end)?, all.get(end)?);
    let stays = |i: &Instruction| {
        matches!(
            i.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        )
    };
    let moves =
        |i: &Instruction| i.mnemonic() == Mnemonic::Mov && i.memory_size().size() <= WORD_BYTES;
    let is_store = |i: &Instruction| moves(i) && i.op0_kind() == OpKind::Memory;
    let stored = body.iter().position(is_store)?;
    let (before, rest) = (body.get(..stored)?, body.get(stored..)?);
    let (store, behind) = rest.split_first()?;
    // What set the stored register last has to be the load.
    let set = before
        .iter()
        .rfind(|i| i.op0_kind() == OpKind::Register && i.op0_register() == store.op1_register())?;
    let copies = moves(set) && set.op1_kind() == OpKind::Memory;
    (copies && body.iter().all(stays) && !behind.iter().any(is_store)).then(|| begin..=end.ip())
}

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

#[cfg(test)]
mod tests {
    use super::findings;
    use proptest::prelude::*;
    use std::time::Duration;
    use vmtax_model::samples::CodeSamples;
    use vmtax_observe::guest_code;

    /// Of a guest of KVM, shortened.
    const PRINTED: &str = "\nCPU#0\nRAX=0000000000000001 RBX=0000000000000000 RCX=0000000000000040 RDX=0000000000000000\n\
    RIP=00000000000f186c RFL=00000046 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0\n\
    ES =0000 0000000000000000 ffffffff 00c00000\n\
    CS =0033 0000000000000000 ffffffff 00a0fb00 DPL=3 CS64 [-RA]\n\
    CR0=80000011 CR2=0000000000000000 CR3=0000000000001000 CR4=00000620\n";

    fn printed(address: u64, halted: bool) -> String {
        let text = PRINTED.replace("00000000000f186c", &format!("{address:016x}"));
        text.replace("HLT=0", if halted { "HLT=1" } else { "HLT=0" })
    }

    const CODE: u64 = 0x10_0000;

    /// Returns the output of the monitor command `x` for a memory that holds `code` from [`CODE`] on.
    fn memory(code: &[u8], command: &str) -> String {
        let (count, from) = command
            .strip_prefix("x /")
            .unwrap()
            .split_once("xb 0x")
            .unwrap();
        let (count, from) = (
            count.parse::<u64>().unwrap(),
            u64::from_str_radix(from, 16).unwrap(),
        );
        let there = |n: u64| {
            code.get(usize::try_from((from + n).checked_sub(CODE)?).unwrap())
                .copied()
        };
        match (0..count)
            .map_while(there)
            .map(|byte| format!("{byte:#04x}"))
            .collect::<Vec<_>>()
        {
            none if none.is_empty() => format!("{from:016x}: Cannot access memory\n"),
            bytes => format!("{from:016x}: {}\n", bytes.join(" ")),
        }
    }

    /// A kernel of one CPU with such code, seen at these offsets in turn, until QEMU is gone.
    fn looked(code: &[u8], seen: &[u64]) -> CodeSamples {
        let mut at = seen.iter();
        guest_code(
            &[0],
            1_000_000,
            Duration::from_secs(60),
            &|| false,
            &mut |_, command| match command {
                "info registers" => {
                    Some(printed(CODE + at.next()?, false).replace("CPL=3", "CPL=0"))
                }
                _ => Some(memory(code, command)),
            },
        )
    }

    /// The rules that fire, and the part of the samples at each, in hundredths.
    fn costs(code: &[u8], seen: &[u64]) -> Vec<(String, u64)> {
        let found = findings(&looked(code, seen)).unwrap();
        found
            .advice
            .into_iter()
            .map(|advice| (advice.rule, (advice.gain * 100.0).round() as u64))
            .collect()
    }

    /// 64 no-ops, so that there is something before the code.
    fn behind_nops(code: &[u8]) -> Vec<u8> {
        [&[0x90; 64][..], code].concat()
    }

    #[test]
    fn a_division_is_found_by_who_is_right_behind_it() {
        // mov rax,r14; xor edx,edx; div r15; imul rax,r9
        let code = behind_nops(&[
            0x4c, 0x89, 0xf0, 0x31, 0xd2, 0x49, 0xf7, 0xf7, 0x49, 0x0f, 0xaf, 0xc1,
        ]);
        assert_eq!(costs(&code, &[64 + 8; 20]), [("division".to_owned(), 100)]);
        assert_eq!(costs(&code, &[64 + 5; 20]), [], "before it");
        assert_eq!(costs(&code, &[64 + 8; 4]), [], "too few");
        let seldom = [&[64; 2000][..], &[64 + 8; 10]].concat();
        assert_eq!(costs(&code, &seldom), [], "half a percent");
        // div ecx
        assert_eq!(
            costs(&behind_nops(&[0xf7, 0xf1, 0x90]), &[64 + 2; 20]),
            [],
            "by 32 bits"
        );
        let found = findings(&looked(&code, &[64 + 8; 20])).unwrap();
        assert_eq!(
            (found.places[0].done.as_str(), found.places[0].next.as_str()),
            ("div r15", "imul rax,r9")
        );
        assert!(
            found.advice[0].finding.contains("100.0 % of 20 samples")
                && found.advice[0].finding.contains("0x100048")
        );
    }

    #[test]
    fn a_lock_that_saves_interrupts_is_told_from_one_that_does_not() {
        // pushfq; cli; mov eax,1; xchg [100h],eax; mov dword [100h],0; popfq; dec ecx; jnz
        let lock = [
            0xb8, 1, 0, 0, 0, 0x87, 0x04, 0x25, 0, 1, 0, 0, 0xc7, 0x04, 0x25, 0, 1, 0, 0, 0, 0, 0,
            0,
        ];
        let saved =
            behind_nops(&[&[0x9c, 0xfa][..], &lock, &[0x9d, 0xff, 0xc9, 0x75, 0xe2]].concat());
        let behind_restore = 64 + 2 + lock.len() as u64 + 1;
        for at in [64 + 1, 64 + 2, 64 + 14, behind_restore] {
            assert_eq!(
                costs(&saved, &[at; 20]),
                [("lock-saves-interrupts".to_owned(), 100)],
                "{at}"
            );
        }
        assert_eq!(costs(&saved, &[64; 20]), [], "before it");
        assert_eq!(costs(&saved, &[behind_restore + 2; 20]), [], "behind it");
        assert_eq!(
            costs(
                &behind_nops(&[&lock[..], &[0x90; 4]].concat()),
                &[64 + 12; 20]
            ),
            [],
            "a plain lock"
        );
        assert_eq!(
            costs(
                &behind_nops(&[0x9c, 0xfa, 0x90, 0x90, 0x9d, 0x90]),
                &[64 + 3; 20]
            ),
            [],
            "no lock"
        );
    }

    #[test]
    fn two_calls_of_a_small_copy_are_told_from_one() {
        // mov rax,[r14]; mov [r9],rax; ret: 7 bytes; then call it, add r9,8, call it, dec ecx
        let copy = [0x49, 0x8b, 0x06, 0x49, 0x89, 0x01, 0xc3];
        let call = |back: i32| [&[0xe8][..], &(-back - 5).to_le_bytes()].concat();
        let twice = [
            &copy[..],
            &call(7),
            &[0x49, 0x83, 0xc1, 8],
            &call(16),
            &[0xff, 0xc9, 0x90],
        ]
        .concat();
        let twice = behind_nops(&twice);
        let (between, behind) = (64 + 12, 64 + 21);
        let found = costs(
            &twice,
            &[&[between; 10][..], &[behind; 10], &[64 + 3; 10]].concat(),
        );
        assert_eq!(found, [("small-copies".to_owned(), 100)]);
        assert_eq!(costs(&twice, &[behind + 2; 20]), [], "behind it");
        let once = behind_nops(&[&copy[..], &call(7), &[0xff, 0xc9, 0x90]].concat());
        assert_eq!(costs(&once, &[64 + 12; 20]), [], "called once");
        // With mov [r9+8],rbx too.
        let whole = [&[0x49, 0x8b, 0x5e, 8, 0x49, 0x89, 0x59, 8][..], &copy].concat();
        let whole = [
            &whole[..],
            &call(15),
            &[0x49, 0x83, 0xc1, 8],
            &call(24),
            &[0xff, 0xc9],
        ]
        .concat();
        assert_eq!(
            costs(&behind_nops(&whole), &[64 + 20; 20]),
            [],
            "16 bytes at once"
        );
        // mov rax,[r14]; inc rax; mov [r9],rax; ret
        let counter = [
            &[0x49, 0x8b, 0x06, 0x48, 0xff, 0xc0, 0x49, 0x89, 0x01, 0xc3][..],
            &call(10),
            &[0x90],
            &call(16),
        ]
        .concat();
        assert_eq!(
            costs(&behind_nops(&counter), &[64 + 15; 20]),
            [],
            "a counter"
        );
    }

    #[test]
    fn halted_cpus_are_nowhere_and_gone_ones_end_it() {
        let mut left = 10;
        let looked = guest_code(
            &[0, 1],
            1_000_000,
            Duration::from_secs(60),
            &|| false,
            &mut |_, _| {
                left -= 1;
                (left >= 0).then(|| printed(CODE, true))
            },
        );
        let found = findings(&looked).unwrap();
        assert_eq!(
            (found.looks, found.halted.samples, found.places.len()),
            (10, 10, 0)
        );
        let mut number = 0;
        let deaf = guest_code(
            &[0, 7],
            1_000_000,
            Duration::from_secs(60),
            &|| false,
            &mut |cpu, _| {
                number += 1;
                (cpu == 0 && number < 100).then(|| printed(CODE, true))
            },
        );
        assert_eq!(
            findings(&deaf).unwrap().looks,
            50,
            "one that does not answer is no end"
        );
        let arm = guest_code(
            &[0],
            1_000_000,
            Duration::from_secs(60),
            &|| false,
            &mut |_, _| Some("PC=0\n".to_owned()),
        );
        assert_eq!(findings(&arm), None);
    }

    #[test]
    fn a_programs_code_is_read_only_while_it_runs() {
        let code = behind_nops(&[0x49, 0xf7, 0xf7, 0x90]);
        let is_unread = |spaces: [&str; 2]| {
            let mut number = 0;
            let looked = guest_code(
                &[0],
                1_000_000,
                Duration::from_secs(60),
                &|| false,
                &mut |_, command| match command {
                    "info registers" => {
                        number += 1;
                        let space = spaces[number % 2];
                        (number <= 20).then(|| {
                            printed(CODE + 64 + 3, false).replace("0000000000001000", space)
                        })
                    }
                    _ => Some(memory(&code, command)),
                },
            );
            findings(&looked)
                .unwrap()
                .places
                .iter()
                .all(|place| place.done.is_empty())
        };
        assert!(!is_unread(["1000", "1000"]) && is_unread(["1000", "2000"]));
    }

    proptest! {
        /// Any code anywhere, also at the ends of the address space.
        #[test]
        fn any_code_has_a_meaning(code: Vec<u8>, address: u64, real: bool) {
            let bytes: Vec<String> = code.iter().map(|byte| format!("{byte:#04x}")).collect();
            let mode = |text: String| if real { text.replace("CS64", "CS16") } else { text };
            let mut looks = 8;
            let looked = guest_code(&[0], 1_000_000, Duration::from_secs(60), &|| false, &mut |_, command| {
                looks -= 1;
                let from = command.rsplit("0x").next().unwrap_or_default();
                (looks > 0).then(|| match command {
                    "info registers" => mode(printed(address, false)),
                    _ => format!("{from}: {}", bytes.join(" ")),
                })
            });
            let found = findings(&looked).unwrap();
            prop_assert!(found.advice.iter().all(|advice| advice.gain <= 1.0));
        }
    }
}
