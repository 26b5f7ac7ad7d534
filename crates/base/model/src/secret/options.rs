//! Secrets that are the word behind an option: `--token …`, `curl -u …`.

use super::found::Found;
use super::found::{is_harmless, is_secret, is_variable};
use std::ops::Range;

/// Options of programs whose names do not say that a secret is behind them; the secret may be joined to a short one.
const OPTIONS: [(&str, &[&str]); 9] = [
    (
        "curl",
        &[
            "-u",
            "--user",
            "-U",
            "--proxy-user",
            "--pass",
            "--proxy-pass",
            "-b",
            "--tlspassword",
        ],
    ),
    ("sshpass", &["-p"]),
    ("mysql", &["-p"]),
    ("mysqladmin", &["-p"]),
    ("mysqldump", &["-p"]),
    ("mysqlslap", &["-p"]),
    ("mariadb", &["-p"]),
    ("redis-cli", &["-a", "--pass"]),
    ("redis-benchmark", &["-a"]),
];
/// Programs among them whose secret is never a word of its own.
const JOINED_ALONE: [&str; 5] = ["mysql", "mysqladmin", "mysqldump", "mysqlslap", "mariadb"];

/// Reads words in order, and says in which one a secret is, and where.
#[derive(Default)]
struct Reader {
    options: &'static [&'static str],
    is_joined_alone: bool,
    /// True if the next word is a secret.
    is_value_next: bool,
    /// True if that is one only with a colon within: `-u USER:PASSWORD`.
    needs_colon: bool,
}

impl Reader {
    /// Takes the next word; gives the place of the secret in it.
    fn next(&mut self, word: &str) -> Option<Range<usize>> {
        let is_value = std::mem::take(&mut self.is_value_next);
        if is_value && !word.starts_with('-') {
            let is_secret = (!self.needs_colon || word.contains(':')) && !is_harmless(word);
            return is_secret.then_some(0..word.len());
        }
        // Also `exec:curl …` of QEMU's `-incoming`.
        let program = word.rsplit(['/', ':']).next().unwrap_or(word);
        if let Some((name, options)) = OPTIONS.iter().find(|(name, _)| *name == program) {
            self.options = options;
            self.is_joined_alone = JOINED_ALONE.contains(name);
            return None;
        }
        if !word.starts_with('-') || word.contains('=') {
            return None;
        }
        let known = self.options.iter().find(|option| word.starts_with(*option));
        if let Some(option) = known.filter(|option| option.len() == 2 || **option == word) {
            let joined = &word[option.len()..];
            if !joined.is_empty() && !option.starts_with("--") {
                return (!is_variable(joined)).then_some(option.len()..word.len());
            }
            self.is_value_next = !self.is_joined_alone;
            self.needs_colon = ["-u", "--user", "-U", "--proxy-user"].contains(option);
            return None;
        }
        self.is_value_next = is_secret(word);
        self.needs_colon = false;
        None
    }
}

/// The place of the secret in each word of a command line that is the value of an option.
pub(super) fn values_of_words(words: &[String]) -> Vec<Option<Range<usize>>> {
    let mut reader = Reader::default();
    words.iter().map(|word| reader.next(word)).collect()
}

impl Found<'_> {
    /// Finds the values of options in a line of a shell.
    pub(super) fn find_options(&mut self) {
        let text = self.text;
        let mut reader = Reader::default();
        let mut from = 0;
        while let Some(word) = next_word(text, from) {
            let content = unquoted(text, word.clone());
            let has_blank = text[content.clone()].contains(char::is_whitespace);
            // A script in quotes has options of its own: it is read word by word.
            let is_script = has_blank && !reader.is_value_next;
            from = if is_script {
                content.start.max(word.start + 1)
            } else {
                word.end
            };
            let content = if is_script {
                let end = text[from..]
                    .find(char::is_whitespace)
                    .map_or(text.len(), |at| from + at);
                let inner = from..end;
                from = end;
                inner
            } else {
                content
            };
            let inner = text.get(content.clone()).unwrap_or_default();
            if let Some(place) = reader.next(inner) {
                self.add(content.start + place.start..content.start + place.end);
            }
            if inner.ends_with([';', '|', '&']) || text[from..].starts_with('\n') {
                reader = Reader::default();
            }
        }
    }
}

/// The next word from a place on, with its quotes.
fn next_word(text: &str, from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let begin = from + rest.find(|c: char| !c.is_whitespace())?;
    let mut quote = None;
    for (at, letter) in text[begin..].char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') if at == 0 => quote = Some(letter),
            (None, blank) if blank.is_whitespace() => return Some(begin..begin + at),
            _ => {}
        }
    }
    // A quote without its end belongs to the text.
    let end = match quote {
        Some(_) => text[begin..]
            .find(char::is_whitespace)
            .map_or(text.len(), |at| begin + at),
        None => text.len(),
    };
    Some(begin..end)
}

/// A word without the quotes around it, and without the comma that lists have behind it.
fn unquoted(text: &str, word: Range<usize>) -> Range<usize> {
    let content = &text[word.clone()];
    let trimmed = content.trim_end_matches([',', ']', ';', ')']);
    for quote in ['"', '\''] {
        let inner = trimmed
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return word.start + 1..word.start + 1 + inner.len();
        }
    }
    word.start + usize::from(content.starts_with(['"', '\'', '[', '(']))
        ..word.start + trimmed.trim_end_matches(['"', '\'']).len().max(1)
}
