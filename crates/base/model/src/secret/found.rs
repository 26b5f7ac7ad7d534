//! The places of secrets in a text, names of secrets, values that are none, and the text without its secrets.

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

/// Words that end the name of a secret, also without a sign before them: `cipassword`, `PGPASSWORD`, `accessToken`.
const ENDS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "authkey",
    "secretkey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "bearer",
    "cookie",
];
/// The last of several parts of a secret's name: `DB_PASS`, `X-Amz-Signature`.
const LAST_PARTS: [&str; 6] = ["pass", "pwd", "pw", "sig", "signature", "credentials"];
/// Parts before `key` in the name of a secret, also in lower case: `s3_key`, `auth-key`.
const KEYS: [&str; 20] = [
    "access",
    "account",
    "api",
    "auth",
    "ceph",
    "client",
    "deploy",
    "encryption",
    "luks",
    "master",
    "private",
    "s3",
    "secret",
    "server",
    "service",
    "session",
    "shared",
    "signing",
    "storage",
    "subscription",
];
/// Parts before `KEY` in the name of what anybody may know.
const PUBLIC: [&str; 6] = ["public", "pub", "primary", "foreign", "sort", "hot"];
/// Ends of names that refer to a secret by the ID of another object.
const REFERENCES: [&str; 3] = ["key-secret", "password-secret", "cookie-secret"];
/// Parts of the names in an address's query behind which a secret is.
const QUERY_PARTS: [&str; 13] = [
    "auth", "cred", "hmac", "jwt", "key", "pass", "pwd", "secret", "session", "sig", "ticket",
    "token", "cookie",
];

/// Returns true for the name of a secret: of an option, a variable of the environment, a header, a key of YAML or JSON.
pub(super) fn is_secret(name: &str) -> bool {
    let lower = name.trim_start_matches(['-', '.']).to_ascii_lowercase();
    if REFERENCES.iter().any(|end| lower.ends_with(end)) {
        return false;
    }
    if ENDS.iter().any(|end| lower.ends_with(end)) {
        return true;
    }
    let mut parts = lower.rsplit(['_', '-', '.']);
    let (last, before) = (parts.next().unwrap_or_default(), parts.next());
    let Some(before) = before else {
        return false;
    };
    let is_upper = !name.bytes().any(|b| b.is_ascii_lowercase());
    let is_key = last == "key" && (KEYS.contains(&before) || is_upper && !PUBLIC.contains(&before));
    is_key || LAST_PARTS.contains(&last)
}

/// Returns true for a name in an address's query behind which a secret is.
pub(super) fn is_secret_of_query(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    QUERY_PARTS.iter().any(|part| lower.contains(part))
}

/// Returns true for a value that is no secret: a switch, a variable of a shell, the begin of a list.
pub(super) fn is_harmless(value: &str) -> bool {
    const SWITCHES: [&str; 9] = [
        "on", "off", "yes", "no", "true", "false", "none", "null", "",
    ];
    SWITCHES.contains(&value.trim()) || begins_harmless(value)
}

/// Returns true for the begin of a value that is no secret, whatever is behind it: a variable of a shell, the begin of a list.
pub(super) fn begins_harmless(value: &str) -> bool {
    let value = value.trim();
    // The scheme of an Authorization header.
    let (scheme, rest) = value.split_once(' ').unwrap_or(("", value));
    let is_scheme = ["bearer", "basic", "token"].contains(&scheme.to_ascii_lowercase().as_str());
    let content = if is_scheme { rest.trim() } else { value };
    is_variable(content) || value.starts_with(['{', '['])
}

/// Returns true for a variable of a shell, which is not filled in: `$TOKEN`, `${TOKEN}`, `$(cat FILE)`.
pub(super) fn is_variable(value: &str) -> bool {
    let Some(rest) = value.strip_prefix('$') else {
        return false;
    };
    // A hash of a password begins likewise: `$y$…`.
    let is_hash = rest.bytes().take(4).skip(1).any(|b| b == b'$');
    rest.starts_with(|c: char| c.is_ascii_alphabetic() || "_{(".contains(c)) && !is_hash
}

/// Returns true for text that looks like the material of a key: long, of letters and digits.
pub(super) fn is_material(value: &str) -> bool {
    let of_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b);
    value.len() >= 16
        && !value.starts_with('/')
        && value.bytes().all(of_base64)
        && value.bytes().any(|b| b.is_ascii_digit())
        && value.bytes().any(|b| b.is_ascii_alphabetic())
}
