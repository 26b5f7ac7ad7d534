//! The format string of an event, used backwards: from what `printf` made of the arguments to the arguments.

use crate::import::record::Record;

/// Text of an event in the log: literal text and arguments in turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Token>);

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// Argument `n`. `digits` bounds a number that another follows at once.
    Argument {
        n: usize,
        conversion: Conversion,
        digits: Option<usize>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversion {
    Decimal,
    Hexadecimal,
    Octal,
    Pointer,
    Character,
    Text,
}

impl Template {
    /// Takes the format as it stands in `trace-events-all`: string literals and `PRI…` macros. Arguments beyond
    /// `arguments` are none of the event's.
    pub fn parse(format: &str, arguments: usize) -> Template {
        let format = joined(format);
        let mut tokens = Vec::new();
        let mut literal = String::new();
        let mut rest = format.as_str();
        let mut n = 0;
        while let Some(at) = rest.find('%') {
            literal.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlzjtqL".contains(c))
            else {
                break;
            };
            let (modifiers, conversion) = (&rest[..end], rest.as_bytes()[end]);
            rest = &rest[end + 1..];
            // A width that is an argument comes before the one it is the width of.
            n += modifiers.matches('*').count();
            let conversion = match conversion {
                b'x' | b'X' => Conversion::Hexadecimal,
                b'o' => Conversion::Octal,
                b'p' => Conversion::Pointer,
                b'c' => Conversion::Character,
                b's' => Conversion::Text,
                _ => Conversion::Decimal,
            };
            if !literal.is_empty() {
                tokens.push(Token::Literal(std::mem::take(&mut literal)));
            }
            let width: String = modifiers
                .rsplit('.')
                .next()
                .unwrap_or("")
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            let digits = width
                .parse()
                .ok()
                .filter(|&width| width > 0 && rest.starts_with('%'));
            if n < arguments {
                tokens.push(Token::Argument {
                    n,
                    conversion,
                    digits,
                });
            }
            n += 1;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            tokens.push(Token::Literal(literal));
        }
        Template(tokens)
    }

    /// Reads the arguments from a line; `None` when the line is not made from this format.
    pub fn read(&self, line: &str, record: &mut Record) -> Option<()> {
        let mut rest = line;
        let mut tokens = self.0.iter().peekable();
        while let Some(token) = tokens.next() {
            let (n, conversion, digits) = match token {
                Token::Literal(literal) => {
                    // Blanks at the end of a line may have been cut off.
                    rest = match rest.strip_prefix(literal.as_str()) {
                        Some(after) => after,
                        None if tokens.peek().is_none() && rest == literal.trim_end() => "",
                        None => return None,
                    };
                    continue;
                }
                Token::Argument {
                    n,
                    conversion,
                    digits,
                } => (*n, *conversion, *digits),
            };
            let end = match (conversion, tokens.peek()) {
                (Conversion::Text, None) => rest.len(),
                (Conversion::Text, Some(Token::Literal(next))) => match rest.find(next.as_str()) {
                    Some(end) => end,
                    None => rest.trim_end().strip_suffix(next.trim_end())?.len(),
                },
                // The end of the first of two texts is ambiguous.
                (Conversion::Text, Some(Token::Argument { .. })) => {
                    rest.find(' ').unwrap_or(rest.len())
                }
                (Conversion::Character, _) => rest.chars().next().map_or(0, char::len_utf8),
                _ => {
                    let (value, after) = number(rest, conversion, digits)?;
                    record.number(n, value);
                    rest = after;
                    continue;
                }
            };
            let (text, after) = rest.split_at(end);
            match conversion {
                Conversion::Character => record.number(n, text.chars().next().map_or(0, u64::from)),
                _ => record.text(n, text.as_bytes())?,
            }
            rest = after;
        }
        rest.is_empty().then_some(())
    }
}

/// The string literals of a C expression joined, with the macros between them.
fn joined(format: &str) -> String {
    let mut joined = String::new();
    for (n, part) in pieces(format).into_iter().enumerate() {
        if n % 2 == 1 {
            joined.push_str(&part);
            continue;
        }
        for word in part.split_whitespace() {
            // PRIx64 and its like; the letter alone is enough.
            if let Some(letter) = word
                .strip_prefix("PRI")
                .and_then(|word| word.chars().next())
            {
                joined.push(letter);
            }
        }
    }
    joined
}

/// Returns the text outside and inside the quotes, in turn; escapes are resolved.
fn pieces(format: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        let c = match c {
            '"' => {
                pieces.push(String::new());
                continue;
            }
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => break,
            },
            c => c,
        };
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

/// The number that a text begins with, after the blanks of a width, and what is behind it.
fn number(text: &str, conversion: Conversion, digits: Option<usize>) -> Option<(u64, &str)> {
    let text = text.trim_start_matches(' ');
    if let Some(rest) = text
        .strip_prefix("(nil)")
        .filter(|_| conversion == Conversion::Pointer)
    {
        return Some((0, rest));
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, figures) = match conversion {
        Conversion::Decimal => (10, unsigned),
        Conversion::Octal => (8, unsigned),
        _ => (
            16,
            unsigned
                .strip_prefix("0x")
                .or_else(|| unsigned.strip_prefix("0X"))
                .unwrap_or(unsigned),
        ),
    };
    let longest = digits.map_or(figures.len(), |digits| digits.min(figures.len()));
    let length = figures
        .bytes()
        .take(longest)
        .take_while(|&b| char::from(b).is_digit(radix))
        .count();
    let value = u64::from_str_radix(&figures[..length], radix).ok()?;
    Some((
        if negative {
            value.wrapping_neg()
        } else {
            value
        },
        &figures[length..],
    ))
}
