//! Messages of a guest's agent: no bytes may bring the controller down, and what passes the checks survives a round trip.

use vmtax_wire::{Decoder, Frame, Reply, encode};

pub fn run(data: &[u8]) {
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
