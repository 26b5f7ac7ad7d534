//! A stranger's folded stacks: what was read is written and read again as the same.

use std::path::Path;
use vmtax_profile::fold::{fold, unfold};

pub fn run(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(profile) = unfold(text, Path::new("fuzzed")) else {
        return;
    };
    let again =
        unfold(&fold(&profile).join("\n"), Path::new("fuzzed")).expect("what was folded here");
    assert_eq!(again.total(), profile.total());
}
