//! Tests with values that a guest might write, without a guest.

use super::*;
use crate::micro_guest::layout::{
    BUFFER, EXIT_WORDS, MAX_BLOCK, MAX_FRAME, REQUEST_WORDS, command, completion,
};
use crate::micro_guest::{Completion, Direction, ExitKind, Pattern, RoundTrips, Run};
use proptest::prelude::*;
use std::sync::LazyLock;
use vmtax_model::Antipattern;

fn memory() -> Box<[AtomicU64]> {
    (0..RAM_BYTES / WORD).map(|_| AtomicU64::new(0)).collect()
}

/// A guest that has just done what the words order.
fn done(memory: &[AtomicU64], ordered: &[(usize, u64)], table: &[u64]) {
    let set = |at: usize, word: u64| memory[at / WORD].store(word, Ordering::Relaxed);
    set(MAILBOX + words::MAGIC, MAGIC);
    set(MAILBOX + words::ORDER, 7);
    set(MAILBOX + words::STATE, 7 << 8 | state::DONE);
    ordered
        .iter()
        .for_each(|&(at, word)| set(MAILBOX + at, word));
    table
        .iter()
        .enumerate()
        .for_each(|(word, &value)| set(TABLE + word * WORD, value));
}

const RUN: Run = Run {
    count: 2,
    block: 4096,
    direction: Direction::Read,
    pattern: Pattern::Sequential,
    sectors: 80,
    completion: Completion::Msix,
    timeout: 1,
};

fn ran(table: [[u64; REQUEST_WORDS]; 2]) -> Result<usize, MicroError> {
    let memory = memory();
    let ordered = Order::Run(RUN).words().unwrap();
    done(&memory, &ordered, &table.concat());
    memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
    Mailbox::new(&memory)
        .unwrap()
        .requests()
        .map(|requests| requests.len())
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let sound = [[10, 20, 15, 30, 0], [30, 31, 40, 40, 72]];
    assert_eq!(ran(sound), Ok(2));
    for (request, word, value, why) in [
        (0, 1, 9, "notified before it began"),
        (0, 2, 9, "an interrupt before it began"),
        (0, 2, 31, "an interrupt after it was seen"),
        (0, 2, 0, "no interrupt"),
        (0, 3, 19, "seen before notified"),
        (1, 0, 29, "begun before the one before was seen"),
        (1, 4, 73, "in the middle of a block"),
        (1, 4, 80, "outside the range"),
    ] {
        let mut table = sound;
        table[request][word] = value;
        assert!(
            matches!(ran(table), Err(MicroError::InvalidMemory { .. })),
            "{why}"
        );
    }
}

#[test]
fn round_trips_that_cannot_be_are_refused() {
    let memory = memory();
    let made = |table: [[u64; REQUEST_WORDS]; 2]| {
        let ordered = Order::RoundTrips(RoundTrips {
            count: 2,
            bytes: 116,
            timeout: 1,
        })
        .words()
        .unwrap();
        done(&memory, &ordered, &table.concat());
        memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
        Mailbox::new(&memory)
            .unwrap()
            .round_trips()
            .map(|trips| trips.len())
    };
    assert_eq!(made([[10, 20, 25, 30, 0], [30, 31, 40, 40, 1]]), Ok(2));
    assert!(
        made([[10, 20, 25, 30, 0], [30, 31, 40, 40, 2]]).is_err(),
        "another number"
    );
    assert!(
        made([[10, 20, 25, 30, 0], [29, 31, 40, 40, 1]]).is_err(),
        "two at once"
    );
    for bytes in [0, 60, MAX_FRAME + 1] {
        let order = Order::RoundTrips(RoundTrips {
            count: 2,
            bytes,
            timeout: 1,
        });
        assert_eq!(order.words(), Err(MicroError::BadFrame { bytes }));
    }
}

