//! A guest that is made up, as QEMU 7.2 would print it.

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
            "info registers" => Some(printed(CODE + at.next()?, false).replace("CPL=3", "CPL=0")),
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
        0xb8, 1, 0, 0, 0, 0x87, 0x04, 0x25, 0, 1, 0, 0, 0xc7, 0x04, 0x25, 0, 1, 0, 0, 0, 0, 0, 0,
    ];
    let saved = behind_nops(&[&[0x9c, 0xfa][..], &lock, &[0x9d, 0xff, 0xc9, 0x75, 0xe2]].concat());
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
                    (number <= 20)
                        .then(|| printed(CODE + 64 + 3, false).replace("0000000000001000", space))
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
