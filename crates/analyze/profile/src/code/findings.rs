//! Known costs in a guest's code, each with its cure.

use super::decode::{Code, instructions_around, instructions_from, words};
use crate::summary::share;
use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use vmtax_model::samples::{CodeBytes, CodeSamples, SampledCode, Spot};
use vmtax_model::{CodeFinding, CodePlace, CostlyCode, GuestCode, SampleShare};

/// Fewer looks, or a smaller part of all, are nothing to speak of.
const LEAST: u64 = 5;
const LEAST_SHARE: f64 = 0.01;
/// Places that are told.
const TOLD: usize = 100;
/// Instructions between the saving of the interrupt flag and its clearing, and between two calls in a row, at most.
const NEAR: usize = 8;
/// Instructions of a small function, at most.
const SMALL: usize = 24;
/// Bytes that one of its moves takes, at most.
const WORD: usize = 8;

/// What was seen, and what it says; `None` where nothing was.
pub fn findings(sampled: &CodeSamples) -> Option<GuestCode> {
    if sampled.samples == 0 {
        return None;
    }
    let of = |part: u64| share(part, sampled.samples);
    let codes: BTreeMap<Spot, Code> =
        windows(sampled).map(|(spot, code)| (spot, instructions_around(code, spot.address))).collect();
    let place = |SampledCode { spot, count, .. }: &SampledCode| {
        let code = codes.get(spot);
        let said = |one: fn(&Code) -> Option<&Instruction>| code.and_then(one).map(words).unwrap_or_default();
        let (done, next) = (said(Code::done), said(Code::next));
        CodePlace { address: spot.address, level: spot.level, share: of(*count), done, next }
    };
    let mut places: Vec<CodePlace> = sampled.places.iter().map(place).collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.share.samples));
    places.truncate(TOLD);
    let mut took_ns = sampled.took_ns.clone();
    took_ns.sort_unstable();
    let look_ns = took_ns.get(took_ns.len() / 2).map_or(0.0, |ns| *ns as f64);
    let findings = known(sampled, &codes);
    Some(GuestCode { looks: sampled.samples, halted: of(sampled.halted), look_ns, places, findings })
}

/// Places with the code around them.
fn windows(sampled: &CodeSamples) -> impl Iterator<Item = (Spot, &CodeBytes)> {
    sampled.places.iter().filter_map(|place| Some((place.spot, place.code.as_ref()?)))
}

/// The known costs that processors were found at, the most frequent first.
fn known(sampled: &CodeSamples, codes: &BTreeMap<Spot, Code>) -> Vec<CodeFinding> {
    let pieces = pieces(sampled, codes);
    let mut found: BTreeMap<CostlyCode, Vec<(u64, u64)>> = BTreeMap::new();
    for (spot, code) in codes {
        let rules = [
            (CostlyCode::Division, divides(code)),
            (CostlyCode::LockSavesInterrupts, saves_interrupts(code)),
            (CostlyCode::SmallCopies, pieces.iter().any(|(of, piece)| same(of, spot) && piece.contains(&spot.address))),
        ];
        let count = sampled.places.iter().find(|place| place.spot == *spot).map_or(0, |place| place.count);
        for (cost, _) in rules.into_iter().filter(|(_, fires)| *fires) {
            found.entry(cost).or_default().push((count, spot.address));
        }
    }
    let finding = |(cost, at): (&CostlyCode, &Vec<(u64, u64)>)| {
        let share = share(at.iter().map(|(count, _)| count).sum(), sampled.samples);
        let (_, most) = at.iter().max()?;
        (share.samples >= LEAST && share.share >= LEAST_SHARE).then(|| said(*cost, share, *most, sampled.samples))
    };
    let mut findings: Vec<CodeFinding> = found.iter().filter_map(finding).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.share.samples));
    findings
}

/// Right behind a division of 128 by 64 bits.
fn divides(code: &Code) -> bool {
    code.done().is_some_and(|done| matches!(done.code(), Opcode::Div_rm64 | Opcode::Idiv_rm64))
}

/// Behind the saving of the interrupt flag, up to right behind its restoring, where a lock is taken with the flag cleared.
fn saves_interrupts(code: &Code) -> bool {
    let saves = |i: &Instruction| matches!(i.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq);
    let restores = |i: &Instruction| matches!(i.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq);
    let leaves = |i: &Instruction| matches!(i.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch);
    (0..code.at).any(|begin| {
        let rest = code.instructions.get(begin..).unwrap_or_default();
        let Some((true, end)) = rest.first().map(saves).zip(rest.iter().position(restores)) else { return false };
        let inside = rest.get(..end).unwrap_or_default();
        let cleared = inside.iter().take(NEAR).position(|i| i.mnemonic() == Mnemonic::Cli);
        let locks = cleared.is_some_and(|cleared| inside.iter().skip(cleared).any(is_atomic));
        locks && !inside.iter().any(leaves) && code.at <= begin + end + 1
    })
}

