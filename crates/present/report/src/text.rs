//! Text from recordings and guests made harmless for a terminal, and prose laid out for its width; texts put together, items once
//! each or in groups.

use std::borrow::Borrow;
use textwrap::{Options, WordSplitter};

/// One line without anything that a terminal would obey or that would reorder the text: control characters (C0, C1,
/// DEL), line breaks and bidirectional overrides become visible or a space.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
            '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// A page without control characters (line breaks stay) and bidirectional overrides.
pub fn printable(page: &str) -> String {
    page.split('\n').map(plain).joined("\n")
}

/// `text` in lines of at most `width` columns, the first after `first`, the others after `other`. A path that is longer than a line
/// is broken behind a slash.
pub fn wrapped(text: &str, width: usize, first: &str, other: &str) -> String {
    // Options of commands have hyphens: not to be broken there.
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(other);
    let options = options.word_splitter(WordSplitter::NoHyphenation);
    let room = width.saturating_sub(columns(first).max(columns(other)));
    let words = plain(text);
    let words = words.split(' ').map(|word| path_pieces(word, room));
    let mut lines = textwrap::fill(&words.joined(" "), options);
    lines.push('\n');
    lines
}

/// A path that is wider than `room` in pieces that end with a slash, as words: a piece and the next one do not fit into one line,
/// so that no blank is seen between them. Other words stay whole.
fn path_pieces(word: &str, room: usize) -> String {
    if columns(word) <= room || !word.contains('/') {
        return word.to_owned();
    }
    let mut pieces = vec![String::new()];
    for part in word.split_inclusive('/') {
        match pieces.last_mut() {
            Some(piece) if piece.is_empty() || columns(piece) + columns(part) <= room => {
                piece.push_str(part);
            }
            _ => pieces.push(part.to_owned()),
        }
    }
    pieces.join(" ")
}

/// A shell's command line that can be pasted as it stands: in one line where it fits after `first`, else below it, broken
/// between words that a shell separates, each but the last line ending with a backslash. A longer word stays whole. A comment
/// behind it, which a backslash does not continue, gets lines of its own.
pub fn command_lines(command: &str, width: usize, first: &str) -> String {
    let command = plain(command);
    if columns(first) + columns(&command) <= width {
        return format!("{first}{command}\n");
    }
    let indent = if first.trim().is_empty() { first } else { "  " };
    let mut lines = vec![indent.to_owned()];
    let words = shell_words(&command);
    let comment = words.iter().position(|word| word.starts_with('#'));
    let (words, comment) = words.split_at(comment.unwrap_or(words.len()));
    for word in words {
        let last = lines
            .last_mut()
            .filter(|line| columns(line) + columns(word) + " \\".len() < width);
        match last {
            Some(line) if line.trim().is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(format!("{indent}  {word}")),
        }
    }
    lines.retain(|line| !line.trim().is_empty());
    let head = only_if(!first.trim().is_empty(), format!("{}\n", first.trim_end()));
    let comment = comment.join(" ");
    let comment = match comment.trim_start_matches('#').trim_start() {
        "" => String::new(),
        text => wrapped(text, width, &format!("{indent}# "), &format!("{indent}# ")),
    };
    let command = only_if(!lines.is_empty(), lines.join(" \\\n") + "\n");
    format!("{head}{command}{comment}")
}

