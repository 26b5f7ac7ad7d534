//! One field of an event's record: found once, read from each record.

use std::borrow::Cow;

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
        if self.kind == FieldKind::Number {
            self.number(data)
        } else {
            None
        }
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
        let (start, size) = match self.kind {
            FieldKind::Number => return None,
            FieldKind::Array { .. } if self.size == 0 => return data.get(self.offset as usize..),
            FieldKind::Array { .. } => (self.offset as usize, self.size as usize),
            FieldKind::Data | FieldKind::Relative => {
                let place = self.number(data)?;
                let base = if self.kind == FieldKind::Relative {
                    (self.offset + self.size) as usize
                } else {
                    0
                };
                (
                    base + (place & 0xffff) as usize,
                    (place >> 16) as usize & 0xffff,
                )
            }
        };
        data.get(start..start + size)
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
    pub(super) fn text_line(&self, name: &str) -> String {
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
