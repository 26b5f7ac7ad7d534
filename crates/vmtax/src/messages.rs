//! Messages on standard error. A reader of them that went away ends no measurement.

use std::io::Write;
use vmtax_report::printable;

/// Bytes of each end of a line that is shown of a longer one: it quotes a name that no file can have.
const LINE_END: usize = 2000;

/// Prints a line, which may quote a guest or a stranger's recording.
pub fn note(line: &str) {
    let lines = line.split('\n').map(shortened);
    let line = lines.collect::<Vec<_>>().join("\n");
    tell(&format!("{}\n", printable(&line)));
}

/// A line without its middle, where it is long.
fn shortened(line: &str) -> String {
    if line.len() <= 2 * LINE_END {
        return line.to_owned();
    }
    let begin: String = line.chars().take(LINE_END).collect();
    let end: Vec<char> = line.chars().rev().take(LINE_END).collect();
    begin + " … " + &end.into_iter().rev().collect::<String>()
}

/// Prints a page of the program's own.
pub fn tell(page: &str) {
    let _ = std::io::stderr().write_all(page.as_bytes());
}
