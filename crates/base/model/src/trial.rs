//! A trial: one workload, on one machine, once; what the agent sends back and what the recording keeps, each operation as the
//! workload stamped it among it.

use crate::{
    CpuSeconds, DamagedError, Execution, Latency, LatencySummary, Machine, Metric, PinnedCpus,
    Probes, ShareFacts, Warning, WorkloadSpec,
};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// One value of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Metric that was measured.
    pub metric: Metric,
    /// In the metric's unit; finite and not negative.
    pub value: f64,
}

/// The end of the name of an operation that ran in the micro-guest's kernel mode.
pub const KERNEL_MODE: &str = ", kernel mode";

/// The latencies of one kind of operation (`event`, `read`, `getpid`, …).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The operation's name within its workload.
    pub name: String,
    /// Each operation's time, the timer's own cost included (see [`Timer::pair_ns`]).
    pub latency: Latency,
}

/// VM exits of one kind of operation, as KVM itself counts them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationExits {
    /// The operation's name within its workload.
    pub operation: String,
    /// Of each, on average.
    pub each: f64,
}

/// A metric that could not be measured because the system lacks what it needs: reported, never as a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// Metric that has no value.
    pub metric: Metric,
    /// Why, for people (`ENOSYS: clock_gettime`).
    pub reason: String,
}

/// Outcome for something that a file is or has, on its way through a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeping {
    /// It is as it was made.
    Kept,
    /// It was taken, and is not there.
    Lost,
    /// It was refused with an error.
    Refused,
}

/// End of the name of a property that the host found, checking the same files.
pub const ON_THE_HOST: &str = " on the host";

/// One thing that was tried, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Name of the property: "hard link", "user xattr".
    pub what: String,
    /// Outcome: kept, lost or refused.
    pub keeping: Keeping,
    /// Description of the result, for people.
    pub detail: String,
}

/// sysbench's fairness: how evenly the threads got through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Number of worker threads.
    pub threads: u32,
    /// Mean number of events of a thread.
    pub events_mean: f64,
    /// Standard deviation (population) of it.
    pub events_stddev: f64,
    /// Mean time a thread spent inside events, seconds.
    pub time_mean_s: f64,
    /// Standard deviation (population) of it.
    pub time_stddev_s: f64,
}

/// Where the times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerSource {
    /// The time stamp counter, scaled by a fixed-point factor.
    Tsc,
    /// The system call `clock_gettime(CLOCK_MONOTONIC)`.
    ClockGettime,
}

/// The timer that stamped the operations of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// Source of the times.
    pub source: TimerSource,
    /// Ticks per microsecond as calibrated; 1000 for `clock_gettime`.
    pub mhz: f64,
    /// Relative disagreement of two calibrations in a row.
    pub error: f64,
    /// Cost of one start-stop pair, ns (median): part of every latency.
    pub pair_ns: f64,
    /// Why not the TSC, when it is not.
    pub reason: Option<String>,
}

/// The kernel that a trial ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelIdentity {
    /// Name of the kernel, `uname -s`.
    pub system: String,
    /// Release of the kernel, `uname -r`.
    pub release: String,
    /// Version of the kernel, `uname -v`.
    pub version: String,
}

/// Requests that the workload waited for in vain, and what came instead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Requests that got no response in time.
    pub lost: u64,
    /// Responses that came when another was awaited: late, or twice.
    pub late: u64,
}

/// Result that the agent sends back for a trial that ran to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// The workload with every option as it took effect, defaults included.
    pub workload: WorkloadSpec,
    /// Values of the metrics.
    pub measures: Vec<Measure>,
    /// Latency distributions, by kind of operation.
    #[serde(deserialize_with = "few_operations")]
    pub operations: Vec<Operation>,
    /// VM exits of those operations whose exits were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<OperationExits>,
    /// Metrics that have no figure, with the reason.
    pub unsupported: Vec<Unsupported>,
    /// Properties of files that the share keeps or loses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// Other facts that the reader of the figures should know: a limit that was raised, a file that memory holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Of requests over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// Fairness over threads, for the workloads of sysbench.
    pub fairness: Option<Fairness>,
    /// Wall time of the measured part, seconds.
    pub total_s: f64,
    /// The timer used.
    pub timer: Timer,
    /// The kernel underneath.
    pub kernel: KernelIdentity,
    /// Output of the program that made the requests, as it is: on its way to [`crate::files::FIO`], where a recording keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The most kinds of operations that a result may have: four times what the workload with the most kinds has.
const MOST_OPERATIONS: usize = 64;

