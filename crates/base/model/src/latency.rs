//! Distributions of durations: latencies as an HDR histogram of nanoseconds with three significant digits, and the row of a table
//! of system calls.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Reader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::Read;

/// The longest latency distinguished: one hour. Longer ones count as one hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

const DIGITS: u8 = 3;

/// No honest V2 histogram of our range is larger, packed or unpacked; one that is gets refused before it takes memory.
const LARGEST: usize = 1 << 20;

/// More operations than any trial makes (78 hours of one each nanosecond); sums of thousands of such still fit a `u64`.
const MOST_OPERATIONS: u64 = 1 << 48;

/// A histogram or a series of operations cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {what} cannot be read ({why}): the file is damaged or from another tool")]
pub struct DamagedError {
    what: &'static str,
    why: String,
}

impl DamagedError {
    /// Makes the error of something that is no `what`.
    pub(crate) fn new(what: &'static str, why: impl ToString) -> DamagedError {
        DamagedError {
            what,
            why: why.to_string(),
        }
    }
}

fn damaged(why: impl ToString) -> DamagedError {
    DamagedError::new("latency histogram", why)
}

/// Distribution of the latencies of one kind of operation, in nanoseconds. Serialised as HdrHistogram's V2 (deflate,
/// base64), which HdrHistogram's own tools read.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency(Histogram<u64>);

/// The usual figures of a distribution, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of operations.
    pub count: u64,
    /// Shortest latency, ns.
    pub min_ns: u64,
    /// Mean latency, ns.
    pub mean_ns: f64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// 95 % are at most this.
    pub p95_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// Longest latency, ns.
    pub max_ns: u64,
    /// Sum of all latencies, ns.
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

    /// Count `count` operations of `ns` nanoseconds each.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
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
        self.0
            .iter_recorded()
            .map(|v| (v.value_iterated_to(), v.count_at_value()))
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

    /// As HdrHistogram's V2 text: deflate, base64.
    ///
    /// # Errors
    /// [`DamagedError`] when the histogram cannot be written, which a histogram of our bounds always can.
    pub fn to_text(&self) -> Result<String, DamagedError> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(damaged)?;
        Ok(STANDARD.encode(bytes))
    }

    /// From HdrHistogram's V2 text. The text may come from a guest or a stranger's file: nothing in it can panic or
    /// take more than a few MiB.
    ///
    /// # Errors
    /// [`DamagedError`] for anything that [`Latency::to_text`] would not write.
    pub fn from_text(text: &str) -> Result<Self, DamagedError> {
        if text.len() > LARGEST {
            return Err(damaged(format!("{} bytes", text.len())));
        }
        let packed = STANDARD.decode(text).map_err(damaged)?;
        let plain = unpack(&packed)?;
        let read: Histogram<u64> = Reader::new()
            .deserialize(&mut plain.as_slice())
            .map_err(damaged)?;
        Ok(Latency(read))
    }
}

/// Unpacks a V2 histogram and checks what the library takes on trust: the length it allocates, the bounds, run lengths
/// it negates, and counts it adds up. Format: HdrHistogram's `V2` encoding.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, DamagedError> {
    const DEFLATED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
    const PLAIN: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
    const HEADER: usize = 40;
    let Some((cookie, rest)) = packed.split_first_chunk::<4>() else {
        return Err(damaged("cut off"));
    };
    if *cookie != DEFLATED || rest.len() < 4 {
        return Err(damaged("not a deflated V2 histogram"));
    }
    let mut plain = Vec::new();
    let inflater = flate2::read::ZlibDecoder::new(&rest[4..]);
    let mut inflater = inflater.take(LARGEST as u64 + 1);
    inflater.read_to_end(&mut plain).map_err(damaged)?;
    if plain.len() < HEADER || plain.len() > LARGEST || !plain.starts_with(&PLAIN) {
        return Err(damaged("not a V2 histogram of our size"));
    }
    // After the cookie: payload length, normalising offset, digits; then lowest and highest value; then a ratio of 1.
    let mut expected = Vec::with_capacity(HEADER - 4);
    for word in [(plain.len() - HEADER) as u32, 0, u32::from(DIGITS)] {
        expected.extend(word.to_be_bytes());
    }
    expected.extend(1_u64.to_be_bytes());
    expected.extend(LONGEST_NS.to_be_bytes());
    expected.extend(1.0_f64.to_be_bytes());
    let (header, counts) = plain.split_at(HEADER);
    if header[4..] != expected {
        return Err(damaged(
            "other length or bounds than 1 ns to 1 h with 3 digits",
        ));
    }
    check_counts(counts)?;
    Ok(plain)
}

