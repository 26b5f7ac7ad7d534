//! A kernel that a person names may be any file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_guests::kernel::bzimage;

fuzz_target!(|image: &[u8]| {
    match bzimage::parse(image) {
        Ok(header) => assert!(!header.release.is_empty() && !header.release.contains('/'), "a release names a folder"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
