//! Formats of a counter's values: in a cell of a table, in CSV and OpenMetrics.

use vmtax_model::number::{NONE, bytes, nanoseconds, significant};

/// The unit of a VM's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUnit {
    /// A number of something.
    Count,
    /// A part, 0 to 1: in percent in a table, whose head has the sign.
    Ratio,
    /// Events per second.
    PerSecond,
    /// Nanoseconds; seconds in CSV.
    Time,
    /// Number of bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl CounterUnit {
    /// The text of a cell, at most six characters; "–" for a value that is not known.
    pub(super) fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return NONE.to_owned();
        };
        match self {
            CounterUnit::Count => format!("{value:.0}"),
            CounterUnit::Ratio => short(value * 100.0),
            CounterUnit::PerSecond => rate(value),
            CounterUnit::Time => nanoseconds(value),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond if value < 1.0 => "0".to_owned(),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond => bytes(value as u64),
        }
    }

    /// The value in the unit that its name in CSV ends with.
    pub(super) fn in_csv(self, value: f64) -> f64 {
        match self {
            CounterUnit::Time => value / 1e9,
            _ => value,
        }
    }

    /// The sign behind a text where no head of a column says it.
    pub(super) const fn sign(self) -> &'static str {
        match self {
            CounterUnit::Ratio => " %",
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => "/s",
            CounterUnit::Count | CounterUnit::Time | CounterUnit::Bytes => "",
        }
    }
}

fn short(value: f64) -> String {
    if value < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9999.5 => short(rate),
        rate => format!("{}k", significant(rate / 1000.0)),
    }
}
