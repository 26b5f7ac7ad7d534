//! What is mounted on the host, where people choose the names: never a panic, and no mount that no line has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_vm::mounts;

fuzz_target!(|text: &str| {
    let all = mounts(text);
    assert!(all.len() <= text.lines().count());
});