#[test]
fn exits_that_cannot_be_are_refused() {
    let memory = memory();
    let took = |kind, table: [u64; 2 * EXIT_WORDS]| {
        let ordered = Order::Exits { kind, count: 2 }.words().unwrap();
        done(&memory, &ordered, &table);
        memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
        Mailbox::new(&memory).unwrap().exits(kind)
    };
    assert_eq!(took(ExitKind::Cpuid, [5, 9, 9, 10]), Ok(vec![4, 1]));
    assert!(
        took(ExitKind::Cpuid, [5, 4, 9, 10]).is_err(),
        "after before before"
    );
    assert!(took(ExitKind::Cpuid, [5, 9, 8, 10]).is_err(), "two at once");
}

#[test]
fn antipatterns_that_cannot_be_are_refused() {
    let memory = memory();
    let took = |fixed, table: [u64; 2 * EXIT_WORDS]| {
        let ordered = Order::Antipattern {
            antipattern: Antipattern::FastTick,
            fixed: true,
            count: 2,
        }
        .words()
        .unwrap();
        done(&memory, &ordered, &table);
        memory[(MAILBOX + words::COUNT) / WORD].store(2, Ordering::Relaxed);
        Mailbox::new(&memory)
            .unwrap()
            .antipattern(Antipattern::FastTick, fixed)
    };
    assert_eq!(took(true, [5, 9, 9, 10]), Ok(vec![4, 1]));
    assert!(
        matches!(took(false, [5, 9, 9, 10]), Err(MicroError::NotDone { .. })),
        "of the fix"
    );
    assert!(took(true, [5, 4, 9, 10]).is_err(), "after before before");
    assert!(took(true, [5, 9, 8, 10]).is_err(), "two at once");
}

#[test]
fn states_are_about_the_last_order() {
    let memory = memory();
    let mailbox = Mailbox::new(&memory).unwrap();
    let set = |at: usize, word: u64| memory[(MAILBOX + at) / WORD].store(word, Ordering::Relaxed);
    assert_eq!(mailbox.state(), Ok(State::Starting));
    assert_eq!(
        mailbox.order(&Order::Leave),
        Err(MicroError::Busy {
            state: State::Starting
        })
    );
    set(words::MAGIC, MAGIC);
    set(words::STATE, state::READY);
    assert_eq!(mailbox.state(), Ok(State::Ready));
    mailbox.order(&Order::Ping).unwrap();
    assert_eq!(
        mailbox.state(),
        Ok(State::Running),
        "not yet seen by the guest"
    );
    set(words::STATE, 1 << 8 | state::DONE);
    assert_eq!(mailbox.state(), Ok(State::Done));
    mailbox.order(&Order::Ping).unwrap();
    assert_eq!(
        mailbox.state(),
        Ok(State::Running),
        "done is what the guest is with the one before"
    );
    set(words::STATE, 2 << 8 | state::FAILED);
    assert!(mailbox.state().is_err(), "failed, for no reason");
    set(words::FAILURE, failure::TRAP);
    set(words::DETAIL, 14 << 56 | 0xf_0123);
    let crash = Failure::Trap {
        vector: 14,
        address: 0xf_0123,
    };
    assert_eq!(mailbox.state(), Ok(State::Failed(crash)));
    assert_eq!(mailbox.order(&Order::Ping), Err(MicroError::Failed(crash)));
    set(words::MAGIC, MAGIC + 1);
    assert!(mailbox.state().is_err(), "another version");
    assert_eq!(
        Mailbox::new(&memory[1..]).err(),
        Some(MicroError::WrongMemory {
            bytes: RAM_BYTES - 8
        })
    );
}

