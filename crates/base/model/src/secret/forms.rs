//! Secrets that are known by their form or place: private keys, hashes of passwords, tokens of services, lists of `chpasswd`;
//! userinfo of addresses and values in a query that sign or allow; in XML `<password>…</password>`,
//! `<qemu:env name='TOKEN' value='…'/>`, values that a domain hands to its firmware.

use super::found::Found;
use super::found::{
    begins_harmless, is_harmless, is_material, is_secret, is_secret_of_query, is_variable,
};
use std::ops::Range;

/// Begins of tokens, with the number of bytes that they have at least.
const TOKENS: [(&str, usize); 9] = [
    ("AKIA", 20),
    ("ASIA", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 40),
    ("glpat-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
];

/// Kinds of hashes of crypt(5).
const HASHES: [&str; 10] = ["1", "2a", "2b", "2y", "5", "6", "7", "gy", "y", "argon2id"];

impl Found<'_> {
    pub(super) fn find_forms(&mut self) {
        self.find_private_keys();
        self.find_hashes();
        self.find_tokens();
        self.find_password_lists();
    }

    fn find_private_keys(&mut self) {
        let text = self.text;
        let mut end = 0;
        for (at, begin) in text.match_indices("-----BEGIN ") {
            let label = &text[at + begin.len()..];
            let label = label.split("-----").next().unwrap_or_default();
            if at < end || !label.ends_with("PRIVATE KEY") || label.contains('\n') {
                continue;
            }
            let from = at + begin.len() + label.len();
            let length = text[from..].find("-----END").unwrap_or(text.len() - from);
            end = from + length;
            self.add((from + 5).min(end)..end);
        }
    }

    fn find_hashes(&mut self) {
        let text = self.text;
        let mut end = 0;
        for (at, _) in text.match_indices('$') {
            if at < end {
                continue;
            }
            let kind = text[at + 1..].split('$').next().unwrap_or_default();
            if !HASHES.contains(&kind) {
                continue;
            }
            let rest = text.get(at + kind.len() + 2..).unwrap_or_default();
            let is_part = |c: char| c.is_ascii_alphanumeric() || "./$,=+".contains(c);
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            if length >= 16 {
                end = at + kind.len() + 2 + length;
                self.add(at..end);
            }
        }
    }

    fn find_tokens(&mut self) {
        let text = self.text;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+/=_.-".contains(c);
        let mut is_bearer = false;
        let mut from = 0;
        for word in text.split(|c| !is_part(c)) {
            let begin = from;
            from += word.len()
                + text[from + word.len()..]
                    .chars()
                    .next()
                    .map_or(0, char::len_utf8);
            if word.is_empty() {
                continue;
            }
            let has_begin = |(begin, least): &(&str, usize)| {
                word.starts_with(begin) && word.len() >= *least && is_material(word)
            };
            // Of Ceph; of JSON Web Tokens.
            let is_ceph = word.len() == 40 && word.starts_with("AQ") && word.ends_with("==");
            let is_jwt = word.starts_with("eyJ") && word.matches('.').count() == 2;
            if is_ceph || is_jwt || TOKENS.iter().any(has_begin) || is_bearer && is_material(word) {
                self.add(begin..begin + word.len());
            }
            is_bearer = word.eq_ignore_ascii_case("bearer");
        }
    }

    /// Finds the lines `USER:PASSWORD` below `chpasswd:` of cloud-init.
    fn find_password_lists(&mut self) {
        let mut from = 0;
        let mut indent = None;
        for line in self.text.split_inclusive('\n') {
            let begin = from;
            from += line.len();
            let content = line.trim();
            let depth = line.len() - line.trim_start().len();
            if content.starts_with("chpasswd:") {
                indent = Some(depth);
                continue;
            }
            if indent.is_some_and(|indent| depth <= indent && !content.is_empty()) {
                indent = None;
            }
            let password = content.split_once(':').map(|(_, rest)| rest);
            let password = password.filter(|rest| !rest.is_empty() && !rest.starts_with(' '));
            if let (Some(_), Some(password)) = (indent, password) {
                let end = begin + depth + content.len();
                self.add(end - password.len()..end);
            }
        }
    }
}

