//! Mounts of the host, whose names people choose: never a panic, and no mount that no line has.

use vmtax_vm::mounts;

pub fn run(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let all = mounts(text);
    assert!(all.len() <= text.lines().count());
}