/// Each histogram takes a hundred times its text in memory, so a result from a stranger is refused while it is read,
/// not after.
fn few_operations<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Operation>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Operation>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST_OPERATIONS} operations")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Operation>, A::Error> {
            let mut operations = Vec::new();
            while let Some(operation) = items.next_element()? {
                if operations.len() == MOST_OPERATIONS {
                    return Err(A::Error::invalid_length(MOST_OPERATIONS + 1, &self));
                }
                operations.push(operation);
            }
            Ok(operations)
        }
    }
    d.deserialize_seq(Few)
}

impl TrialResult {
    /// A result with nothing in it yet.
    pub fn new(workload: WorkloadSpec, timer: Timer, kernel: KernelIdentity) -> TrialResult {
        TrialResult {
            workload,
            measures: Vec::new(),
            operations: Vec::new(),
            exits: Vec::new(),
            unsupported: Vec::new(),
            kept: Vec::new(),
            notes: Vec::new(),
            unanswered: None,
            fairness: None,
            total_s: 0.0,
            timer,
            kernel,
            output: None,
        }
    }

    /// The value of a metric, if this trial has it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let mut measures = self.measures.iter();
        Some(measures.find(|m| m.metric == metric)?.value)
    }

    /// The summary of one operation's latencies.
    pub fn summary(&self, operation: &str) -> Option<LatencySummary> {
        let mut operations = self.operations.iter();
        operations.find(|o| o.name == operation)?.latency.summary()
    }
}

/// Outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran to its end.
    Done {
        /// Result of the trial.
        result: Box<TrialResult>,
    },
    /// It could not run or broke off.
    Failed {
        /// Reason of the failure and what to do, for people.
        error: String,
    },
    /// A person or a signal stopped it.
    Interrupted,
}

/// A trial as the recording keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Position in the order of execution, from 0; the folder's name.
    pub number: u32,
    /// The round it belongs to, from 0.
    pub round: u32,
    /// Where it ran.
    pub machine: Machine,
    /// Name of one of the plan's variants.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// At which size of the plan's range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Turn of its boot, from 0, where variants took turns in one boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Under what it ran.
    #[serde(default)]
    pub probes: Probes,
    /// Workload that was requested.
    pub workload: WorkloadSpec,
    /// When it started, RFC 3339.
    pub started: String,
    /// From sending the request to the answer, seconds, by the controller's clock.
    pub wall_s: f64,
    /// Outcome with the result or the error.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Settings of the guest's share that took effect, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareFacts>,
    /// The host CPUs that its threads were pinned to; `None` where the host's scheduler placed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedCpus>,
    /// CPU time that the trial cost the host; natively `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<CpuSeconds>,
    /// Time that the host took for a fixed piece of work just before the machine booted, seconds; measured in
    /// comparisons alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_s: Option<f64>,
    /// Execution of the command of the workload `exec`; `None` where it was not even tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// Warnings that the reader should know.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl TrialRecord {
    /// Why it has no result; `None` when it has one.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Failed { error } => Some(error),
            Outcome::Interrupted => Some("the run was interrupted"),
            Outcome::Done { .. } if self.stood_still() => Some("the guest stood still"),
            Outcome::Done { .. } => None,
        }
    }

    /// Returns true if the machine stood still for a part of the trial.
    fn stood_still(&self) -> bool {
        let mut warnings = self.warnings.iter();
        warnings.any(|warning| matches!(warning, Warning::StoodStill { .. }))
    }

    /// The result, if it ran to its end and counts.
    pub fn result(&self) -> Option<&TrialResult> {
        match &self.outcome {
            Outcome::Done { .. } if self.stood_still() => None,
            Outcome::Done { result } => Some(result),
            Outcome::Failed { .. } | Outcome::Interrupted => None,
        }
    }
}

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

/// The key of a round trip over the network, with which its request and its response begin: the thread that makes it, and
/// its number among those of the thread, of which the lower 32 bits count.
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
    /// [`DamagedError`] for a wrong magic number, a truncated file, an invalid frequency, or an end before its begin.
    pub fn from_bytes(bytes: &[u8]) -> Result<Series, DamagedError> {
        let wrong = |why: &str| DamagedError::new("series of operations", why);
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

    #[test]
    fn a_flood_of_operations_is_refused_while_it_is_read() {
        let operation = serde_json::to_string(&Operation {
            name: "x".into(),
            latency: Latency::new(),
        })
        .unwrap();
        let read = |count: usize| {
            let text = format!("[{}]", vec![operation.as_str(); count].join(","));
            few_operations(&mut serde_json::Deserializer::from_str(&text)).map(|o| o.len())
        };
        assert_eq!(read(MOST_OPERATIONS).unwrap(), MOST_OPERATIONS);
        assert!(read(MOST_OPERATIONS + 1).is_err());
    }

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
