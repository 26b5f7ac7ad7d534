//! Secrets in XML: `<password>…</password>`, `<qemu:env name='TOKEN' value='…'/>`, values that a domain hands to its firmware.

use super::found::Found;
use super::names::{begins_harmless, is_harmless, is_secret};
use std::ops::Range;

impl Found<'_> {
    /// Finds the content of elements whose name, or whose attribute `name` or `key`, is that of a secret.
    pub(super) fn find_markup(&mut self) {
        let text = self.text;
        let mut end = 0;
        for (begin, _) in text.match_indices('<') {
            // In a comment within what was removed.
            if begin < end {
                continue;
            }
            let rest = &text[begin + 1..];
            let Some(length) = rest
                .find(['<', '>'])
                .filter(|at| rest[*at..].starts_with('>'))
            else {
                continue;
            };
            let tag = begin + 1..begin + 1 + length;
            let element = &text[tag.clone()];
            let name = element
                .split([' ', '\t', '\n', '/'])
                .next()
                .unwrap_or_default();
            let name = name.rsplit(':').next().unwrap_or(name);
            let named = attribute(element, "name").or(attribute(element, "key"));
            let named = named.map(|place| &element[place]);
            // Strings of the SMBIOS and files of the firmware hand a guest its credentials.
            let is_entry = name == "entry" && named.is_none_or(|name| name.starts_with("opt/"));
            let is_named = named.is_some_and(is_secret);
            if is_named {
                if let Some(place) = attribute(element, "value") {
                    self.add_content(tag.start + place.start..tag.start + place.end);
                }
            }
            let from = tag.end + 1;
            let first = text[from..].split('<').next().unwrap_or_default();
            if (is_entry || is_named || is_secret(name)) && !begins_harmless(first) {
                end = end_of_content(text, from);
                self.add_content(from..end);
            }
        }
    }

    /// Adds a text without the blanks around it.
    fn add_content(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        let trimmed = text.trim();
        let begin = range.start + (text.len() - text.trim_start().len());
        if !is_harmless(trimmed) {
            self.add(begin..begin + trimmed.len());
        }
    }
}

/// The end of an element's own text, of which comments and CDATA are parts.
fn end_of_content(text: &str, from: usize) -> usize {
    let mut end = from;
    while let Some(at) = text[end..].find('<') {
        let rest = &text[end + at..];
        let close = match rest {
            rest if rest.starts_with("<!--") => "-->",
            rest if rest.starts_with("<![CDATA[") => "]]>",
            _ => return end + at,
        };
        match rest.find(close) {
            Some(length) => end += at + length + close.len(),
            None => return text.len(),
        }
    }
    // No element ends there.
    from
}

/// The place of an attribute's value in a tag.
fn attribute(tag: &str, name: &str) -> Option<Range<usize>> {
    for (at, _) in tag.match_indices(name) {
        let before = tag[..at].chars().next_back();
        let rest = tag[at + name.len()..].trim_start();
        let Some(value) = rest.strip_prefix('=').map(str::trim_start) else {
            continue;
        };
        let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
        let (Some(quote), Some(true)) = (quote, before.map(char::is_whitespace)) else {
            continue;
        };
        let begin = tag.len() - value.len() + 1;
        let length = tag[begin..].find(quote)?;
        return Some(begin..begin + length);
    }
    None
}
