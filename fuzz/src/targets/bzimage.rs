//! A kernel that a person names may be any file.

use vmtax_guests::kernel::bzimage;

pub fn run(image: &[u8]) {
    match bzimage::parse(image) {
        Ok(header) => assert!(
            !header.release.is_empty() && !header.release.contains('/'),
            "a release names a folder"
        ),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
