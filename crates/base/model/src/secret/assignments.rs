//! Secrets behind their names: `password=…`, `"password":"…"`, `X-Auth-Token: …`, `passwd='…'`; or the word behind an option: `--token …`,
//! `curl -u …`.

use super::found::{Found, around, is_harmless, is_material, is_secret, is_variable};
use std::ops::Range;

/// A longer name is read from its end.
const MAX_NAME: usize = 64;
/// Bytes before and behind a name in which its context is.
const CONTEXT: usize = 512;

/// Quotes as XML writes them.
const ENTITIES: [&str; 4] = ["&quot;", "&apos;", "&#34;", "&#39;"];

/// A name with what is between it and its value.
struct Name<'a> {
    name: &'a str,
    /// Place of the name.
    range: Range<usize>,
    /// True if the name is in quotes, as JSON has it.
    is_quoted: bool,
    /// True if blanks are between the name and the sign.
    has_blanks: bool,
}

/// Notation of the value behind a name.
enum Form {
    /// In quotes of this kind, each behind so many backslashes.
    Quoted { quote: u8, slashes: usize },
    /// Between entities of XML.
    Entity(&'static str),
    /// Up to the end of the line, as a header has it.
    Line,
    /// Up to a blank, a comma or a quote.
    Plain,
}

impl Found<'_> {
    /// Finds values behind `=` and `:`.
    pub(super) fn find_assignments(&mut self) {
        let bytes = self.text.as_bytes();
        let mut end = 0;
        for (at, sign) in bytes.iter().enumerate() {
            if at < end || *sign != b'=' && *sign != b':' {
                continue;
            }
            let Some(name) = name_before(self.text, at) else {
                continue;
            };
            if !self.may_be_secret(&name, *sign) {
                continue;
            }
            let Some((begin, form)) = self.value_behind(at, &name) else {
                continue;
            };
            let mut first = begin..bytes.len().min(begin + MAX_NAME);
            while !self.text.is_char_boundary(first.end) {
                first.end -= 1;
            }
            let first = self.text.get(first).unwrap_or_default();
            let first_word = first.split(['"', '\'', ',', '<', '\n', '&']).next();
            if is_harmless(first_word.unwrap_or_default()) {
                continue;
            }
            // This name has other meanings, too.
            if name.name.eq_ignore_ascii_case("key") && !self.is_key(begin, &name) {
                continue;
            }
            end = self.end_of_value(begin, &form, &name);
            self.add(begin..end);
        }
    }

    /// Returns true if a secret may be behind this name.
    fn may_be_secret(&self, name: &Name<'_>, sign: u8) -> bool {
        let bytes = self.text.as_bytes();
        let before = name.range.start.checked_sub(1).map(|at| bytes[at]);
        let is_behind_comma = || before == Some(b',');
        let next = || self.text.as_bytes().get(name.range.end + 1);
        match name.name.to_ascii_lowercase().as_str() {
            // `-object secret,data=…`
            "data" => around(self.text, name.range.clone(), CONTEXT).contains("secret"),
            // `-fw_cfg name=opt/…,string=…`
            "string" => sign == b'=' && is_behind_comma(),
            // `-smbios type=11,value=…`
            "value" => sign == b'=' && is_behind_comma() && self.in_word(name).contains("type=11"),
            // `rbd:POOL/IMAGE:key=…`
            "key" => true,
            // `openssl -pass pass:…`
            "pass" => sign == b':' && next().is_some_and(|b| !b.is_ascii_whitespace()),
            // A file of them.
            "credentials" => next() != Some(&b'/'),
            _ => is_secret(name.name),
        }
    }

    /// Returns true if the value of a plain `key` is a secret: of Ceph's RBD, or what looks like a key.
    fn is_key(&self, begin: usize, name: &Name<'_>) -> bool {
        let value = around(self.text, begin..begin, MAX_NAME);
        let value = value.get(begin.min(MAX_NAME)..).unwrap_or_default();
        let is_end = |c: char| c.is_whitespace() || "\"',<>&:;\\".contains(c);
        let length = value.find(is_end).unwrap_or(value.len());
        is_material(&value[..length]) || self.in_word(name).contains("rbd")
    }

