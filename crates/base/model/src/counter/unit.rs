//! The unit of a counter's figure: how it is written, and what its number is.

use crate::number::{NONE, bytes, nanoseconds, significant};

/// The unit of the figure of a VM's counter in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUnit {
    /// A number of something, at the interval's end.
    Count,
    /// A part of the interval, 0 to 1: in percent in a table, whose head has the sign. Its number is a time.
    Ratio,
    /// A part of the interval of each vCPU, whose times its number adds up.
    VcpuRatio,
    /// Events per second.
    PerSecond,
    /// Nanoseconds; seconds in CSV. Code makes such figures.
    Time,
    /// Number of bytes, at the interval's end.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl CounterUnit {
    /// Returns true for a number that does not only grow.
    pub fn is_gauge(self) -> bool {
        matches!(self, CounterUnit::Count | CounterUnit::Bytes)
    }

    /// Returns a number in the unit of Prometheus: a time in seconds.
    pub fn in_base_unit(self, number: u64) -> f64 {
        match self {
            CounterUnit::Ratio | CounterUnit::VcpuRatio => number as f64 / 1e9,
            _ => number as f64,
        }
    }

    /// The end of a name in CSV.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            CounterUnit::Count => "",
            CounterUnit::Ratio | CounterUnit::VcpuRatio => "_ratio",
            CounterUnit::PerSecond => "_per_second",
            CounterUnit::Time => "_seconds",
            CounterUnit::Bytes => "_bytes",
            CounterUnit::BytesPerSecond => "_bytes_per_second",
        }
    }

    /// Returns the text of a cell, at most six characters; "–" for a value that is not known.
    pub fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return NONE.to_owned();
        };
        match self {
            CounterUnit::Count => format!("{value:.0}"),
            CounterUnit::Ratio | CounterUnit::VcpuRatio => short(value * 100.0),
            CounterUnit::PerSecond => rate(value),
            CounterUnit::Time => nanoseconds(value),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond if value < 1.0 => "0".to_owned(),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond => bytes(value as u64),
        }
    }

    /// Returns a value in the unit that its name in CSV ends with.
    pub fn in_csv(self, value: f64) -> f64 {
        match self {
            CounterUnit::Time => value / 1e9,
            _ => value,
        }
    }

    /// The sign behind a text where no head of a column says it.
    pub const fn sign(self) -> &'static str {
        match self {
            CounterUnit::Ratio | CounterUnit::VcpuRatio => " %",
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => "/s",
            CounterUnit::Count | CounterUnit::Time | CounterUnit::Bytes => "",
        }
    }
}

fn short(value: f64) -> String {
    let decimals = if value < 9.95 { 1 } else { 0 };
    format!("{value:.decimals$}")
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9999.5 => short(rate),
        rate => format!("{}k", significant(rate / 1000.0)),
    }
}
