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
mod tests {
    use crate::testing::format;
    use crate::{EventId, Field, Formats};
    use proptest::prelude::*;

    /// A field declared so, at `offset` with `size`.
    fn field(declaration: &str, offset: u32, size: u32, signed: bool) -> Field {
        let line = format!(
            "field:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};",
            u8::from(signed)
        );
        let mut formats = Formats::default();
        formats.add("test", &format("event", 1, &[&line])).unwrap();
        formats.field(EventId(1), "x").expect("declared as x")
    }

    #[test]
    fn a_kernels_own_text_is_understood() {
        let mut formats = Formats::default();
        formats
            .add(
                "sched",
                include_str!("../../tests/data/host/formats/sched.sched_switch"),
            )
            .unwrap();
        let id = formats.event("sched", "sched_switch").unwrap();
        assert_eq!(formats.get(id).unwrap().name, "sched_switch");
        let names: Vec<&str> = formats
            .get(id)
            .unwrap()
            .fields
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let common = [
            "common_type",
            "common_flags",
            "common_preempt_count",
            "common_pid",
        ];
        let own = [
            "prev_comm",
            "prev_pid",
            "prev_prio",
            "prev_state",
            "next_comm",
            "next_pid",
            "next_prio",
        ];
        assert_eq!(names, [common.as_slice(), &own].concat());
        assert_eq!(formats.event("sched", "sched_wakeup"), None);
        assert_eq!(formats.event("raw", "sched_switch"), None);
        assert_eq!(formats.field(id, "state"), None);
        assert_eq!(formats.field(EventId(1), "prev_state"), None);
    }

    #[test]
    fn numbers_of_each_size() {
        let data = [0xff; 16];
        for (size, unsigned) in [(1, 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, u64::MAX)] {
            let x = field("int x", 8, size, true);
            assert_eq!(
                (x.unsigned(&data), x.signed(&data)),
                (Some(unsigned), Some(-1))
            );
            let x = field("unsigned x", 8, size, false);
            assert_eq!(
                (x.unsigned(&data), x.signed(&data)),
                (Some(unsigned), Some(unsigned as i64))
            );
            assert_eq!(x.unsigned(&data[..7 + size as usize]), None);
            assert_eq!(x.text(&data), None);
        }
        assert_eq!(field("struct s x", 8, 3, false).unsigned(&data), None);
        assert_eq!(
            field("const char * x", 8, 8, false).unsigned(&data),
            Some(u64::MAX)
        );
        assert_eq!(
            field("unsigned long *x", 8, 8, false).unsigned(&data),
            Some(u64::MAX)
        );
    }

    #[test]
    fn arrays_and_their_elements() {
        let args = field("unsigned long x[6]", 8, 48, false);
        let mut data = vec![0; 8];
        (1..=8_u64).for_each(|n| data.extend_from_slice(&n.to_le_bytes()));
        assert_eq!(args.unsigned(&data), None);
        let elements: Vec<_> = (0..7)
            .map(|i| args.element(i).and_then(|f| f.unsigned(&data)))
            .collect();
        assert_eq!(
            elements,
            [Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None]
        );
        assert_eq!(args.element(u32::MAX), None);
        // Without a length: what the record has.
        data.truncate(56);
        let open = field("unsigned long x[]", 8, 0, false);
        assert_eq!(open.element(5).and_then(|f| f.unsigned(&data)), Some(6));
        assert_eq!(open.element(6).and_then(|f| f.unsigned(&data)), None);
        assert_eq!(open.bytes(&data).map(<[u8]>::len), Some(48));
        assert_eq!(field("int x", 8, 4, true).element(0), None);
    }

    #[test]
    fn text_inside_and_outside_the_fixed_part() {
        let comm = field("char x[16]", 8, 16, false);
        let mut data = vec![0; 8];
        data.extend_from_slice(b"kworker/0:1\0left");
        assert_eq!(comm.text(&data).as_deref(), Some("kworker/0:1"));
        assert_eq!(comm.text(&data[..23]), None);
        assert_eq!(
            field("char x[TASK_COMM_LEN]", 8, 16, false)
                .text(&data)
                .as_deref(),
            Some("kworker/0:1")
        );
        assert_eq!(
            field("char x[]", 8, 0, false).text(&data).as_deref(),
            Some("kworker/0:1")
        );

        let located =
            |place: u32| [&[0; 8], place.to_le_bytes().as_slice(), b"vda\0\xffz"].concat();
        let data_loc = field("__data_loc char[] x", 8, 4, false);
        assert_eq!(
            data_loc.text(&located(4 << 16 | 12)).as_deref(),
            Some("vda")
        );
        assert_eq!(
            data_loc.text(&located(2 << 16 | 16)).as_deref(),
            Some("\u{fffd}z")
        );
        assert_eq!(data_loc.text(&located(0)).as_deref(), Some(""));
        assert_eq!(data_loc.text(&located(7 << 16 | 12)), None);
        assert_eq!(data_loc.text(&located(u32::MAX)), None);
        assert_eq!(data_loc.unsigned(&located(0)), None);
        assert_eq!(
            field("__rel_loc char[] x", 8, 4, false)
                .text(&located(4 << 16))
                .as_deref(),
            Some("vda")
        );
    }

    #[test]
    fn what_is_no_format_is_told() {
        let good = format("event", 1, &["field:int x;\toffset:8;\tsize:4;\tsigned:1;"]);
        assert!(Formats::default().add("s", &good).is_ok());
        for (from, to) in [
            ("name: event", "name:"),
            ("ID: 1", ""),
            ("ID: 1", "ID: 65536"),
            ("ID: 1", "ID: -1"),
            ("offset:8", "offset:-8"),
            ("offset:8;", ""),
            ("size:4;\tsigned:1;\n\nprint", "size:99999999;\n\nprint"),
            ("int x", "int (*)(int)"),
            ("common_pid", "common_tid"),
            ("common_pid;\toffset:4", "common_pid;\toffset:8"),
        ] {
            let text = good.replace(from, to);
            assert!(
                text != good && Formats::default().add("s", &text).is_err(),
                "{from} {to}"
            );
        }
        let mut formats = Formats::default();
        formats.add("s", &good).unwrap();
        assert_eq!(
            formats.add("t", &good.replace("event", "b")),
            Err("duplicate ID 1, also of s.event".to_owned())
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,300}", line in "(field|ID|name|print fmt): ?[a-z_\\[\\]0-9 ]{0,30};(\\toffset:[0-9]{1,11};)?(\\tsize:[0-9]{1,11};)?") {
            let mut formats = Formats::default();
            let _ = formats.add("s", &text);
            let _ = formats.add("s", &format("event", 1, &[&line]));
            let _ = crate::PageLayout::parse(&line);
        }

        /// No place and no record makes a field read outside.
        #[test]
        fn any_record_is_survived(
            kind in prop::sample::select(vec!["int x", "char x[3]", "long x[]", "__data_loc char[] x", "__rel_loc u8[] x", "long x[2]"]),
            offset in 0..40u32, size in 0..40u32, data in proptest::collection::vec(any::<u8>(), 0..40), index in any::<u32>(),
        ) {
            let x = field(kind, offset, size, true);
            let _ = (x.unsigned(&data), x.signed(&data), x.text(&data), x.bytes(&data));
            let _ = x.element(index).and_then(|f| f.signed(&data));
            let _ = x.element(index % 8).and_then(|f| f.signed(&data));
        }
    }
}
