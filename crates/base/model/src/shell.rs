//! Commands as people copy them.

/// A command as a shell would take it.
pub fn shell_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.iter().map(|w| {
        if !w.is_empty() && w.chars().all(is_plain) {
            w.clone()
        } else {
            format!("'{}'", w.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A part of a path as it stands in a command, unquoted; `None` where no shell takes it in one line.
pub fn shell_path(path: &str) -> Option<String> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,@%+".contains(c);
    let escaped = |c: char| {
        if is_plain(c) {
            String::from(c)
        } else {
            format!("\\{c}")
        }
    };
    (!path.contains(char::is_control)).then(|| path.chars().map(escaped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_obey_is_quoted() {
        let words = ["a", "--x=1", "two words", "", "it's", "$(rm)"].map(str::to_owned);
        assert_eq!(
            shell_line(&words),
            r"a --x=1 'two words' '' 'it'\''s' '$(rm)'"
        );
        assert_eq!(
            shell_path(r"a-qemu\x2d1.scope/b c;d").as_deref(),
            Some(r"a-qemu\\x2d1.scope/b\ c\;d")
        );
        assert_eq!(shell_path("a\nb"), None);
    }
}
