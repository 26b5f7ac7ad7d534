//! Kernels, modules and QEMUs of guests, mounts of the host, the memory of a micro-guest, and the messages of an agent.

use crate::scratch;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use vmtax_guests::kernel::{self, bzimage};
use vmtax_model::{Antipattern, DiskBus};
use vmtax_observe::uprobes;
use vmtax_vm::micro_guest::layout::{MAILBOX, RAM_BYTES, TABLE, words};
use vmtax_vm::micro_guest::{ExitKind, Mailbox, Order};
use vmtax_vm::mounts;
use vmtax_vmm::disk_probe_points;
use vmtax_wire::{Bytes, Decoder, Frame, Reply, Request, encode};

/// A kernel that a person names may be any file.
pub fn bzimage(image: &[u8]) {
    match bzimage::parse(image) {
        Ok(header) => assert!(
            !header.release.is_empty() && !header.release.contains('/'),
            "a release names a folder"
        ),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A module in a folder that a person names may be any file.
pub fn modinfo(module: &[u8]) {
    if let Ok(info) = kernel::modinfo(module) {
        assert!(
            info.depends
                .iter()
                .all(|name| !name.is_empty() && !name.contains('-'))
        );
    }
}

/// A QEMU that a person names may be any file.
pub fn qemu_points(binary: &[u8]) {
    let (probes, missing) = uprobes(
        disk_probe_points(DiskBus::VirtioBlk),
        &scratch::file("qemu", binary),
    );
    assert!(probes.iter().all(|probe| !probe.fields.is_empty()));
    assert!(!probes.is_empty() || !missing.is_empty());
}

/// Mounts of the host, whose names people choose: never a panic, and no mount that no line has.
pub fn mountinfo(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let all = mounts(text);
    assert!(all.len() <= text.lines().count());
}

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

/// Memory that a micro-guest leaves: the first words are its mailbox (after the clock's cells), the others its
/// table.
pub fn micro(data: &[u8]) {
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

/// Messages of a guest's agent: no bytes may bring the controller down, and what passes the checks survives a round trip.
pub fn wire(data: &[u8]) {
    // As a stream, in pieces whose size the input chooses.
    let piece = data.first().map_or(1, |b| usize::from(*b) + 1);
    let mut decoder = Decoder::new();
    for bytes in data.chunks(piece) {
        decoder.push(bytes);
        while let Some(frame) = decoder.frame::<Reply>() {
            if let Ok(Frame::Message(reply)) = frame {
                let _ = reply.checked();
            }
        }
    }

    // As a payload: a fuzzer hardly ever guesses a checksum.
    let Ok(Ok(reply)) = serde_json::from_slice(data).map(Reply::checked) else {
        return;
    };
    let mut decoder = Decoder::new();
    decoder.push(&encode(&reply).expect("what was read can be written"));
    let again = decoder
        .frame::<Reply>()
        .expect("a whole frame")
        .expect("a sound frame");
    assert_eq!(again, Frame::Message(reply));
}

/// Commands that the agent is asked to run: no bytes may bring it down, and words come through byte for byte.
pub fn launch(data: &[u8]) {
    let word = Bytes::from(OsStr::from_bytes(data));
    let json = serde_json::to_vec(&word).expect("any bytes can be written");
    assert_eq!(
        serde_json::from_slice::<Bytes>(&json).expect("what was written can be read"),
        word
    );

    let Ok(request) = serde_json::from_slice::<Request>(data) else {
        return;
    };
    let json = serde_json::to_vec(&request).expect("what was read can be written");
    assert_eq!(
        serde_json::from_slice::<Request>(&json).expect("what was written can be read"),
        request
    );
}
