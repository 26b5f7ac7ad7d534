//! Layouts of records, from the `format` files of events as tracefs has them.
//!
//! Source: `kernel/trace/trace_events.c` (`f_show`), of Linux 2.6.31 and newer.

mod symbols;

pub use symbols::{Symbols, SymbolsCondition, symbols};

use crate::{Counts, EventId};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One kind of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Subsystem of the event, such as `sched`.
    pub system: String,
    /// Name of the event, such as `sched_switch`.
    pub name: String,
    /// Fields of the event by name, the common ones among them.
    pub fields: Vec<(String, Field)>,
    /// The names of numbers that its print format has: a table for each `__print_symbolic`.
    pub names: Vec<Symbols>,
}

/// All kinds of events of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Formats {
    formats: BTreeMap<EventId, Format>,
    /// By ID: the least length of a record, bytes; [`UNKNOWN`] where there is no format.
    least: Vec<u32>,
}

/// No record is so long.
const UNKNOWN: u32 = u32::MAX;
/// `common_type` and `common_pid` (`struct trace_entry`, `include/linux/trace_events.h`) have always been there.
const HEADER: [(&str, u32, u32); 2] = [("common_type", 0, 2), ("common_pid", 4, 4)];

impl Formats {
    /// Takes the text of an event's `format` file.
    ///
    /// # Errors
    /// A message with the fault of the text: no format file, of an unknown kernel, or with the ID of an event that is
    /// there.
    pub fn add(&mut self, system: &str, format: &str) -> Result<(), String> {
        let (id, format) = parse_format(system, format)?;
        for (common, offset, size) in HEADER {
            let field = format.field(common);
            if field.map(|field| (field.offset, field.size)) != Some((offset, size)) {
                return Err(format!(
                    "{common} is not {size} bytes at {offset}: unknown kernel"
                ));
            }
        }
        self.insert(id, format)
    }

    pub(crate) fn insert(&mut self, id: EventId, format: Format) -> Result<(), String> {
        let least = format.least();
        if let Some(other) = self.formats.insert(id, format) {
            return Err(format!(
                "duplicate ID {}, also of {}.{}",
                id.0, other.system, other.name
            ));
        }
        let at = usize::from(id.0);
        if self.least.len() <= at {
            self.least.resize(at + 1, UNKNOWN);
        }
        self.least[at] = least;
        Ok(())
    }

    /// A record's kind; `None` where no format fits it, which is counted.
    #[inline]
    pub(crate) fn kind(&self, record: &[u8], counts: &mut Counts) -> Option<EventId> {
        let id = EventId::of_record(record);
        let least = self.least.get(usize::from(id.0)).copied();
        match least.unwrap_or(UNKNOWN) {
            least if record.len() >= least as usize => return Some(id),
            UNKNOWN => counts.unknown += 1,
            _ => counts.short += 1,
        }
        None
    }

    /// The ID of an event; `None` when the trace has no such kind.
    pub fn event(&self, system: &str, name: &str) -> Option<EventId> {
        self.iter()
            .find(|(_, format)| format.system == system && format.name == name)
            .map(|(id, _)| id)
    }

    /// A field of a kind of event.
    pub fn field(&self, id: EventId, name: &str) -> Option<Field> {
        self.get(id)?.field(name)
    }

    /// The kind of event behind an ID.
    pub fn get(&self, id: EventId) -> Option<&Format> {
        self.formats.get(&id)
    }

    /// All kinds, by ID.
    pub fn iter(&self) -> impl Iterator<Item = (EventId, &Format)> {
        self.formats.iter().map(|(id, format)| (*id, format))
    }
}

impl Format {
    /// A field of the event.
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        find(&self.fields, name)
    }

    /// The text of a `format` file that gives this again, without its print format.
    pub(crate) fn text(&self, id: EventId) -> String {
        let fields = self
            .fields
            .iter()
            .map(|(name, field)| format!("\t{}\n", field.text_line(name)));
        format!(
            "name: {}\nID: {}\nformat:\n{}\n",
            self.name,
            id.0,
            fields.collect::<String>()
        )
    }

    /// The least length of a record, bytes.
    fn least(&self) -> u32 {
        let ends = self.fields.iter().filter(|(_, field)| {
            // The function tracer's own entries cut their last array (`caller[8]` of kernel_stack).
            !(self.system == "ftrace" && matches!(field.kind, FieldKind::Array { .. }))
        });
        ends.map(|(_, field)| field.offset + field.size)
            .max()
            .unwrap_or(0)
    }
}