/// Checks the counts of a histogram: zig-zag LEB128 of at most nine bytes, the ninth whole; a negative number is a run of
/// empty buckets.
fn check_counts(counts: &[u8]) -> Result<(), DamagedError> {
    let mut bytes = counts.iter().copied().peekable();
    let (mut total, mut empty) = (0_u64, 0_u64);
    while bytes.peek().is_some() {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = bytes.next().ok_or_else(|| damaged("a count is cut off"))?;
            if shift == 56 {
                number |= u64::from(byte) << 56;
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        // Without its sign bit the number is the count, or the run's length less one.
        let is_count = number & 1 == 0;
        let sum = if is_count { &mut total } else { &mut empty };
        *sum = sum.saturating_add(number >> 1);
        if total.max(empty) > MOST_OPERATIONS {
            return Err(damaged("more operations than a trial can make"));
        }
    }
    Ok(())
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

/// A kind of system call on one thread, or the time in user space after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// "ppoll", "io_submit", "ioctl(KVM_RUN)"; with "_post" behind it for the user time after it.
    pub name: String,
    /// Number of calls, or of times in user space after them.
    pub count: u64,
    /// Mean duration, ns.
    pub mean_ns: f64,
    /// Standard deviation, ns.
    pub stddev_ns: f64,
    /// Shortest duration, ns.
    pub min_ns: f64,
    /// Longest duration, ns.
    pub max_ns: f64,
    /// Sum of all durations, ns.
    pub total_ns: f64,
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
        assert_eq!(
            back.buckets().collect::<Vec<_>>(),
            l.buckets().collect::<Vec<_>>()
        );
    }

    #[test]
    fn garbage_is_refused() {
        for bad in ["", "%%%", "AAAA", &"A".repeat(2 << 20)] {
            assert!(Latency::from_text(bad).is_err(), "{bad:.10}");
        }
    }

    /// A V2 text with a header of our making and any payload.
    fn forged(claimed_length: u32, high: u64, payload: &[u8]) -> String {
        let mut plain = 0x1c84_9313_u32.to_be_bytes().to_vec();
        for word in [claimed_length, 0, 3] {
            plain.extend(word.to_be_bytes());
        }
        plain.extend(1_u64.to_be_bytes());
        plain.extend(high.to_be_bytes());
        plain.extend(1.0_f64.to_be_bytes());
        plain.extend(payload);
        let mut packed =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut packed, &plain).unwrap();
        let packed = packed.finish().unwrap();
        let mut bytes = 0x1c84_9314_u32.to_be_bytes().to_vec();
        bytes.extend((packed.len() as u32).to_be_bytes());
        bytes.extend(packed);
        STANDARD.encode(bytes)
    }

    #[test]
    fn forged_histograms_are_refused_before_they_harm() {
        // Six operations in bucket 0: the forgery itself is sound.
        assert_eq!(
            Latency::from_text(&forged(1, LONGEST_NS, &[12]))
                .unwrap()
                .count(),
            6
        );
        // 4 GiB claimed; other bounds; a run length that cannot be negated; counts whose sum overflows; a cut number.
        assert!(Latency::from_text(&forged(u32::MAX, LONGEST_NS, &[12])).is_err());
        assert!(Latency::from_text(&forged(1, u64::MAX, &[12])).is_err());
        assert!(Latency::from_text(&forged(9, LONGEST_NS, &[0xff; 9])).is_err());
        assert!(Latency::from_text(&forged(18, LONGEST_NS, &[0xfe; 18])).is_err());
        assert!(Latency::from_text(&forged(1, LONGEST_NS, &[0x80])).is_err());
        // The most operations that are read, behind buckets that are empty one by one: written, these are a run.
        let most = [&[0; 31][..], &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat();
        let read = Latency::from_text(&forged(most.len() as u32, LONGEST_NS, &most)).unwrap();
        assert_eq!(Latency::from_text(&read.to_text().unwrap()), Ok(read));
        // A zip bomb: 64 MiB of zeros.
        assert!(Latency::from_text(&forged(64 << 20, LONGEST_NS, &vec![0; 64 << 20])).is_err());
        // More buckets than the range has: the library's own check.
        assert!(Latency::from_text(&forged(40_000, LONGEST_NS, &[2; 40_000])).is_err());
    }
}
