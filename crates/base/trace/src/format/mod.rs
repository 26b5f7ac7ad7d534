//! Layouts of records, from the `format` files of events.

mod constant;
mod field;
mod symbols;
#[cfg(test)]
mod tests;
mod text;

pub use field::Field;
pub(crate) use field::FieldKind;
pub use symbols::{Symbols, SymbolsCondition, symbols};
pub use text::EventId;
pub(crate) use text::field;

use crate::Counts;
use std::collections::BTreeMap;
use text::Parsed;

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

/// The thread that a record is of.
#[inline]
pub(crate) fn pid(record: &[u8]) -> i32 {
    record
        .get(4..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |pid| i32::from_le_bytes(*pid))
}

impl Formats {
    /// Takes the text of an event's `format` file.
    ///
    /// # Errors
    /// A message with the fault of the text: no format file, of an unknown kernel, or with the ID of an event that is
    /// there.
    pub fn add(&mut self, system: &str, format: &str) -> Result<(), String> {
        let Parsed { name, id, fields } = text::parse(format)?;
        for (common, offset, size) in HEADER {
            let found = fields
                .iter()
                .find(|(name, _)| name == common)
                .map(|(_, f)| (f.offset, f.size));
            if found != Some((offset, size)) {
                return Err(format!(
                    "{common} is not {size} bytes at {offset}: unknown kernel"
                ));
            }
        }
        self.insert(
            id,
            Format {
                system: system.to_owned(),
                name,
                fields,
                names: symbols(format),
            },
        )
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
        let id = record
            .first_chunk()
            .map_or(EventId(0), |id| EventId(u16::from_le_bytes(*id)));
        let least = self
            .least
            .get(usize::from(id.0))
            .copied()
            .unwrap_or(UNKNOWN);
        if record.len() < least as usize {
            *(if least == UNKNOWN {
                &mut counts.unknown
            } else {
                &mut counts.short
            }) += 1;
            return None;
        }
        Some(id)
    }

    /// The ID of an event; `None` when the trace has no such kind.
    pub fn event(&self, system: &str, name: &str) -> Option<EventId> {
        self.iter()
            .find(|(_, format)| format.system == system && format.name == name)
            .map(|(id, _)| id)
    }

    /// A field of a kind of event.
    pub fn field(&self, id: EventId, name: &str) -> Option<Field> {
        self.get(id)?
            .fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, field)| *field)
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
