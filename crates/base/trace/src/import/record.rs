//! Records of events that came as text, or from QEMU, laid out like the kernel's: the common fields, eight bytes for each
//! argument, texts behind them. So [`Field`] reads all.

use crate::format::{Field, FieldKind};
use crate::{EventId, Format};

const HEADER: usize = 8;
const SLOT: usize = 8;
/// Of a system call.
pub(crate) const ARGUMENTS: usize = 6;

/// Type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Unsigned,
    Signed,
    Text,
    /// The arguments of a system call, unsigned: six slots, and the last field.
    Arguments,
}

/// The format of records with these fields after the common ones.
pub(crate) fn format(
    system: &str,
    name: &str,
    fields: impl Iterator<Item = (String, Field)>,
) -> Format {
    let fields = common().chain(fields).collect();
    Format {
        system: system.to_owned(),
        name: name.to_owned(),
        fields,
        names: Vec::new(),
    }
}

/// The fields that every record begins with.
fn common() -> impl Iterator<Item = (String, Field)> {
    let field = |offset, size, signed| Field {
        offset,
        size,
        signed,
        kind: FieldKind::Number,
    };
    [
        ("common_type".to_owned(), field(0, 2, false)),
        ("common_pid".to_owned(), field(4, 4, true)),
    ]
    .into_iter()
}

/// The field of argument `n`.
pub(crate) fn field(n: usize, kind: ArgumentKind) -> Field {
    let offset = (HEADER + SLOT * n) as u32;
    match kind {
        ArgumentKind::Text => Field {
            offset,
            size: 4,
            signed: false,
            kind: FieldKind::Data,
        },
        ArgumentKind::Arguments => Field {
            offset,
            size: (SLOT * ARGUMENTS) as u32,
            signed: false,
            kind: FieldKind::Array {
                element: SLOT as u32,
            },
        },
        ArgumentKind::Signed | ArgumentKind::Unsigned => Field {
            offset,
            size: SLOT as u32,
            signed: kind == ArgumentKind::Signed,
            kind: FieldKind::Number,
        },
    }
}

/// A record in the making; the memory is used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Record {
    bytes: Vec<u8>,
}

impl Record {
    pub fn begin(&mut self, id: EventId, pid: i32, arguments: usize) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&u32::from(id.0).to_le_bytes());
        self.bytes.extend_from_slice(&pid.to_le_bytes());
        self.bytes.resize(HEADER + SLOT * arguments, 0);
    }

    /// Sets `common_flags`: in which kind of interrupt the event was.
    pub fn flags(&mut self, flags: u8) {
        if let Some(byte) = self.bytes.get_mut(2) {
            *byte = flags;
        }
    }

    /// Sets argument `n`; one that was not announced is left out.
    pub fn number(&mut self, n: usize, value: u64) {
        let at = HEADER + SLOT * n;
        if let Some(slot) = self.bytes.get_mut(at..at + SLOT) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Sets argument `n`; `None` when the texts of the record are longer than it can hold.
    pub fn text(&mut self, n: usize, text: &[u8]) -> Option<()> {
        let offset = u16::try_from(self.bytes.len()).ok()?;
        let length = u16::try_from(text.len()).ok()?;
        self.number(n, u64::from(length) << 16 | u64::from(offset));
        self.bytes.extend_from_slice(text);
        Some(())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
