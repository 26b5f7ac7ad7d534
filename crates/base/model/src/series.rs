//! The operations of a trial, each as the workload stamped it.

/// One operation of a workload, with its time stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// Begin, TSC ticks of the machine.
    pub begin: u64,
    /// End, TSC ticks of the machine.
    pub end: u64,
    /// Key by which the operation's request is found: for a disk, the byte offset; for a round trip over the network
    /// its [`round_trip_key`].
    pub key: u64,
}

/// The key of a round trip over the network, with which its request and its response begin: the thread that makes it, and its number
/// among those of the thread, of which the lower 32 bits count.
pub const fn round_trip_key(thread: i32, number: u64) -> u64 {
    (thread as u32 as u64) << 32 | (number & 0xffff_ffff)
}

/// The thread that made a round trip of this key; 0 in a recording of a version that did not say.
pub const fn thread_of_round_trip(key: u64) -> i32 {
    (key >> 32) as i32
}

/// The operations of a trial in the order in which they began. On disk and on the wire: a header of 16 bytes
/// (`VMTXOPS1`, then ticks per microsecond as a little-endian f64), then 24 bytes an operation (begin, end, key,
/// each a little-endian u64).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Ticks per microsecond as the machine itself calibrated them.
    pub mhz: f64,
    /// Operations in the order in which they began.
    pub operations: Vec<Stamped>,
}

const MAGIC: &[u8; 8] = b"VMTXOPS1";
const HEADER: usize = 16;
const EACH: usize = 24;

/// The bytes are not a series of operations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a series of operations cannot be read ({0}): the file is damaged or from another tool")]
pub struct SeriesError(String);

impl Series {
    /// Returns the series as bytes, in the format that [`Series`] describes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + EACH * self.operations.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.mhz.to_le_bytes());
        for o in &self.operations {
            for word in [o.begin, o.end, o.key] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`SeriesError`] for a wrong magic number, a truncated file, an invalid frequency, or an end before its begin.
    pub fn from_bytes(bytes: &[u8]) -> Result<Series, SeriesError> {
        let wrong = |why: &str| SeriesError(why.to_owned());
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(wrong("wrong magic number"));
        }
        let mhz = f64::from_le_bytes(word(8));
        if !(1.0..=1e6).contains(&mhz) {
            return Err(wrong("invalid clock frequency"));
        }
        if (bytes.len() - HEADER) % EACH != 0 {
            return Err(wrong("truncated"));
        }
        let mut operations = Vec::with_capacity((bytes.len() - HEADER) / EACH);
        for at in (HEADER..bytes.len()).step_by(EACH) {
            let [begin, end, key] = [at, at + 8, at + 16].map(|at| u64::from_le_bytes(word(at)));
            if end < begin {
                return Err(wrong("an operation ends before it begins"));
            }
            operations.push(Stamped { begin, end, key });
        }
        Ok(Series { mhz, operations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_read_back(ops in proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 0..50)) {
            let operations = ops
                .into_iter()
                .map(|(b, d, key)| Stamped { begin: u64::from(b), end: u64::from(b) + u64::from(d), key })
                .collect();
            let series = Series { mhz: 2596.1, operations };
            prop_assert_eq!(Series::from_bytes(&series.to_bytes()), Ok(series));
        }

        #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Series::from_bytes(&bytes);
            let mut with_head = MAGIC.to_vec();
            with_head.extend_from_slice(&2000f64.to_le_bytes());
            with_head.extend_from_slice(&bytes);
            let _ = Series::from_bytes(&with_head);
        }
    }

    #[test]
    fn truncated_series_and_negative_durations_are_refused() {
        let whole = Series {
            mhz: 1.0,
            operations: vec![Stamped {
                begin: 5,
                end: 7,
                key: 0,
            }],
        };
        let bytes = whole.to_bytes();
        assert!(Series::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let back = Series {
            mhz: 1.0,
            operations: vec![Stamped {
                begin: 7,
                end: 5,
                key: 0,
            }],
        };
        assert!(Series::from_bytes(&back.to_bytes()).is_err());
    }
}
