//! The first bytes of a guest's packet, as probes on QEMU's functions record them: behind the length of its first piece and what
//! its second begins with, eight bytes each.

use vmtax_trace::{Payload, payload, payload_word};

pub fn run(data: &[u8]) {
    let word = |at: usize| {
        data.get(at..at + 8)
            .and_then(|word| word.try_into().ok())
            .map(u64::from_le_bytes)
    };
    let (piece, next) = (word(0), word(8));
    let head = data.get(16..).unwrap_or_default();
    let found = payload(head);
    if let Some(Payload { at, length }) = found {
        // Two headers of the link and the device, the longest of IPv4 and of TCP.
        assert!(
            (14 + 20 + 8..=12 + 14 + 60 + 60).contains(&at),
            "payload at {at}"
        );
        assert!(length <= usize::from(u16::MAX), "{length} bytes");
    }
    let in_head = found.and_then(|Payload { at, .. }| {
        Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?))
    });
    match (payload_word(head, piece, next), found) {
        (Some(_), None) => panic!("a word of a packet without a payload"),
        (Some(word), Some(_)) => assert!(
            Some(word) == in_head || Some(word) == next,
            "a word that is nowhere"
        ),
        _ => {}
    }
    if let Some(word) = payload_word(head, None, None) {
        assert_eq!(Some(word), in_head);
    }
}
