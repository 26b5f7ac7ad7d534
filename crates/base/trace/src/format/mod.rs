//! Layouts of records, from the `format` files of events.

mod constant;
mod field;
mod formats;
mod symbols;
#[cfg(test)]
mod tests;
mod text;

pub use field::Field;
pub(crate) use field::Kind;
pub(crate) use formats::pid;
pub use formats::{Format, Formats};
pub use symbols::{Symbols, SymbolsCondition, symbols};
pub use text::EventId;
pub(crate) use text::field;
