//! Meaning of a metric's number: its unit, and the direction that is better.

use serde::{Deserialize, Serialize};

/// Unit of a metric's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per operation.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Time in seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Operations (events, reads, …) per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Mebibytes (2^20 bytes) per second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Mebibytes (2^20 bytes).
    #[serde(rename = "MiB")]
    Mebibytes,
    /// Number of things, or a figure of an unknown unit.
    #[serde(rename = "")]
    Count,
}

impl Unit {
    /// The unit's symbol, as printed after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Seconds => "s",
            Unit::PerSecond => "/s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::Mebibytes => "MiB",
            Unit::Count => "",
        }
    }
}

/// Direction in which a metric gets better.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Better {
    /// A rate: more is better; the overhead is native over guest.
    Higher,
    /// A cost: less is better; the overhead is guest over native.
    Lower,
}
