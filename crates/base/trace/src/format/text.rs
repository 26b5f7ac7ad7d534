//! The text of an event's `format` file, as tracefs has it.
//!
//! Source: `kernel/trace/trace_events.c` (`f_show`), of Linux 2.6.31 and newer.

use super::field::{Field, FieldKind};

/// The event ID in records. The running kernel assigns it: it may differ after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u16);

/// No record is longer than a page of the ring buffer, and those have had at most this.
const MAX_FIELD: u32 = 1 << 24;

/// A parsed `format` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub name: String,
    pub id: EventId,
    pub fields: Vec<(String, Field)>,
}

/// Parses a `format` file; the error says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Parsed, String> {
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
            fields.push(field(line)?);
        }
    }
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or("no name: line")?
        .to_owned();
    Ok(Parsed {
        name,
        id: id.ok_or("no ID: line")?,
        fields,
    })
}

/// Reads a line such as `field:char comm[16]; offset:8; size:16; signed:0;`.
pub(crate) fn field(line: &str) -> Result<(String, Field), String> {
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