#[test]
fn orders_that_cannot_be_carried_out_are_refused() {
    let words = |run| Order::Run(run).words();
    assert!(words(RUN).is_ok());
    for count in [0, MAX_COUNT + 1] {
        assert_eq!(
            words(Run { count, ..RUN }),
            Err(MicroError::BadCount { count })
        );
        assert_eq!(
            Order::Exits {
                kind: ExitKind::Eoi,
                count
            }
            .words(),
            Err(MicroError::BadCount { count })
        );
    }
    for bytes in [0, 100, 513, MAX_BLOCK + 512] {
        assert_eq!(
            words(Run {
                block: bytes,
                ..RUN
            }),
            Err(MicroError::BadBlock { bytes })
        );
    }
    for sectors in [0, 7, u64::MAX] {
        assert_eq!(
            words(Run { sectors, ..RUN }),
            Err(MicroError::BadRange {
                sectors,
                block: 4096
            })
        );
    }
    for stride in [0, 10, u64::MAX] {
        let pattern = Pattern::Stride(stride);
        assert_eq!(
            words(Run { pattern, ..RUN }),
            Err(MicroError::BadStride { stride, blocks: 10 })
        );
    }
}

/// The ROM finds a kind by its place.
#[test]
fn kinds_are_numbered_in_their_order() {
    assert!(
        ExitKind::ALL
            .iter()
            .enumerate()
            .all(|(number, &kind)| kind as usize == number)
    );
    assert!(
        Antipattern::ALL
            .iter()
            .enumerate()
            .all(|(number, &antipattern)| antipattern as usize == number)
    );
}

const _: () = assert!(TABLE + MAX_COUNT as usize * REQUEST_WORDS * WORD <= RAM_BYTES);
const _: () = assert!(BUFFER + MAX_BLOCK as usize <= TABLE && MAILBOX + 4096 <= BUFFER);

/// Numbers that come near to being right.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..12u64,
        7 << 8..(7 << 8) + 6u64,
        any::<u64>(),
        Just(MAGIC),
        Just(4096),
        Just(u64::from(MAX_COUNT))
    ]
}

proptest! {
    #[test]
    fn any_memory_is_survived(
        mailbox in proptest::collection::vec(word(), 27),
        table in proptest::collection::vec(word(), 0..20),
        kind in 0..ExitKind::ALL.len(),
        up in any::<bool>(),
    ) {
        static MEMORY: LazyLock<Box<[AtomicU64]>> = LazyLock::new(memory);
        let set = |at: usize, word: u64| MEMORY[at / WORD].store(word, Ordering::Relaxed);
        let last = [words::MAGIC / WORD, words::STATE / WORD, words::ORDER / WORD];
        let cells = (words::MAGIC / WORD..=words::SEED / WORD).filter(|cell| !up || !last.contains(cell));
        cells.zip(mailbox).for_each(|(cell, word)| set(MAILBOX + cell * WORD, word));
        table.iter().enumerate().for_each(|(word, &value)| set(TABLE + word * WORD, value));
        if up {
            done(&MEMORY, &[], &[]);
        }
        let mailbox = Mailbox::new(&MEMORY).unwrap();
        let polled = mailbox.word(words::COMPLETION) == completion::POLLED;
        if let Ok(requests) = mailbox.requests() {
            prop_assert_eq!(mailbox.word(words::COMMAND), command::RUN);
            prop_assert!(requests.iter().all(|r| r.begin <= r.notified && r.notified <= r.seen));
            prop_assert!(requests.iter().all(|r| r.interrupt.is_none() == polled));
            prop_assert!(requests.windows(2).all(|two| two[0].seen <= two[1].begin));
        }
        if let Ok(exits) = mailbox.exits(ExitKind::ALL[kind]) {
            prop_assert_eq!(exits.len() as u64, mailbox.word(words::HOW_MANY));
        }
        for (antipattern, fixed) in Antipattern::forms() {
            if let Ok(ticks) = mailbox.antipattern(antipattern, fixed) {
                prop_assert_eq!(ticks.len() as u64, mailbox.word(words::HOW_MANY));
            }
        }
        let _ = mailbox.order(&Order::Run(RUN));
    }
}
