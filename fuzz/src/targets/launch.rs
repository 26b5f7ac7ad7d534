//! Commands that the agent is asked to run: no bytes may bring it down, and words come through byte for byte.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use vmtax_wire::{Bytes, Request};

pub fn run(data: &[u8]) {
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
