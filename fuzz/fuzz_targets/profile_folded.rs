//! A stranger's folded stacks: what was read is written and read again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use vmtax_profile::fold::{fold, unfold};

fuzz_target!(|text: &str| {
    let Ok(profile) = unfold(text, Path::new("fuzzed")) else { return };
    let again = unfold(&fold(&profile).join("\n"), Path::new("fuzzed")).expect("what was folded here");
    assert_eq!(again.total(), profile.total());
});
