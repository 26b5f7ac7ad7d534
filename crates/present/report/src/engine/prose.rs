//! Text whose commands stand between backticks.

use crate::text::plain;

/// The parts of a text: whether it is a command, and what it says.
pub fn parts(text: &str) -> impl Iterator<Item = (bool, &str)> {
    text.split('`')
        .enumerate()
        .map(|(i, part)| (i % 2 == 1, part))
        .filter(|(_, part)| !part.is_empty())
}

/// A sentence, and the lines that it ends with, to be copied.
pub fn with_lines(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Text for Markdown: nothing in it is a mark, a tag or a column's end.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (is_command, part) in parts(&plain(text)) {
        if is_command {
            out.push_str(&format!("`{}`", part.replace('|', "\\|")));
            continue;
        }
        for c in part.chars() {
            match c {
                '<' => out.push_str("&lt;"),
                '\\' | '|' | '*' | '[' => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
    }
    if out.starts_with(['#', '+', '-', '>', '=']) {
        out.insert(0, '\\');
    }
    out
}
