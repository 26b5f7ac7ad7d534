//! Texts and comments of a Rust source file.

/// A string literal or a block of comment lines.
pub struct Piece {
    pub is_comment: bool,
    /// The first of its lines, from 1.
    pub line: usize,
    pub text: String,
}

/// Files of tests and of what only tests use, whose texts nobody reads.
pub fn is_test(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    name.contains("/tests/")
        || name.contains("/synthetic/")
        || file.starts_with("test_")
        || file.ends_with("_tests.rs")
        || ["tests.rs", "testing.rs", "coverage.rs", "simulated.rs"].contains(&file)
}

/// All texts and comments before the file's tests. Lines of one comment are one piece, for phrases go over line ends.
pub fn pieces(source: &str) -> Vec<Piece> {
    let end = source.find("\n#[cfg(test)]\nmod ").unwrap_or(source.len());
    let mut rest = Rest {
        text: &source[..end],
        at: 0,
        line: 1,
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let mut before = '\n';
    while let Some(next) = rest.text[rest.at..].chars().next() {
        let here = &rest.text[rest.at..];
        let line = rest.line;
        if here.starts_with("//") {
            let text = rest.take(here.find('\n').unwrap_or(here.len()));
            let text = text.trim_start_matches(['/', '!']);
            match pieces.last_mut() {
                Some(last)
                    if last.is_comment
                        && last.line + last.text.matches('\n').count() + 1 == line =>
                {
                    last.text.push('\n');
                    last.text.push_str(text);
                }
                _ => pieces.push(Piece {
                    is_comment: true,
                    line,
                    text: text.to_owned(),
                }),
            }
        } else if let Some(hashes) =
            raw(here).filter(|_| !before.is_alphanumeric() && before != '_')
        {
            rest.take(here.find('"').unwrap_or_default() + 1);
            let here = &rest.text[rest.at..];
            let text = rest
                .take(
                    here.find(&format!("\"{}", "#".repeat(hashes)))
                        .unwrap_or(here.len()),
                )
                .to_owned();
            rest.take(hashes + 1);
            pieces.push(Piece {
                is_comment: false,
                line,
                text,
            });
        } else if next == '"' {
            rest.take(1);
            let text = rest.take(closing(&rest.text[rest.at..])).to_owned();
            rest.take(1);
            pieces.push(Piece {
                is_comment: false,
                line,
                text: continued(&text),
            });
        } else if next == '\'' {
            rest.take(character(here));
        } else {
            rest.take(next.len_utf8());
        }
        before = next;
    }
    pieces
}

struct Rest<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Rest<'a> {
    /// The next bytes, as many as there are.
    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = &self.text[self.at..self.text.len().min(self.at + bytes)];
        self.at += taken.len();
        self.line += taken.matches('\n').count();
        taken
    }
}

/// The hashes of a raw string that begins here.
fn raw(here: &str) -> Option<usize> {
    let marks = here.strip_prefix('r')?;
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    marks[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a string's inside.
fn closing(inside: &str) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    inside.len()
}

/// The length of a character literal; of a lifetime's mark, one.
fn character(here: &str) -> usize {
    let inside = &here[1..];
    if inside.starts_with('\\') {
        return here[3..].find('\'').map_or(1, |at| at + 4);
    }
    let width = inside.chars().next().map_or(0, char::len_utf8);
    if inside[width..].starts_with('\'') {
        width + 2
    } else {
        1
    }
}

/// A text whose lines end in `\` is one line.
fn continued(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}
