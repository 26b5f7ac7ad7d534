//! A histogram from a guest or a file: a distribution or an error, in bounded memory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;
use vmtax_model::Latency;

pub fn run(data: &[u8]) {
    let _ = Latency::from_text(&STANDARD.encode(data));
    // A fuzzer hardly ever guesses a deflate stream: the counts, and what is around them as it should be.
    let Ok(latency) = Latency::from_text(&STANDARD.encode(v2(data))) else {
        return;
    };

    let again = Latency::from_text(&latency.to_text().expect("what was read can be written"));
    assert_eq!(again.as_ref(), Ok(&latency));
    assert_eq!(latency.summary().map_or(0, |s| s.count), latency.count());
    let mut sum = Latency::new();
    sum.add(&latency);
    sum.add(&latency);
    assert_eq!(sum.count(), 2 * latency.count());
}

/// `counts` as the body of a deflated V2 histogram of vmtax's bounds.
fn v2(counts: &[u8]) -> Vec<u8> {
    let mut plain = 0x1c84_9313_u32.to_be_bytes().to_vec();
    for word in [counts.len() as u32, 0, 3] {
        plain.extend(word.to_be_bytes());
    }
    plain.extend(1_u64.to_be_bytes());
    plain.extend(3_600_000_000_000_u64.to_be_bytes());
    plain.extend(1.0_f64.to_be_bytes());
    plain.extend(counts);

    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflated.write_all(&plain).expect("memory");
    let deflated = deflated.finish().expect("memory");
    let mut packed = 0x1c84_9314_u32.to_be_bytes().to_vec();
    packed.extend((deflated.len() as u32).to_be_bytes());
    packed.extend(deflated);
    packed
}
