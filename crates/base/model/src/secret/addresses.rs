//! Secrets in addresses: userinfo, and values in a query that sign or allow.

use super::found::Found;
use super::names::{is_harmless, is_material, is_secret_of_query, is_variable};

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
