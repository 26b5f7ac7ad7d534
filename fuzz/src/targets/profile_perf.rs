//! A stranger's perf.data: a profile or an error, in bounded memory.

use crate::scratch;
use vmtax_profile::{fold, import};

pub fn run(data: &[u8]) {
    match import(&scratch::file("perf.data", data), None, None, true) {
        Ok(imported) => drop(fold::fold(&imported.found.profile)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
