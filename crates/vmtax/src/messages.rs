//! Messages on standard error. A reader of them that went away ends no measurement.

use std::io::Write;
use vmtax_report::printable;

/// Prints a line, which may quote a guest or a stranger's recording.
pub fn note(line: &str) {
    tell(&format!("{}\n", printable(line)));
}

/// Prints a page of the program's own.
pub fn tell(page: &str) {
    let _ = std::io::stderr().write_all(page.as_bytes());
}
