//! Commands as people copy them, and remedies of limits.

use std::io;

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

/// The words of a line as a shell has them: quotes, and backslashes before any character, also before the end of a line. Nothing is
/// expanded. `None` where a quote is open at the end.
pub fn shell_words(line: &str) -> Option<Vec<String>> {
    let (mut all, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut letters = line.chars();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match letters.next() {
                Some('\n') => {}
                // Between double quotes it stands for itself before most.
                Some(next) if quote.is_some() && !matches!(next, '"' | '\\' | '$' | '`') => {
                    word.get_or_insert_default().extend(['\\', next]);
                }
                Some(next) => word.get_or_insert_default().push(next),
                None => {}
            },
            (None, blank) if blank.is_whitespace() => all.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    all.extend(word);
    quote.is_none().then_some(all)
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

/// Returns the remedy for a limit of the process, the memory or a disk that was reached, as the end of a sentence;
/// empty for other errors.
pub fn limit_remedy(error: &io::Error) -> &'static str {
    // By Linux' numbers: not all have an `ErrorKind`.
    match error.raw_os_error() {
        // EIO
        Some(5) => "; `dmesg` says whether the disk or device has errors: use another one",
        // EAGAIN, ENOMEM
        Some(11 | 12) => {
            "; end other programs, or allow this one more processes and memory (`ulimit -a` shows the limits)"
        }
        // ENFILE
        Some(23) => "; allow more open files on this host: sysctl fs.file-max",
        // EMFILE
        Some(24) => "; allow more open files: ulimit -n 4096",
        // EFBIG
        Some(27) => "; allow larger files: ulimit -f unlimited",
        // ENOSPC, EDQUOT
        Some(28 | 122) => "; free space there, or name a directory on another disk with --dir",
        _ => "",
    }
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

    #[test]
    fn what_a_failing_disk_and_a_full_host_give_has_a_remedy() {
        // EIO, EAGAIN, ENOMEM, ENFILE, EMFILE, EFBIG, ENOSPC, EDQUOT
        for number in [5, 11, 12, 23, 24, 27, 28, 122] {
            let remedy = limit_remedy(&io::Error::from_raw_os_error(number));
            assert!(
                remedy.starts_with("; ") && remedy.len() > 20,
                "{number}: {remedy:?}"
            );
        }
        assert_eq!(limit_remedy(&io::ErrorKind::NotFound.into()), "");
    }
}