/// Where a field lies in the records of one kind of event. A record that is too short for it, or a field of another
/// kind than asked for, gives `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) signed: bool,
    pub(crate) kind: FieldKind,
}

/// Form in which a field holds its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// A single number.
    Number,
    /// Elements of so many bytes each, one after another.
    Array { element: u32 },
    /// 16 bits of offset and 16 of length (`__data_loc`), the offset from the record's begin.
    Data,
    /// 16 bits of offset and 16 of length (`__rel_loc`), the offset from the field's end.
    Relative,
}

impl Field {
    /// The number without its sign: -1 of an `int` is `u32::MAX`.
    #[inline]
    pub fn unsigned(&self, data: &[u8]) -> Option<u64> {
        self.number(data).filter(|_| self.kind == FieldKind::Number)
    }

    /// The number, signed if the kernel's type is: `u32::MAX` of an `unsigned int` stays it.
    #[inline]
    pub fn signed(&self, data: &[u8]) -> Option<i64> {
        let number = self.unsigned(data)?;
        let spare = 64 - 8 * self.size;
        Some(if self.signed {
            ((number << spare) as i64) >> spare
        } else {
            number as i64
        })
    }

    /// The text up to its NUL, of a `char` array or a string outside the fixed part. What is no UTF-8 is replaced.
    pub fn text<'a>(&self, data: &'a [u8]) -> Option<Cow<'a, str>> {
        let bytes = self.bytes(data)?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]))
    }

    /// The bytes of an array, inside the fixed part of the record or outside. An array without a fixed length at the
    /// end of the record takes what is left of it.
    pub fn bytes<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        let base = match self.kind {
            FieldKind::Number => return None,
            FieldKind::Array { .. } => {
                let rest = data.get(self.offset as usize..)?;
                return match self.size {
                    0 => Some(rest),
                    size => rest.get(..size as usize),
                };
            }
            FieldKind::Data => 0,
            FieldKind::Relative => (self.offset + self.size) as usize,
        };
        let place = self.number(data)? as usize;
        let start = base + (place & 0xffff);
        data.get(start..start + (place >> 16 & 0xffff))
    }

    /// Element `index` of an array of numbers inside the fixed part, as a field of its own: `args[1]` of a system call.
    /// `None` for another kind of field and beyond a fixed length.
    pub fn element(&self, index: u32) -> Option<Field> {
        let FieldKind::Array { element } = self.kind else {
            return None;
        };
        let at = index.checked_mul(element)?;
        let end = at.checked_add(element)?;
        let known = matches!(element, 1 | 2 | 4 | 8) && (self.size == 0 || end <= self.size);
        known.then_some(())?;
        Some(Field {
            offset: self.offset.checked_add(at)?,
            size: element,
            kind: FieldKind::Number,
            ..*self
        })
    }

    /// Returns the field's line in a `format` file.
    fn text_line(&self, name: &str) -> String {
        let Field {
            offset,
            size,
            signed,
            kind,
        } = *self;
        let declaration = match kind {
            FieldKind::Number => format!("u{} {name}", 8 * size),
            FieldKind::Data => format!("__data_loc char[] {name}"),
            FieldKind::Relative => format!("__rel_loc char[] {name}"),
            FieldKind::Array { element: 0 } => format!("struct unknown {name}[N]"),
            FieldKind::Array { element } if size == 0 => format!("u{} {name}[]", 8 * element),
            FieldKind::Array { element } => format!("u{} {name}[{}]", 8 * element, size / element),
        };
        format!(
            "field:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};",
            u8::from(signed)
        )
    }

    #[inline]
    fn number(&self, data: &[u8]) -> Option<u64> {
        let rest = data.get(self.offset as usize..)?;
        Some(match self.size {
            8 => u64::from_le_bytes(*rest.first_chunk()?),
            4 => u64::from(u32::from_le_bytes(*rest.first_chunk()?)),
            2 => u64::from(u16::from_le_bytes(*rest.first_chunk()?)),
            1 => u64::from(*rest.first()?),
            _ => return None,
        })
    }
}

