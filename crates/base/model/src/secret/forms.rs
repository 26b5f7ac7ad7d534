//! Secrets that are known by their form alone: private keys, hashes of passwords, tokens of services, lists of `chpasswd`.

use super::found::Found;
use super::names::is_material;

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
