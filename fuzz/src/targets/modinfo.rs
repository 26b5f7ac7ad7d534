//! A module in a folder that a person names may be any file.

use vmtax_guests::kernel::modinfo;

pub fn run(module: &[u8]) {
    if let Ok(info) = modinfo::parse(module) {
        assert!(
            info.depends
                .iter()
                .all(|name| !name.is_empty() && !name.contains('-'))
        );
    }
}
