//! A module in a folder that a person names may be any file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_guests::kernel::modinfo;

fuzz_target!(|module: &[u8]| {
    if let Ok(info) = modinfo::parse(module) {
        assert!(info.depends.iter().all(|name| !name.is_empty() && !name.contains('-')));
    }
});
