//! Secrets in texts: keys, passwords, tokens, userinfo of addresses. They are removed where a text enters (a VM's command line,
//! XML, logs, answers of monitors, what people paste, vmtax's own arguments), so that no recording, report or message has them.
//!
//! A secret is found by its place: behind a name (`password=`, `X-Auth-Token:`, `--token`), in the authority or the query of an
//! address, within an element of XML; some by their form alone. A name that only refers to one (`password-secret=ID`), a switch
//! (`password=on`) and a variable (`$TOKEN`) stay. A text keeps its structure: JSON, XML and lists of options stay readable.

mod addresses;
mod assignments;
mod forms;
mod markup;
mod names;
mod options;

use std::borrow::Cow;
use std::ops::Range;

/// Text in the place of a secret. A shell, JSON, XML, TOML and an address take it as it is.
pub const SECRET_REMOVED: &str = "SECRET-REMOVED";

/// Returns a text with [`SECRET_REMOVED`] in the place of each secret: a line or a file of any kind.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut found = Found::new(text, false);
    found.find();
    found.removed()
}

/// Returns the words of a command line, as a program gets them, with [`SECRET_REMOVED`] in the place of each secret.
pub fn words_without_secrets(words: &[String]) -> Vec<String> {
    let values = options::values_of_words(words);
    let words = words.iter().zip(values);
    words
        .map(|(word, value)| {
            let mut found = Found::new(word, true);
            found.find();
            found.ranges.extend(value);
            found.removed().into_owned()
        })
        .collect()
}

/// The secrets in a text.
struct Found<'a> {
    text: &'a str,
    /// True for one word of a command line: blanks and quotes are part of a value.
    is_word: bool,
    /// Places of the secrets, in bytes, in any order.
    ranges: Vec<Range<usize>>,
}

impl<'a> Found<'a> {
    fn new(text: &'a str, is_word: bool) -> Found<'a> {
        Found {
            text,
            is_word,
            ranges: Vec::new(),
        }
    }

    fn find(&mut self) {
        self.find_assignments();
        self.find_addresses();
        self.find_options();
        self.find_markup();
        self.find_forms();
    }

    /// Adds a secret; not an empty one, nor one that was removed before.
    fn add(&mut self, range: Range<usize>) {
        let value = self.text.get(range.clone()).unwrap_or_default();
        if !value.is_empty() && value != SECRET_REMOVED {
            self.ranges.push(range);
        }
    }

    /// The text without what was found.
    fn removed(mut self) -> Cow<'a, str> {
        if self.ranges.is_empty() {
            return Cow::Borrowed(self.text);
        }
        self.ranges.sort_by_key(|range| (range.start, range.end));
        let (mut text, mut end) = (String::with_capacity(self.text.len()), 0);
        for range in self.ranges {
            if range.start >= end {
                text += self.text.get(end..range.start).unwrap_or_default();
                text += SECRET_REMOVED;
            }
            end = end.max(range.end);
        }
        text += self.text.get(end..).unwrap_or_default();
        Cow::Owned(text)
    }
}

/// A part of a text around a place in it, at most `most` bytes to each side.
fn around(text: &str, range: Range<usize>, most: usize) -> &str {
    let mut from = range.start.saturating_sub(most);
    let mut to = range.end.saturating_add(most).min(text.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    while !text.is_char_boundary(to) {
        to -= 1;
    }
    text.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests;