/// The words of a command line, with their quotes.
fn shell_words(command: &str) -> Vec<&str> {
    let mut quote = None;
    let words = command.split(move |c: char| {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        quote.is_none() && c == ' '
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// `text` in lines of at most `width` columns for a table's cell: broken between words only.
pub fn cell(text: &str, width: usize) -> String {
    textwrap::fill(
        &plain(text),
        Options::new(width).word_splitter(WordSplitter::NoHyphenation),
    )
}

/// A titled list, each item after `bullet`; nothing where there is no item. An item's further lines are to be copied.
pub fn section(out: &mut String, title: &str, items: &[String], bullet: &str, width: usize) {
    if items.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    for item in items {
        let mut lines = item.split('\n');
        let sentence = lines.next().unwrap_or_default();
        *out += &wrapped(sentence, width, bullet, "  ");
        lines.for_each(|line| *out += &command_lines(line, width, "    "));
    }
}

/// Returns `text` where a condition holds, otherwise an empty one.
pub fn only_if<T: Default>(holds: bool, text: T) -> T {
    if holds { text } else { T::default() }
}

/// Texts that become one.
pub trait Joined {
    /// Returns the texts one after the other, with a text between each two.
    fn joined(self, gap: &str) -> String;
}

impl<S: Borrow<str>, I: Iterator<Item = S>> Joined for I {
    fn joined(self, gap: &str) -> String {
        self.collect::<Vec<S>>().join(gap)
    }
}

/// "a, b and c".
pub fn listed(parts: &[String]) -> String {
    match parts {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => parts.concat(),
    }
}

/// Returns each item once, in the order in which they first appear.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Returns the items of each key together, keys in the order in which they first appear.
pub fn grouped<K: PartialEq, T>(pairs: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, items)) => items.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// The parts of a text whose commands stand between backticks: whether each is a command, and what it says.
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
        match self.0 {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
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
    fn a_path_that_is_longer_than_a_line_is_broken_behind_a_slash() {
        let path = "/sys/fs/cgroup/machine.slice/machine-qemu-1-web01.scope/libvirt/emulator";
        let lines = wrapped(&format!("limit of {path}, in the file"), 40, "- ", "  ");
        let expected = "- limit of /sys/fs/cgroup/machine.slice/\n  machine-qemu-1-web01.scope/libvirt/\n  emulator, in the file\n";
        assert_eq!(lines, expected);
        // One that fits into a line of its own stays whole.
        assert!(wrapped(&format!("limit of {path}"), 80, "", "").contains(path));
        for width in 1..90 {
            let words = format!("limit of {path} and /one/two");
            let all = wrapped(&words, width, "", "");
            let without = |text: &str| text.replace([' ', '\n'], "");
            assert_eq!(without(&all), without(&words), "{width}");
        }
    }

    #[test]
    fn nothing_a_terminal_obeys_is_left() {
        let hostile = "a\u{1b}[31mb\u{9b}2Jc\rd\ne\u{7}f\u{202e}g\u{7f}";
        let text = plain(hostile);
        assert!(
            !text.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
        assert!(text.contains("[31mb") && text.contains("d e"), "{text:?}");
    }

    #[test]
    fn a_long_command_is_broken_where_a_shell_joins_it_again() {
        let command = "vmtax exec --memory 2G --kernel ./vmlinux --qemu-arg '-device edu' -- sh -c 'sleep 0.5; echo a b'";
        assert_eq!(
            command_lines("vmtax vms", 80, "Next: "),
            "Next: vmtax vms\n"
        );
        for width in [40, 60, 80] {
            let text = command_lines(command, width, "Next: ");
            assert!(
                text.starts_with("Next:\n  vmtax exec")
                    && text.lines().all(|l| columns(l) <= width),
                "{text}"
            );
            let joined = text.trim_start_matches("Next:").replace("\\\n", "");
            assert_eq!(
                joined.split_whitespace().collect::<Vec<_>>().join(" "),
                command
            );
        }
        let long = format!("vmtax report {}", "x".repeat(60));
        assert_eq!(
            command_lines(&long, 40, "    "),
            format!("    vmtax report \\\n      {}\n", "x".repeat(60))
        );
    }

    #[test]
    fn a_comment_is_not_continued_by_a_backslash() {
        let line = "echo CPUS | sudo tee /sys/fs/cgroup/GROUP/cpuset.cpus # libvirt: virsh vcpupin VM VCPU CPUS --live";
        assert_eq!(command_lines(line, 120, "    "), format!("    {line}\n"));
        assert_eq!(
            command_lines(line, 80, "    "),
            "    echo CPUS | sudo tee /sys/fs/cgroup/GROUP/cpuset.cpus\n    # libvirt: virsh vcpupin VM VCPU CPUS --live\n"
        );
        assert_eq!(
            command_lines(line, 42, ""),
            "echo CPUS | sudo tee \\\n  /sys/fs/cgroup/GROUP/cpuset.cpus\n# libvirt: virsh vcpupin VM VCPU CPUS\n# --live\n"
        );
        assert_eq!(
            command_lines("# one two three four", 12, ""),
            "# one two\n# three four\n"
        );
        let quoted = command_lines("echo 'a # b' c # d", 14, "");
        assert_eq!(quoted, "echo 'a # b' \\\n  c\n# d\n");
    }

    #[test]
    fn no_line_is_too_wide() {
        let text = wrapped(
            &format!("some words {} and more of them", "x".repeat(100)),
            30,
            "! ",
            "  ",
        );
        assert!(text.lines().all(|l| columns(l) <= 30), "{text}");
        assert!(text.starts_with("! some words"));
    }
}