    /// The word up to a name.
    fn in_word(&self, name: &Name<'_>) -> &str {
        let before = around(self.text, name.range.start..name.range.start, CONTEXT);
        let length = name.range.start.min(CONTEXT);
        let before = before.get(..length).unwrap_or(before);
        before
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default()
    }

    /// The begin of the value behind the sign at a place, and its form; `None` where there is none.
    fn value_behind(&self, at: usize, name: &Name<'_>) -> Option<(usize, Form)> {
        let bytes = self.text.as_bytes();
        let is_colon = bytes[at] == b':';
        let mut begin = at + 1;
        if is_colon && bytes[begin..].starts_with(b"//") || bytes.get(begin) == Some(&b':') {
            return None;
        }
        if is_colon || name.has_blanks {
            let blanks = bytes[begin..].iter();
            begin += blanks.take_while(|b| **b == b' ' || **b == b'\t').count();
        }
        let slashes = bytes[begin..].iter().take_while(|b| **b == b'\\').count();
        if let Some(quote @ (b'"' | b'\'')) = bytes.get(begin + slashes).copied() {
            return Some((begin + slashes + 1, Form::Quoted { quote, slashes }));
        }
        for entity in ENTITIES {
            if bytes[begin..].starts_with(entity.as_bytes()) {
                return Some((begin + entity.len(), Form::Entity(entity)));
            }
        }
        // JSON: a number, an object.
        if is_colon && name.is_quoted {
            return None;
        }
        let is_line = is_colon && begin > at + 1 && !name.name.eq_ignore_ascii_case("key");
        Some((begin, if is_line { Form::Line } else { Form::Plain }))
    }

    /// The end of a value.
    fn end_of_value(&self, begin: usize, form: &Form, name: &Name<'_>) -> usize {
        match form {
            Form::Quoted { quote, slashes } => self.end_of_quoted(begin, *quote, *slashes),
            Form::Entity(entity) => {
                let end = self.text.get(begin..).and_then(|rest| rest.find(entity));
                end.map_or(self.text.len(), |end| begin + end)
            }
            Form::Line => self.end_of_line(begin),
            Form::Plain => self.end_of_plain(begin, name),
        }
    }

    /// A value in quotes, which may themselves be escaped, with what a shell joins to it.
    fn end_of_quoted(&self, begin: usize, quote: u8, slashes: usize) -> usize {
        let bytes = self.text.as_bytes();
        let (mut at, mut run) = (begin, 0);
        while let Some(byte) = bytes.get(at) {
            if *byte == quote && (run == slashes || quote == b'\'' && slashes == 0) {
                break;
            }
            run = if *byte == b'\\' { run + 1 } else { 0 };
            // Within plain quotes a pair of backslashes is one that escapes nothing.
            run = if slashes == 0 && run == 2 { 0 } else { run };
            at += 1;
        }
        let closing = at.min(bytes.len());
        let end = closing
            - if closing < bytes.len() {
                run.min(slashes)
            } else {
                0
            };
        let is_joined = |next: &u8| next.is_ascii_alphanumeric() || b"'\"$+-_.".contains(next);
        let is_shells = slashes == 0 && begin > 1 && bytes[begin - 2] == b'=';
        if is_shells && bytes.get(closing + 1).is_some_and(is_joined) {
            let rest = bytes[closing + 1..].iter();
            let rest = rest.take_while(|b| !b.is_ascii_whitespace() && !b",<>}])".contains(b));
            return closing + 1 + rest.count();
        }
        end.max(begin)
    }

