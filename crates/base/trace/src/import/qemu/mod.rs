//! QEMU's own traces. What their events hold, QEMU's list of them says: `trace-events-all`, beside its other data.
//!
//! Source: `docs/devel/tracing.rst`, `trace/simple.c` and `scripts/tracetool` of QEMU.

mod backends;

use crate::file::{damaged, text};
use crate::import::{ArgumentKind, Record, argument_field, record_format};
use crate::{EventId, Format, Formats, TraceError};
use std::collections::HashMap;
use std::path::Path;

/// The events of block requests, which QEMUs have declared alike since 2.10, as QEMU's own list declares them
/// (`trace-events-all`).
const BLOCK_REQUESTS: &str = r#"
virtio_blk_handle_read(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_handle_write(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_submit_multireq(void *vdev, void *mrb, int start, int num_reqs, uint64_t offset, size_t size, bool is_write) "vdev %p mrb %p start %d num_reqs %d offset %"PRIu64" size %zu is_write %d"
virtio_blk_req_complete(void *vdev, void *req, int status) "vdev %p req %p status %d"
virtio_notify_irqfd(void *vdev, void *vq) "vdev %p vq %p"
"#;

/// The events that a QEMU knows, of the subsystem `qemu`. Their IDs are their places in the list.
#[derive(Debug, Default)]
pub struct QemuEvents {
    formats: Formats,
    ids: HashMap<String, EventId>,
    declared: Vec<Declaration>,
}

impl QemuEvents {
    /// Reads QEMU's `trace-events-all`. It must be that of the QEMU that wrote the trace.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read or is no such list.
    pub fn open(path: &Path) -> Result<QemuEvents, TraceError> {
        QemuEvents::parse(&text(path)?).map_err(|reason| damaged(path, reason))
    }

    /// Reads the text of `trace-events-all`.
    ///
    /// # Errors
    /// A message with the fault of the text, and where it is.
    pub fn parse(text: &str) -> Result<QemuEvents, String> {
        let declared = declarations(text)?;
        let mut formats = Formats::default();
        let mut ids = HashMap::new();
        for (n, event) in declared.iter().enumerate() {
            let id = EventId(u16::try_from(n).map_err(|_| "more than 65536 events".to_owned())?);
            formats.insert(id, event.format())?;
            if ids.insert(event.name.clone(), id).is_some() {
                return Err(format!("{} is listed twice", event.name));
            }
        }
        Ok(QemuEvents {
            formats,
            ids,
            declared,
        })
    }

    /// The events of a virtio disk's requests, of any QEMU since 2.10. A trace may have others, which are counted as unknown.
    pub fn block_requests() -> QemuEvents {
        QemuEvents::parse(BLOCK_REQUESTS).unwrap_or_default()
    }

    /// The kinds of events; an argument is a field of its name.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The event of a name.
    fn named(&self, name: &str) -> Option<(EventId, &Declaration)> {
        let id = *self.ids.get(name)?;
        Some((id, self.declared.get(usize::from(id.0))?))
    }
}

/// One event of the list.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    name: String,
    arguments: Vec<Argument>,
    /// Template of the event's text in QEMU's log.
    template: Template,
}

#[derive(Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    kind: ArgumentKind,
}

/// Tracetool's own limit.
const MAX_ARGUMENTS: usize = 10;

/// The events of `trace-events-all`: lines such as `virtio_queue_notify(void *vdev, int n, void *vq) "vdev %p n %d vq %p"`.
fn declarations(text: &str) -> Result<Vec<Declaration>, String> {
    let mut events = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let event = declaration(line);
            events.push(
                event.ok_or_else(|| format!("line {n} is not an event declaration of QEMU"))?,
            );
        }
    }
    if events.is_empty() {
        Err("no event declaration of QEMU".to_owned())
    } else {
        Ok(events)
    }
}

