//! Latency distributions: an HDR histogram of nanoseconds with three significant digits.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Reader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest latency told apart: one hour. Longer ones count as one hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;
/// No honest V2 histogram of our range is larger; one that claims to be is refused before it is unpacked.
const LARGEST_TEXT: usize = 1 << 20;

/// A histogram could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a latency histogram cannot be read ({0}): the file is damaged or from another tool")]
pub struct LatencyError(String);

/// How long the operations of one kind took, in nanoseconds. Serialised as HdrHistogram's V2 (deflate, base64), which
/// HdrHistogram's own tools read.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency(Histogram<u64>);

/// The usual figures of a distribution, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of operations.
    pub count: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// 95 % are at most this.
    pub p95_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// All together.
    pub sum_ns: f64,
}

impl Latency {
    /// An empty distribution; all memory is allocated here, none while recording.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, LONGEST_NS, DIGITS) {
            Ok(h) => Latency(h),
            Err(_) => unreachable!("constant bounds are valid"),
        }
    }

    /// Count one operation of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Count all of another distribution too.
    pub fn add(&mut self, other: &Latency) {
        // Both have the same bounds by construction or by `from_text`, so this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Number of operations counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value below or at which a share `q` (0 to 1) of the operations lies; 0 when empty.
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }

    /// Each non-empty bucket: highest value it stands for (ns) and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value()))
    }

    /// The usual figures; `None` when nothing was counted.
    pub fn summary(&self) -> Option<LatencySummary> {
        let h = &self.0;
        (!h.is_empty()).then(|| LatencySummary {
            count: h.len(),
            min_ns: h.min(),
            mean_ns: h.mean(),
            p50_ns: h.value_at_quantile(0.50),
            p95_ns: h.value_at_quantile(0.95),
            p99_ns: h.value_at_quantile(0.99),
            max_ns: h.max(),
            sum_ns: h.mean() * h.len() as f64,
        })
    }

    /// The histogram itself, for writers of standard formats.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// From a histogram of any bounds, as a reader of standard formats gives it.
    pub fn from_histogram(source: &Histogram<u64>) -> Self {
        let mut latency = Latency::new();
        for v in source.iter_recorded() {
            let at = v.value_iterated_to().min(LONGEST_NS);
            let _ = latency.0.record_n(at, v.count_at_value());
        }
        latency
    }

    fn to_text(&self) -> Result<String, LatencyError> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(|e| LatencyError(e.to_string()))?;
        Ok(STANDARD.encode(bytes))
    }

    fn from_text(text: &str) -> Result<Self, LatencyError> {
        if text.len() > LARGEST_TEXT {
            return Err(LatencyError(format!("{} bytes", text.len())));
        }
        let bytes = STANDARD.decode(text).map_err(|e| LatencyError(e.to_string()))?;
        let read: Histogram<u64> =
            Reader::new().deserialize(&mut bytes.as_slice()).map_err(|e| LatencyError(e.to_string()))?;
        if read.high() > LONGEST_NS || read.sigfig() != DIGITS || read.low() != 1 {
            return Err(LatencyError("other bounds than 1 ns to 1 h with 3 digits".to_owned()));
        }
        Ok(Latency(read))
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_text().map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Latency::from_text(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_every_figure() {
        let mut l = Latency::new();
        for ns in [0, 1, 999, 1_000, 123_456, 7_000_000_000_000] {
            l.record(ns);
        }
        let back = Latency::from_text(&l.to_text().unwrap()).unwrap();
        assert_eq!(back.summary(), l.summary());
        assert_eq!(back.buckets().collect::<Vec<_>>(), l.buckets().collect::<Vec<_>>());
    }

    #[test]
    fn garbage_is_refused() {
        for bad in ["", "%%%", "AAAA", &"A".repeat(2 << 20)] {
            assert!(Latency::from_text(bad).is_err(), "{bad:.10}");
        }
    }
}
