//! Answers of another's QEMU about its processors and their memory, apart by zeros.

use std::time::Duration;
use vmtax_observe::guest_code;
use vmtax_profile::code::findings;

pub fn run(data: &[u8]) {
    let mut answers = data
        .split(|b| *b == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned());
    let sampled = guest_code(
        &[0],
        1_000_000,
        Duration::from_secs(5),
        &|| false,
        &mut |_, _| answers.next(),
    );
    if let Some(code) = findings(&sampled) {
        assert!(
            code.places
                .iter()
                .all(|place| place.share.samples <= code.looks)
        );
    }
}
