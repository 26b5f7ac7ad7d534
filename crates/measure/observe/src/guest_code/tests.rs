//! Tests with the output of QEMU 7.2.

use super::registers::{Registers, bytes};
use proptest::prelude::*;

/// Of a guest of KVM, shortened.
const PRINTED: &str = "\nCPU#0\nRAX=0000000000000001 RBX=0000000000000000 RCX=0000000000000040 RDX=0000000000000000\n\
    RIP=00000000000f186c RFL=00000046 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0\n\
    ES =0000 0000000000000000 ffffffff 00c00000\n\
    CS =0033 0000000000000000 ffffffff 00a0fb00 DPL=3 CS64 [-RA]\n\
    CR0=80000011 CR2=0000000000000000 CR3=0000000000001000 CR4=00000620\n";

#[test]
fn registers_are_read_in_every_mode() {
    let long = Registers::read(PRINTED).unwrap();
    assert_eq!(
        long,
        Registers {
            address: 0xf186c,
            bits: 64,
            level: 3,
            halted: false,
            space: 0x1000
        }
    );
    let real = "EIP=0000e05b EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\n\
        CS =f000 000f0000 0000ffff 00009b00\nCR0=60000010 CR2=00000000 CR3=00000000 CR4=00000000\n";
    let real = Registers::read(real).unwrap();
    assert_eq!(
        real,
        Registers {
            address: 0xfe05b,
            bits: 16,
            level: 0,
            halted: true,
            space: 0
        }
    );
    assert_eq!(
        Registers::read("PC=0000000040000000 X00=0\n"),
        None,
        "an Arm CPU"
    );
}

#[test]
fn bytes_end_where_there_is_no_memory() {
    let text = "00000000000f1854: 0x4c 0x89 0xf0 0x31\r\n00000000000f1858: 0xd2 0x49\r\n";
    assert_eq!(bytes(text, 0xf1854), [0x4c, 0x89, 0xf0, 0x31, 0xd2, 0x49]);
    assert_eq!(
        bytes(
            "0000000000001000: 0x90\n0000000000001001: Cannot access memory\n",
            0x1000
        ),
        [0x90]
    );
    assert!(
        bytes("00000000000f1854: 0x4c\n", 0).is_empty(),
        "of another place"
    );
}

proptest! {
    #[test]
    fn any_text_is_read(text in ".{0,200}", from: u64) {
        let _ = Registers::read(&text);
        prop_assert!(bytes(&text, from).len() <= text.len());
    }
}
