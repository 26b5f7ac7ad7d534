//! What a metric's number means: its unit, and which direction is better.

use serde::{Deserialize, Serialize};

/// What a metric's number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per operation.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Operations (events, reads, …) per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Mebibytes (2^20 bytes) per second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Mebibytes.
    #[serde(rename = "MiB")]
    Mebibytes,
    /// How many, or of a unit that is not known.
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

/// Which direction of a metric is the good one.
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
