//! What an analysis of requests through the layers says.

use crate::{Advice, Checkpoint, Comparison, Estimate, Layer, Machine, Missing, Role, State, Summary, Warning};
use serde::{Deserialize, Serialize};

/// One row: a stretch of the request's way, in one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where the stretch begins.
    pub from: Checkpoint,
    /// Where it ends.
    pub to: Checkpoint,
    /// The layer it counts for.
    pub layer: Layer,
    /// What the request does there.
    pub state: State,
    /// For people: "system call to block layer".
    pub label: String,
    /// How long, over all requests (0 where a request does not have it).
    pub time: Summary,
    /// Median of the rounds' means, with its interval, ns.
    pub mean: Estimate,
    /// Share of the whole, percent of the total's mean.
    pub percent: f64,
    /// Requests that have it at all.
    pub count: u64,
    /// Whether it is shorter than the clock's bound, so that its length says little.
    pub below_bound: bool,
}

/// The nested view that seed tables use: from a layer's entry to its exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// For people: "guest benchmark", "guest virtio", "KVM", "QEMU virtio", "QEMU AIO", "host disk".
    pub label: String,
    /// Time between entry and exit.
    pub cumulative: Summary,
    /// What it takes beyond the next inner one, mean, ns.
    pub delta_ns: f64,
    /// That as a share of the outermost, percent.
    pub percent: f64,
}

/// One step of the life of the median request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What happened, for people.
    pub label: String,
    /// Median time since the previous step, ns.
    pub since_previous_ns: f64,
    /// Who did it: "guest", "vCPU 0", "main loop", "iothread io0", "worker", "host kernel".
    pub thread: String,
}

/// A kind of system call on one thread, or the time in user space after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// "ppoll", "io_submit", "ioctl(KVM_RUN)"; with "_post" behind it for the user time after it.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Standard deviation, ns.
    pub stddev_ns: f64,
    /// Shortest, ns.
    pub min_ns: f64,
    /// Longest, ns.
    pub max_ns: f64,
    /// All, ns.
    pub total_ns: f64,
}

/// The system calls of one thread of QEMU while requests were under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCalls {
    /// Which thread.
    pub role: Role,
    /// Its calls, by total time.
    pub calls: Vec<CallRow>,
    /// Its waits for locks (futex), also among the calls; `None` where there was none.
    pub locks: Option<CallRow>,
}

/// One request drawn as a waterfall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waterfall {
    /// "median" or "p99".
    pub which: String,
    /// The whole, ns.
    pub total_ns: f64,
    /// The stretches, in order: begin and end since the operation's begin, ns.
    pub spans: Vec<Span>,
}

/// A stretch of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The layer.
    pub layer: Layer,
    /// What the request does.
    pub state: State,
    /// For people.
    pub label: String,
    /// Who works or should work.
    pub thread: String,
    /// Begin since the operation's begin, ns.
    pub begin_ns: f64,
    /// End, ns.
    pub end_ns: f64,
}

/// How many of a column's operations became joined requests, and what became of the rest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Matched {
    /// Operations that the workload made under probes.
    pub operations: u64,
    /// Those followed through every layer.
    pub joined: u64,
    /// Those that were not, by reason.
    pub rejected: Vec<(String, u64)>,
    /// Events that the kernels could not store.
    pub lost_events: u64,
}

/// How well guest and host ticks are known to agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockFinding {
    /// Half the width of the offset's interval, ns: the largest of the trials.
    pub bound_ns: f64,
    /// What gave it: "KVM's offset", "exchanges through shared memory", "causality of the requests", "same counter".
    pub source: String,
    /// How far the offset moved between a trial's begin and end beyond its bound, ns; 0 when it did not.
    pub drift_ns: f64,
    /// Requests whose events contradict cause and effect; they are rejected.
    pub violations: u64,
}

/// What the slowest 1 % do differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TailRow {
    /// The row's label.
    pub label: String,
    /// Its mean among the requests around the median, ns.
    pub median_ns: f64,
    /// Its mean among the slowest 1 %, ns.
    pub slowest_ns: f64,
}

/// A cell grid of latency over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Length of a column in time, ns.
    pub column_ns: f64,
    /// Lower edge of the lowest row, ns; each row is [`HeatMap::row_factor`] times the one below it.
    pub lowest_ns: f64,
    /// Ratio between rows.
    pub row_factor: f64,
    /// Counts, by column, then by row from the lowest.
    pub counts: Vec<Vec<u32>>,
}

/// One machine in one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerColumn {
    /// Which machine.
    pub machine: Machine,
    /// Which variant; empty for the only one.
    pub variant: String,
    /// Rounds with a result.
    pub rounds: u32,
    /// What was joined.
    pub matched: Matched,
    /// The clock.
    pub clock: ClockFinding,
    /// An operation as the workload stamped it, under probes.
    pub traced: Summary,
    /// Beside it, without.
    pub control: Option<Summary>,
    /// Median of the rounds' untraced medians, with its interval, ns.
    pub control_median: Option<Estimate>,
    /// Traced over control, from the rounds' medians.
    pub observer: Option<Estimate>,
    /// The rows, in the order of the way; their means and `unexplained_ns` sum up to the traced mean.
    pub rows: Vec<Row>,
    /// What no row accounts for, mean, ns.
    pub unexplained_ns: f64,
    /// From entry to exit of each layer.
    pub nested: Vec<Nested>,
    /// The life of a request.
    pub lifecycle: Vec<Step>,
    /// QEMU's threads.
    pub calls: Vec<ThreadCalls>,
    /// The slowest requests.
    pub tail: Vec<TailRow>,
    /// Pictures of single requests.
    pub waterfalls: Vec<Waterfall>,
    /// Latency over the run.
    pub heat: HeatMap,
    /// What could not be observed.
    pub missing: Vec<Missing>,
}

/// What a variant changes against the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Which machine.
    pub machine: Machine,
    /// The first variant.
    pub base: String,
    /// The other.
    pub variant: String,
    /// The untraced median latency compared with the first's, from paired rounds, ns.
    #[serde(flatten, with = "faster")]
    pub comparison: Comparison,
}

/// The form that `differences` have as JSON.
mod faster {
    use crate::{Comparison, Estimate, Verdict};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Faster {
        ratio: Estimate,
        difference_ns: Option<Estimate>,
        rounds: u32,
        faster: Option<bool>,
    }

    pub fn serialize<S: Serializer>(c: &Comparison, serializer: S) -> Result<S::Ok, S::Error> {
        let faster = c.verdict.is_decided().then_some(c.verdict == Verdict::Faster);
        Faster { ratio: c.ratio, difference_ns: c.difference, rounds: c.rounds, faster }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Comparison, D::Error> {
        let Faster { ratio, difference_ns, rounds, .. } = Faster::deserialize(deserializer)?;
        Ok(Comparison { ratio, difference: difference_ns, rounds, p: None, verdict: Verdict::of(&ratio, 1.0) })
    }
}

/// What a recording of requests through the layers says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerFindings {
    /// [`crate::SCHEMA`].
    pub schema: u32,
    /// Rounds asked for.
    pub rounds_planned: u32,
    /// The same work on the bare host and the same file; `None` where the plan has no native machine.
    pub host: Option<Summary>,
    /// Guests, in the plan's order, variants within them.
    pub columns: Vec<LayerColumn>,
    /// Variants against the first.
    pub differences: Vec<Difference>,
    /// How intervals were made, for people.
    pub method: String,
    /// What a reader of the figures has to know.
    pub warnings: Vec<Warning>,
    /// At most five, what gives back most first.
    pub advice: Vec<Advice>,
}