fn declaration(line: &str) -> Option<Declaration> {
    let (head, rest) = line.split_once('(')?;
    let (arguments, format) = rest.split_once(')')?;
    let mut words = head.split_whitespace().rev();
    let name = words
        .next()
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))?;
    // An event of a guest's vCPU has that before its own arguments (up to QEMU 8.0).
    let vcpu = words.any(|property| property == "vcpu");
    let (of_vcpu, its_format) = if vcpu {
        ("void *__cpu,", "\"cpu=%p \" ")
    } else {
        ("", "")
    };
    let arguments = of_vcpu.split_terminator(',').chain(arguments.split(','));
    let arguments: Vec<Argument> = arguments
        .filter(|a| a.trim() != "void")
        .map(argument)
        .collect::<Option<_>>()?;
    let template = Template::parse(&format!("{its_format}{format}"), arguments.len());
    (arguments.len() <= MAX_ARGUMENTS).then(|| Declaration {
        name: name.to_owned(),
        arguments,
        template,
    })
}

fn argument(declaration: &str) -> Option<Argument> {
    let declaration = declaration.trim();
    let of = declaration.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let name = &declaration[of.len()..];
    let words: String = of
        .split_whitespace()
        .filter(|&word| word != "const")
        .collect();
    let kind = match words.as_str() {
        "char*" => ArgumentKind::Text,
        "int" | "long" | "longint" | "longlong" | "short" | "char" | "signed" | "ssize_t"
        | "ptrdiff_t" => ArgumentKind::Signed,
        word if word.starts_with("int") && word.ends_with("_t") => ArgumentKind::Signed,
        _ => ArgumentKind::Unsigned,
    };
    (!of.is_empty() && !name.is_empty()).then(|| Argument {
        name: name.to_owned(),
        kind,
    })
}

impl Declaration {
    /// Where the arguments lie in the records that we make.
    fn format(&self) -> Format {
        let own = (0..).zip(&self.arguments);
        let own = own.map(|(n, a)| (a.name.clone(), argument_field(n, a.kind)));
        record_format("qemu", &self.name, own)
    }
}

/// Text of an event in the log: literal text and arguments in turn. It is the event's format string used backwards: from what
/// `printf` made of the arguments to the arguments.
#[derive(Debug, PartialEq, Eq)]
struct Template(Vec<Token>);

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

impl Conversion {
    fn of_letter(letter: u8) -> Conversion {
        match letter {
            b'x' | b'X' => Conversion::Hexadecimal,
            b'o' => Conversion::Octal,
            b'p' => Conversion::Pointer,
            b'c' => Conversion::Character,
            b's' => Conversion::Text,
            _ => Conversion::Decimal,
        }
    }
}

impl Template {
    /// Takes the format as it stands in `trace-events-all`: string literals and `PRI…` macros. Arguments beyond
    /// `arguments` are none of the event's.
    fn parse(format: &str, arguments: usize) -> Template {
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
            let (modifiers, letter) = (&rest[..end], rest.as_bytes()[end]);
            rest = &rest[end + 1..];
            // A width that is an argument comes before the one it is the width of.
            n += modifiers.matches('*').count();
            if !literal.is_empty() {
                tokens.push(Token::Literal(std::mem::take(&mut literal)));
            }
            if n < arguments {
                tokens.push(Token::Argument {
                    n,
                    conversion: Conversion::of_letter(letter),
                    digits: digits(modifiers).filter(|_| rest.starts_with('%')),
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
    fn read(&self, line: &str, record: &mut Record) -> Option<()> {
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

/// The number of digits that the flags, width and precision of a conversion ask for.
fn digits(modifiers: &str) -> Option<usize> {
    let last = modifiers.rsplit('.').next().unwrap_or("");
    let width: String = last.chars().filter(char::is_ascii_digit).collect();
    width.parse().ok().filter(|&width| width > 0)
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
        _ => {
            let hex = ["0x", "0X"].map(|prefix| unsigned.strip_prefix(prefix));
            (16, hex[0].or(hex[1]).unwrap_or(unsigned))
        }
    };
    let longest = digits.map_or(figures.len(), |digits| digits.min(figures.len()));
    let length = figures
        .bytes()
        .take(longest)
        .take_while(|&b| char::from(b).is_digit(radix))
        .count();
    let value = u64::from_str_radix(&figures[..length], radix).ok()?;
    let signed = if negative {
        value.wrapping_neg()
    } else {
        value
    };
    Some((signed, &figures[length..]))
}

#[cfg(test)]
mod tests;
