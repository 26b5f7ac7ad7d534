//! Functions as compilers made them (Debian's QEMU 5.2, 7.2, 11.1), and some that they might make.

use crate::argument_registers::Argument;
use crate::uprobe_offset::{Code, UprobeOffset, is_cheap};
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
    0x48, 0xb8, 0, 0, 0, 0xff, 0, 0xff, 0, 0, 0x48, 0x8b, 0x57, 0x60, 0x48, 0x23, 0x82, 0xb0, 1, 0,
    0, 0x75, 0x19, 0xf6, 0x82, 0xb4, 0, 0, 0, 4, 0x74, 8, 0xe9, 0xdb, 0xf1, 0xff, 0xff, 0x0f, 0x1f,
    0, 0xe9, 0xd3, 0xf7, 0xff, 0xff, 0x0f, 0x1f, 0, 0x31, 0xc0, 0xc3,
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
    0x4c, 0x89, 0x60, 0x40, 0x66, 0x0f, 0xef, 0xc0, 0x4c, 0x89, 0xee, 0x48, 0x89, 0xc7, 0x48, 0x89,
    0x68, 0x48, 0x0f, 0x11, 0x80, 0xb8, 0, 0, 0, 0x0f, 0x11, 0x80, 0xc8, 0, 0, 0, 0xe8, 0x7b, 0xf5,
    0xff, 0xff, 0x85, 0xc0, 0x0f, 0x85, 0xb3, 0, 0, 0, 0xbe, 0xf0, 0, 0, 0, 0x48, 0x89, 0xef, 0xe8,
    0x96, 0xeb, 4, 0, 0x48, 0x89, 0xc3, 0x48, 0x85, 0xc0, 0x75, 0xbe, 0x45, 0x84, 0xf6, 0x75, 0x69,
    0xc3,
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