/// A longer authority is not read.
const MAX_AUTHORITY: usize = 1024;

/// Bytes that end an address.
fn is_end(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'<>`".contains(&byte)
}

impl Found<'_> {
    /// Finds the userinfo of each address, and values of its query.
    pub(super) fn find_addresses(&mut self) {
        // JSON may escape slashes; dracut's `netroot=iscsi:` has none.
        for sign in ["://", ":\\/\\/"] {
            let (mut from, mut queries_end) = (0, 0);
            while let Some(at) = self.text.get(from..).and_then(|rest| rest.find(sign)) {
                let begin = from + at + sign.len();
                let has_scheme =
                    self.text[..from + at].ends_with(|c: char| c.is_ascii_alphanumeric());
                from = begin;
                if has_scheme {
                    let end = self.userinfo(begin);
                    // An address in the query of another: that has its own, too.
                    if end >= queries_end {
                        queries_end = self.find_in_query(end);
                    }
                }
            }
        }
        for (at, scheme) in self.text.match_indices("iscsi:") {
            let begin = at + scheme.len();
            if !self.text[begin..].starts_with("//") {
                self.userinfo(begin);
            }
        }
    }

    /// Adds the userinfo of the authority that begins here; gives the end of the authority.
    fn userinfo(&mut self, begin: usize) -> usize {
        let bytes = self.text.as_bytes();
        let (mut at, mut authority, mut sign) = (begin, None, None);
        while let Some(byte) = bytes.get(at).filter(|_| at - begin < MAX_AUTHORITY) {
            match byte {
                byte if is_end(*byte) => break,
                // QEMU doubles a comma within a value.
                b',' if bytes.get(at + 1) == Some(&b',') => at += 1,
                b',' | b'\\' => break,
                b'/' | b'?' | b'#' if authority.is_none() => {
                    authority = Some(at);
                    // A password may have such a letter, the number of a port not.
                    let has_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
                    let port = self.text[begin..at].rsplit_once(':').map(|(_, port)| port);
                    if sign.is_some() || port.is_none_or(has_port) {
                        break;
                    }
                }
                b':' if bytes[at..].starts_with(b"://") => break,
                b'@' => sign = Some(at),
                _ => {}
            }
            at += 1;
        }
        let Some(sign) = sign else {
            return authority.unwrap_or(at).min(bytes.len());
        };
        let info = &self.text[begin..sign];
        if !info.split(':').all(is_variable) {
            self.add(begin..sign);
        }
        sign + 1
    }

    /// Adds the values of a query that sign or allow; the query is behind this place. Gives the end of the address.
    fn find_in_query(&mut self, from: usize) -> usize {
        let bytes = self.text.as_bytes();
        let is_inside = |at: usize| {
            let next_is_comma = || bytes.get(at + 1) == Some(&b',');
            let before_is_comma = || at > 0 && bytes[at - 1] == b',';
            !is_end(bytes[at]) && (bytes[at] != b',' || next_is_comma() || before_is_comma())
        };
        let end = (from..bytes.len()).find(|at| !is_inside(*at));
        let end = end.unwrap_or(bytes.len());
        let Some(query) = self
            .text
            .get(from..end)
            .and_then(|rest| rest.find(['?', '#']))
        else {
            return end;
        };
        let mut begin = from + query + 1;
        while begin < end {
            let length = bytes[begin..end].iter().position(|b| b"&;#?".contains(b));
            let stop = length.map_or(end, |length| begin + length);
            let part = self.text.get(begin..stop).unwrap_or_default();
            match part.split_once('=') {
                Some((name, value)) if is_secret_of_query(name) && !is_harmless(value) => {
                    self.add(stop - value.len()..stop);
                }
                // A token without a name.
                None if is_material(part) => self.add(begin..stop),
                _ => {}
            }
            begin = stop + 1;
        }
        end
    }
}

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