    /// The end of a value that is not in quotes.
    fn end_of_plain(&self, begin: usize, name: &Name<'_>) -> usize {
        let bytes = self.text.as_bytes();
        let before = name.range.start.checked_sub(1).map(|at| bytes[at]);
        let is_query = matches!(before, Some(b'?' | b'&'));
        let is_rbd = self.in_word(name).contains("rbd");
        let mut at = begin;
        while let Some(byte) = bytes.get(at) {
            let next = bytes.get(at + 1);
            match byte {
                // QEMU doubles a comma within a value.
                b',' if next == Some(&b',') => at += 1,
                b',' => break,
                b'\\' if !self.is_word && matches!(next, Some(b'"' | b'\'' | b'n' | b'r')) => break,
                b'\\' if next.is_some_and(u8::is_ascii) => at += 1,
                b':' if is_rbd => break,
                b'&' if is_query || is_entity(&bytes[at..]) => break,
                b'"' | b'\'' | b'<' | b'>' | b'`' if !self.is_word => break,
                byte if byte.is_ascii_whitespace() => {
                    if !self.is_part_of_value(at) {
                        break;
                    }
                    let blanks = bytes[at + 1..].iter();
                    at += blanks.take_while(|b| b.is_ascii_whitespace()).count();
                }
                _ => {}
            }
            at += 1;
        }
        at.min(bytes.len())
    }

    /// Returns true if a blank in a word is part of a value: no other assignment or option is behind it.
    fn is_part_of_value(&self, at: usize) -> bool {
        let rest = self.text.as_bytes()[at..].iter();
        let mut next = rest
            .skip_while(|b| b.is_ascii_whitespace())
            .take_while(|b| !b.is_ascii_whitespace())
            .peekable();
        self.is_word && next.peek() != Some(&&b'-') && !next.any(|b| *b == b'=' || *b == b':')
    }

    /// The end of a header or a value of YAML: of the line, or of the quotes around it.
    fn end_of_line(&self, begin: usize) -> usize {
        let bytes = self.text.as_bytes();
        let before = &bytes[begin.saturating_sub(CONTEXT)..begin];
        let before = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
        let is_open = |quote: u8| before.iter().filter(|b| **b == quote).count() % 2 == 1;
        let (double, single) = (is_open(b'"'), is_open(b'\''));
        let is_inside = |b: &&u8| match **b {
            b'\n' | b'\r' | b'<' => false,
            b'"' => !double,
            b'\'' => !single,
            _ => true,
        };
        let mut end = begin + bytes[begin..].iter().take_while(is_inside).count();
        // The quotes may be escaped.
        while end > begin && bytes[end - 1] == b'\\' && bytes.get(end) == Some(&b'"') {
            end -= 1;
        }
        end
    }
}

/// Returns true if bytes begin with a quote as XML writes it.
fn is_entity(bytes: &[u8]) -> bool {
    ENTITIES
        .iter()
        .any(|entity| bytes.starts_with(entity.as_bytes()))
}

/// The name before the sign at a place.
fn name_before(text: &str, at: usize) -> Option<Name<'_>> {
    let bytes = text.as_bytes();
    let mut end = at;
    while end > 0 && bytes[end - 1] == b' ' && at - end < 4 {
        end -= 1;
    }
    let has_blanks = end < at;
    let mut is_quoted = end > 0 && matches!(bytes[end - 1], b'"' | b'\'');
    if ENTITIES
        .iter()
        .any(|entity| bytes[..end].ends_with(entity.as_bytes()))
    {
        is_quoted = true;
        end = text[..end].rfind('&').unwrap_or(0);
    } else if is_quoted {
        end -= 1;
        while end > 0 && bytes[end - 1] == b'\\' {
            end -= 1;
        }
    }
    let is_part = |b: &&u8| b.is_ascii_alphanumeric() || b"_-.".contains(b);
    let length = bytes[..end].iter().rev().take(MAX_NAME).take_while(is_part);
    let begin = end - length.count();
    (begin < end).then(|| Name {
        name: &text[begin..end],
        range: begin..end,
        is_quoted,
        has_blanks,
    })
}

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