/// Whether it reads and writes memory at one go: what locks are made of.
fn is_atomic(i: &Instruction) -> bool {
    let memory = i.op0_kind() == OpKind::Memory || i.op1_kind() == OpKind::Memory;
    i.has_lock_prefix() || (i.mnemonic() == Mnemonic::Xchg && memory)
}

/// Whether the same code is at the same addresses there.
fn same(a: &Spot, b: &Spot) -> bool {
    (a.level, a.space) == (b.level, b.space)
}

/// Where a few bytes are handed over piece by piece: a small function that copies a word, and those who call it twice in a
/// row, from the first call to behind the second. Each with a place of the same code.
fn pieces(sampled: &CodeSamples, codes: &BTreeMap<Spot, Code>) -> Vec<(Spot, RangeInclusive<u64>)> {
    let mut pieces = Vec::new();
    for (spot, code) in codes {
        let calls = code.instructions.iter().enumerate().filter(|(_, i)| i.is_call_near());
        let calls: Vec<(usize, &Instruction)> = calls.collect();
        for pair in calls.windows(2) {
            let [(at, first), (then, second)] = *pair else { continue };
            let between = code.instructions.get(at + 1..then).unwrap_or_default();
            let in_a_row = between.len() <= NEAR && between.iter().all(|i| i.flow_control() == FlowControl::Next);
            let to = first.near_branch_target();
            if !in_a_row || second.near_branch_target() != to {
                continue;
            }
            let mut windows = windows(sampled).filter(|(of, _)| same(of, spot));
            if let Some(function) = windows.find_map(|(_, code)| small_copy(code, to)) {
                pieces.extend([first.ip()..=second.next_ip(), function].map(|piece| (*spot, piece)));
            }
        }
    }
    pieces
}

/// The function that begins there, if all that it does to memory is to store one word that it loaded.
fn small_copy(code: &CodeBytes, begin: u64) -> Option<RangeInclusive<u64>> {
    let all: Vec<Instruction> = instructions_from(code, begin).take(SMALL).collect();
    let end = all.iter().position(|i| i.flow_control() == FlowControl::Return)?;
    let (body, end) = (all.get(..end)?, all.get(end)?);
    let stays = |i: &Instruction| matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
    let moves = |i: &Instruction| i.mnemonic() == Mnemonic::Mov && i.memory_size().size() <= WORD;
    let is_store = |i: &Instruction| moves(i) && i.op0_kind() == OpKind::Memory;
    let stored = body.iter().position(is_store)?;
    let (before, rest) = (body.get(..stored)?, body.get(stored..)?);
    let (store, behind) = rest.split_first()?;
    // What set the stored register last has to be the load.
    let set = before.iter().rfind(|i| i.op0_kind() == OpKind::Register && i.op0_register() == store.op1_register())?;
    let copies = moves(set) && set.op1_kind() == OpKind::Memory;
    (copies && body.iter().all(stays) && !behind.iter().any(is_store)).then(|| begin..=end.ip())
}

fn said(cost: CostlyCode, share: SampleShare, address: u64, looks: u64) -> CodeFinding {
    let part = format!("{:.1} % of {looks} looks found the guest's processors", share.share * 100.0);
    let (seen, advice, published) = match cost {
        CostlyCode::Division => (
            format!("{part} behind a division by 64 bits, most at {address:#x}."),
            "Where the divisor stays the same, as a clock's rate does, multiply and shift: mult = (10^9 << 32) / rate, made \
             once, then ns = (ticks * mult) >> 32.",
            "two divisions, some 100 cycles, became one multiplication of some 6 (seed 003)",
        ),
        CostlyCode::LockSavesInterrupts => (
            format!(
                "{part} where the interrupt flag is saved, cleared and restored around a lock, most at {address:#x}."
            ),
            "Leave the flag alone around locks that no interrupt handler takes (in Linux' words: spin_lock in place of \
             spin_lock_irqsave).",
            "a read of /dev/null went from 391 to 311 ns (seed 003)",
        ),
        CostlyCode::SmallCopies => (
            format!("{part} in a function that copies one word, or at two calls of it in a row, most at {address:#x}."),
            "Hand all of it over at once: its call and its check are made once then.",
            "16 bytes as one piece halved the overhead of two (seed 003)",
        ),
    };
    CodeFinding { cost, share, address, seen, advice: advice.to_owned(), published: published.to_owned() }
}