/// No record is longer than a page of the ring buffer, and those have had at most this.
const MAX_FIELD: u32 = 1 << 24;

/// Parses a `format` file; the error says what is wrong with it.
fn parse_format(system: &str, text: &str) -> Result<(EventId, Format), String> {
    let mut name = None;
    let mut id = None;
    let mut fields = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(value) = line.strip_prefix("name:") {
            name = Some(value.trim());
        } else if let Some(value) = line.strip_prefix("ID:") {
            let number = value
                .trim()
                .parse()
                .map_err(|_| format!("invalid event ID {:?}", value.trim()))?;
            id = Some(EventId(number));
        } else if line.starts_with("print fmt:") {
            break;
        } else if line.starts_with("field") {
            fields.push(parse_field(line)?);
        }
    }
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or("no name: line")?;
    let format = Format {
        system: system.to_owned(),
        name: name.to_owned(),
        fields,
        names: symbols(text),
    };
    Ok((id.ok_or("no ID: line")?, format))
}

/// The field of a name.
pub(crate) fn find(fields: &[(String, Field)], name: &str) -> Option<Field> {
    let named = fields.iter().find(|(field, _)| field == name);
    named.map(|(_, field)| *field)
}

/// Reads a line such as `field:char comm[16]; offset:8; size:16; signed:0;`.
pub(crate) fn parse_field(line: &str) -> Result<(String, Field), String> {
    let wrong = || format!("invalid field line {line:?}");
    let (mut offset, mut size, mut signed, mut declaration) = (None, None, false, None);
    for part in line.split(';') {
        let Some((key, value)) = part.trim().split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key.trim() {
            // "field special:" is the first spelling of 2.6.31.
            "field" | "field special" => declaration = Some(value),
            "offset" => offset = Some(value.parse::<u32>().map_err(|_| wrong())?),
            "size" => size = Some(value.parse::<u32>().map_err(|_| wrong())?),
            "signed" => signed = value != "0",
            _ => {}
        }
    }
    let (Some(declaration), Some(offset), Some(size)) = (declaration, offset, size) else {
        return Err(wrong());
    };
    if offset > MAX_FIELD || size > MAX_FIELD {
        return Err(wrong());
    }
    let (name, kind) = declared(declaration, size).ok_or_else(wrong)?;
    Ok((
        name.to_owned(),
        Field {
            offset,
            size,
            signed,
            kind,
        },
    ))
}

/// The name and kind that a C declaration gives.
fn declared(declaration: &str, size: u32) -> Option<(&str, FieldKind)> {
    // The brackets of an array come behind the name, those of `__data_loc char[] name` before it.
    let (head, length) = match declaration
        .strip_suffix(']')
        .and_then(|d| d.rsplit_once('['))
    {
        Some((head, length)) => (head.trim_end(), Some(length.trim())),
        None => (declaration, None),
    };
    let kind_of_value = head.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let name = &head[kind_of_value.len()..];
    if name.is_empty() {
        return None;
    }
    let kind = if kind_of_value.starts_with("__data_loc") {
        FieldKind::Data
    } else if kind_of_value.starts_with("__rel_loc") {
        FieldKind::Relative
    } else if let Some(length) = length {
        FieldKind::Array {
            element: element(kind_of_value, length, size),
        }
    } else {
        FieldKind::Number
    };
    Some((name, kind))
}

/// Bytes of an element; 0 where unknown.
fn element(kind_of_value: &str, length: &str, size: u32) -> u32 {
    match length.parse::<u32>() {
        Ok(length) if length > 0 && size % length == 0 => size / length,
        // Without a length, or with one by name (`comm[TASK_COMM_LEN]`): by its type.
        _ => match kind_of_value.trim() {
            "char" | "unsigned char" | "u8" | "__u8" | "uint8_t" => 1,
            "u16" | "__u16" => 2,
            "int" | "unsigned int" | "u32" | "__u32" => 4,
            "long" | "unsigned long" | "u64" | "__u64" => 8,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests;
