//! Text from recordings and guests made harmless for a terminal, and prose laid out for its width.

use textwrap::{Options, WordSplitter};

/// One line without anything that a terminal would obey or that would reorder the text: control characters (C0, C1,
/// DEL), line breaks and bidirectional overrides become visible or a space.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// A page without control characters (line breaks stay) and bidirectional overrides.
pub fn printable(page: &str) -> String {
    page.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// `text` in lines of at most `width` columns, the first after `first`, the others after `other`.
pub fn wrapped(text: &str, width: usize, first: &str, other: &str) -> String {
    // Options of commands have hyphens: not to be broken there.
    let options = Options::new(width).initial_indent(first).subsequent_indent(other);
    let options = options.word_splitter(WordSplitter::NoHyphenation);
    let mut lines = textwrap::fill(&plain(text), options);
    lines.push('\n');
    lines
}

/// `text` in lines of at most `width` columns for a table's cell: broken between words only.
pub fn cell(text: &str, width: usize) -> String {
    textwrap::fill(&plain(text), Options::new(width).word_splitter(WordSplitter::NoHyphenation))
}

/// A titled list, each item after `bullet`; nothing where there is no item. An item's further lines are to be copied: each
/// stays one, however long.
pub fn section(out: &mut String, title: &str, items: &[String], bullet: &str, width: usize) {
    if items.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    for item in items {
        let mut lines = item.split('\n');
        out.push_str(&wrapped(lines.next().unwrap_or_default(), width, bullet, "  "));
        for line in lines {
            out.push_str(&format!("    {}\n", plain(line)));
        }
    }
}

/// When a recording began, for people: `2026-11-20 14:02 UTC`. The text itself when it is no time.
pub fn when(started: &str) -> String {
    match started.parse::<jiff::Timestamp>() {
        Ok(t) => t.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => started.to_owned(),
    }
}

/// Columns that `text` takes on a terminal.
pub fn columns(text: &str) -> usize {
    textwrap::core::display_width(text)
}

/// `text` cut to `width` columns, the cut marked.
pub fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        if columns(&cut) + textwrap::core::display_width(c.encode_utf8(&mut [0; 4])) + 1 > width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// SGR colours, or nothing.
#[derive(Clone, Copy)]
pub struct Paint(pub bool);

impl Paint {
    /// `text` in the colour with this SGR code.
    pub fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// `text` in bold.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_terminal_obeys_is_left() {
        let hostile = "a\u{1b}[31mb\u{9b}2Jc\rd\ne\u{7}f\u{202e}g\u{7f}";
        let text = plain(hostile);
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        assert!(text.contains("[31mb") && text.contains("d e"), "{text:?}");
    }

    #[test]
    fn no_line_is_too_wide() {
        let text = wrapped(&format!("some words {} and more of them", "x".repeat(100)), 30, "! ", "  ");
        assert!(text.lines().all(|l| columns(l) <= 30), "{text}");
        assert!(text.starts_with("! some words"));
    }
}
