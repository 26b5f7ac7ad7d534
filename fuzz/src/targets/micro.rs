//! Memory that a micro-guest leaves: the first words are its mailbox (after the clock's cells), the others its
//! table.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use vmtax_model::Antipattern;
use vmtax_vm::micro_guest::layout::{MAILBOX, RAM_BYTES, TABLE, words};
use vmtax_vm::micro_guest::{ExitKind, Mailbox, Order};

static MEMORY: LazyLock<Box<[AtomicU64]>> =
    LazyLock::new(|| (0..RAM_BYTES / 8).map(|_| AtomicU64::new(0)).collect());

/// Without those that nobody uses.
const MAILBOX_WORDS: [usize; 17] = [
    words::MAGIC,
    words::STATE,
    words::FAILURE,
    words::DETAIL,
    words::COUNT,
    words::CAPACITY,
    words::ORDER,
    words::COMMAND,
    words::HOW_MANY,
    words::TIMEOUT,
    words::KIND,
    words::BLOCK,
    words::DIRECTION,
    words::COMPLETION,
    words::BLOCKS,
    words::STRIDE,
    words::SEED,
];

pub fn run(data: &[u8]) {
    let mut input = data
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let set = |at: usize, word: u64| MEMORY[at / 8].store(word, Ordering::Relaxed);
    for at in MAILBOX_WORDS {
        set(MAILBOX + at, input.next().unwrap_or(0));
    }
    for word in 0..100 {
        set(TABLE + word * 8, input.next().unwrap_or(0));
    }

    let mailbox = Mailbox::new(&MEMORY).expect("memory of the right size");
    let _ = mailbox.state();
    if let Ok(requests) = mailbox.requests() {
        assert!(
            requests
                .iter()
                .all(|r| r.begin <= r.notified && r.notified <= r.seen)
        );
        assert!(requests.windows(2).all(|two| two[0].seen <= two[1].begin));
    }
    for kind in ExitKind::ALL {
        let _ = mailbox.exits(kind);
    }
    for antipattern in Antipattern::ALL {
        let _ = mailbox.antipattern(antipattern, false);
    }
    let _ = mailbox.order(&Order::Ping);
}
