//! Traces that other tools wrote.

pub(crate) mod dat;
pub(crate) mod ftrace;
pub(crate) mod perf;
pub(crate) mod qemu;

use crate::format::{Field, FieldKind};
use crate::{EventId, Format};
use std::collections::BTreeMap;

/// No more threads than these are remembered of a trace.
pub const MAX_THREADS: usize = 1 << 16;

/// A thread, as far as a trace describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedThread {
    /// PID of the thread's process (thread group); `None` where the trace does not say.
    pub process: Option<i32>,
    /// Name of the thread (`comm`).
    pub name: String,
}

/// The threads of a trace, by their TIDs.
pub type TracedThreads = BTreeMap<i32, TracedThread>;

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
pub(crate) fn record_format(
    system: &str,
    name: &str,
    fields: impl Iterator<Item = (String, Field)>,
) -> Format {
    let common = |name: &str, offset, size, signed| {
        let kind = FieldKind::Number;
        let field = Field {
            offset,
            size,
            signed,
            kind,
        };
        (name.to_owned(), field)
    };
    let head = [
        common("common_type", 0, 2, false),
        common("common_pid", 4, 4, true),
    ];
    Format {
        system: system.to_owned(),
        name: name.to_owned(),
        fields: head.into_iter().chain(fields).collect(),
        names: Vec::new(),
    }
}

/// The field of argument `n`.
pub(crate) fn argument_field(n: usize, kind: ArgumentKind) -> Field {
    let element = SLOT as u32;
    let (size, of_field) = match kind {
        ArgumentKind::Text => (4, FieldKind::Data),
        ArgumentKind::Arguments => (element * ARGUMENTS as u32, FieldKind::Array { element }),
        ArgumentKind::Signed | ArgumentKind::Unsigned => (element, FieldKind::Number),
    };
    Field {
        offset: (HEADER + SLOT * n) as u32,
        size,
        signed: kind == ArgumentKind::Signed,
        kind: of_field,
    }
}

/// Record of an event that came as text, or from QEMU, in the making, laid out like the kernel's: the common fields, eight bytes
/// for each argument, texts behind them. So [`Field`] reads all. The memory is used again for the next.
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
