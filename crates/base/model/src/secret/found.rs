//! The places of secrets in a text, and the text without them.

use std::borrow::Cow;
use std::ops::Range;

/// Text in the place of a secret. A shell, JSON, XML, TOML and an address take it as it is.
pub const SECRET_REMOVED: &str = "SECRET-REMOVED";

/// The secrets in a text.
pub(super) struct Found<'a> {
    pub text: &'a str,
    /// True for one word of a command line: blanks and quotes are part of a value.
    pub is_word: bool,
    /// Places of the secrets, in bytes, in any order.
    pub ranges: Vec<Range<usize>>,
}

impl<'a> Found<'a> {
    pub fn new(text: &'a str, is_word: bool) -> Found<'a> {
        Found {
            text,
            is_word,
            ranges: Vec::new(),
        }
    }

    /// Adds a secret; not an empty one, nor one that was removed before.
    pub fn add(&mut self, range: Range<usize>) {
        let value = self.text.get(range.clone()).unwrap_or_default();
        if !value.is_empty() && value != SECRET_REMOVED {
            self.ranges.push(range);
        }
    }

    /// The text without what was found.
    pub fn removed(mut self) -> Cow<'a, str> {
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
pub(super) fn around(text: &str, range: Range<usize>, most: usize) -> &str {
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
