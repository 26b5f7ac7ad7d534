//! The findings of `layers`: where the time of a request goes; the time that recorded events add to it.

use crate::{Advice, Comparison, Estimate, Summary};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use vmtax_model::{
    CallRow, Checkpoint, EventCost, EventKind, Layer, Machine, Missing, Role, Unanswered, Warning,
};

/// State of a request while it is in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum State {
    /// A CPU executes for it, or the device works on it.
    Running,
    /// A runnable thread of QEMU waits for a host CPU: steal as the guest sees it, %RDY in esxtop.
    Runnable,
    /// A runnable task of the guest waits for a vCPU.
    GuestRunnable,
    /// An idle host CPU leaves its C-state for a thread that was woken.
    CpuWakeUp,
    /// An idle vCPU leaves its idle state, HLT, for a task of the guest that was woken.
    GuestCpuWakeUp,
    /// A thread waits for a lock.
    Lock,
    /// The thread that will work for it sleeps and was not woken yet.
    Waiting,
    /// It is queued in the avail ring, without a kick.
    InRing,
    /// It lies in a queue of the host's network stack, until a timer or another packet moves it on.
    Queued,
    /// It is in a layer whose threads the trace does not show.
    NotDistinguished,
}

impl State {
    /// As tables name it.
    pub const fn label(self) -> &'static str {
        match self {
            State::Running => "service time",
            State::Runnable => "run-queue wait (host)",
            State::GuestRunnable => "run-queue wait (guest)",
            State::CpuWakeUp => "C-state exit (host)",
            State::GuestCpuWakeUp => "C-state exit (guest)",
            State::Lock => "waiting for a lock",
            State::Waiting => "blocked",
            State::InRing => "queued in the avail ring, no kick",
            State::Queued => "queued in a queueing discipline",
            State::NotDistinguished => "not distinguished",
        }
    }
}

/// One row: an interval of a request's path, in one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub from: Checkpoint,
    pub to: Checkpoint,
    pub layer: Layer,
    pub state: State,
    /// "guest system call to guest block issue".
    pub label: String,
    /// Length of the interval over all requests, ns, 0 for a request that does not have it; traced.
    pub time: Summary,
    /// Median of the rounds' means, with its 95 % CI, ns; traced.
    pub mean: Estimate,
    /// Percent of the traced mean latency.
    pub percent: f64,
    /// Number of requests that have it.
    pub count: u64,
    /// Recorded events that lie in it on a request's path, mean; `None` where their cost was not calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<f64>,
    /// Mean of the interval less the cost of these events, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_ns: Option<f64>,
    /// True if the mean is below the clock error, so that the interval's length is not significant.
    pub below_bound: bool,
}

/// Cost of an event of one kind for the thread that passes it, over the trials' calibrations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibratedCost {
    /// "guest" or "host".
    pub side: String,
    pub kind: EventKind,
    /// Number of repetitions.
    pub repetitions: u32,
    /// The first of its kind since the thread slept: median and 95 % CI, ns.
    pub first_ns: Estimate,
    /// Another after it, ns.
    pub again_ns: Estimate,
}

/// The traced requests less the calibrated cost of the events on their paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Corrected {
    /// Latency of the matched operations.
    pub total: Summary,
    /// Part of the mean that no row accounts for, ns.
    pub unexplained_ns: f64,
    /// Median of the rounds' medians, with its 95 % CI, ns.
    pub median: Estimate,
    /// Corrected over untraced, from the rounds' medians.
    pub ratio: Option<Estimate>,
    /// Recorded events on the path of a request, mean.
    pub events: f64,
    /// By side and kind.
    pub costs: Vec<CalibratedCost>,
}

/// A layer from entry to exit, as published tables of virtio-blk latency nest them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// "guest benchmark", "guest virtio", "KVM", "QEMU virtio", "QEMU AIO", "host disk".
    pub label: String,
    /// Time from entry to exit.
    pub cumulative: Summary,
    /// Mean beyond that of the next inner layer, ns.
    pub delta_ns: f64,
    /// `delta_ns` in percent of the outermost layer's mean.
    pub percent: f64,
}

/// One step in the life of a request, at the median of each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub label: String,
    /// Median time since the previous step, ns.
    pub since_previous_ns: f64,
    /// Thread that passed the checkpoint: "guest", "vCPU 0", "main loop", "iothread io0", "worker", "host kernel".
    pub thread: String,
}

/// The system calls of one thread of QEMU while requests were under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCalls {
    pub role: Role,
    /// By total time, largest first.
    pub calls: Vec<CallRow>,
    /// Lock waits of the thread (futex), also among the calls.
    pub locks: Option<CallRow>,
}

/// One request drawn as a waterfall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waterfall {
    /// "median" or "p99".
    pub which: String,
    /// Latency of the request, ns.
    pub total_ns: f64,
    /// The segments, in order: begin and end since the operation's begin, ns.
    pub spans: Vec<Span>,
}

/// A segment of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub layer: Layer,
    pub state: State,
    pub label: String,
    /// The thread that works for the request, or that it waits for.
    pub thread: String,
    /// Begin since the operation's begin, ns.
    pub begin_ns: f64,
    /// End since the operation's begin, ns.
    pub end_ns: f64,
}

/// Number of a column's operations that were joined with their requests, and the reasons why the others were not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Matched {
    /// Traced operations of the workload.
    pub operations: u64,
    /// Operations followed through every layer.
    pub joined: u64,
    /// Operations that were not, by reason.
    pub rejected: Vec<(String, u64)>,
    /// Events that the ring buffers dropped.
    pub lost_events: u64,
}

/// Agreement of guest and host ticks, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockFinding {
    /// Half the width of the offset's interval, ns: the largest of the trials.
    pub bound_ns: f64,
    /// Source of the offset: "KVM's offset", "timestamps exchanged through shared memory", "estimated from the order
    /// of events of a request", "same counter".
    pub source: String,
    /// Distance by which the offset moved beyond its bound during a trial, ns: the largest of the trials.
    pub drift_ns: f64,
    /// Requests whose events violate causality; they are rejected.
    pub violations: u64,
}

/// A row among the slowest 1 % of the requests beside the median ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TailRow {
    pub label: String,
    /// Mean of the row among the requests around the median, ns.
    pub median_ns: f64,
    /// Mean of the row among the slowest 1 % of the requests, ns.
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
    pub machine: Machine,
    /// Empty for the only one; of a VM that vmtax did not boot the disk and the kind of request.
    pub variant: String,
    /// True if the column is of a VM that vmtax did not boot, as its host sees it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_host: bool,
    /// True if an imported trace does not say which accelerator ran the VM.
    #[serde(skip)]
    pub is_accelerator_unknown: bool,
    /// Number of rounds with a traced result.
    pub rounds: u32,
    pub matched: Matched,
    pub clock: ClockFinding,
    /// Latency of the operations as the workload measured it, traced.
    pub traced: Summary,
    /// Latency of the operations as the workload measured it, untraced.
    pub control: Option<Summary>,
    /// Median of the rounds' untraced medians, with its 95 % CI, ns.
    pub control_median: Option<Estimate>,
    /// Tracing overhead: traced over untraced, from the rounds' medians.
    pub observer: Option<Estimate>,
    /// In the order of the path; their means and `unexplained_ns` sum up to the traced mean.
    pub rows: Vec<Row>,
    /// Traced mean that no row accounts for, ns.
    pub unexplained_ns: f64,
    /// `None` where it was not calibrated what recording costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Corrected>,
    pub nested: Vec<Nested>,
    pub lifecycle: Vec<Step>,
    /// System calls of QEMU's threads.
    pub calls: Vec<ThreadCalls>,
    pub tail: Vec<TailRow>,
    /// The requests drawn.
    pub waterfalls: Vec<Waterfall>,
    /// Latency over the run.
    pub heat: HeatMap,
    /// Of round trips over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketCounts>,
    /// Requests that fio counted itself in the traced runs, of which `traced` is: its completion latency; `None` of other
    /// workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fio_requests: Option<u64>,
    /// Figures that could not be observed, with the reason.
    pub missing: Vec<Missing>,
}

/// The column that an answer and its advice are about: the first Linux guest's, else the first; one with joined requests
/// if there is any.
pub fn main_column(columns: &[LayerColumn]) -> Option<&LayerColumn> {
    let first = |fits: fn(&LayerColumn) -> bool| columns.iter().find(|column| fits(column));
    first(|c| c.matched.joined > 0 && c.machine.has_kernel())
        .or_else(|| first(|c| c.matched.joined > 0))
        .or_else(|| first(|c| c.machine.has_kernel()))
        .or(columns.first())
}

/// A variant compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub machine: Machine,
    /// The baseline: the first variant.
    pub base: String,
    pub variant: String,
    /// The untraced median latency compared with the baseline's, from paired rounds, ns.
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
        let faster = c
            .verdict
            .is_decided()
            .then_some(c.verdict == Verdict::Faster);
        Faster {
            ratio: c.ratio,
            difference_ns: c.difference,
            rounds: c.rounds,
            faster,
        }
        .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Comparison, D::Error> {
        let Faster {
            ratio,
            difference_ns,
            rounds,
            ..
        } = Faster::deserialize(deserializer)?;
        Ok(Comparison {
            ratio,
            difference: difference_ns,
            rounds,
            p: None,
            verdict: Verdict::by_interval(&ratio, 1.0),
        })
    }
}

/// The findings of a `layers` recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Planned number of rounds.
    pub rounds_planned: u32,
    /// Latency of the same workload on the host and the same file; `None` where the plan has no native machine.
    pub host: Option<Summary>,
    /// By guest in the plan's order, then by variant.
    pub columns: Vec<LayerColumn>,
    /// Variants compared with the baseline.
    pub differences: Vec<Difference>,
    /// Method by which figures and intervals were computed.
    pub method: String,
    pub warnings: Vec<Warning>,
    /// At most five, by gain, largest first.
    pub advice: Vec<Advice>,
}

/// Kind of event that serves several packets at once, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchKind {
    /// The guest's notification of its transmit queue.
    Doorbell,
    /// QEMU's system call that writes to the backend.
    Write,
    /// The guest's receive interrupt.
    Interrupt,
    /// A packet as the guest's stack receives it: GRO merges several of one connection.
    Gro,
    /// A packet as the guest's stack hands it to the card, which segments it (TSO, or GSO of UDP).
    Tso,
}

impl BatchKind {
    /// As a table names it.
    pub fn label(self) -> &'static str {
        match self {
            BatchKind::Doorbell => "transmitted per doorbell",
            BatchKind::Write => "transmitted per write to the backend",
            BatchKind::Interrupt => "received per interrupt",
            BatchKind::Gro => "received per packet of the guest's stack (GRO)",
            BatchKind::Tso => "segments per packet of the guest's stack (TSO)",
        }
    }
}

/// Packets, and what served them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    pub kind: BatchKind,
    pub packets: u64,
    /// Number of doorbells, writes, interrupts, or merged packets.
    pub batches: u64,
}

impl Batching {
    /// Packets per batch.
    pub fn mean(&self) -> f64 {
        self.packets as f64 / self.batches.max(1) as f64
    }
}

/// The packets of the traced round trips, from the first's begin to the last's end; others on the card, such as TCP's
/// acknowledgements, are among the batched ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Of what was observed.
    pub batching: Vec<Batching>,
    #[serde(flatten)]
    pub unanswered: Unanswered,
    /// Packets that QEMU passed on again: TCP sent them twice.
    pub repeated: u64,
    /// Packets that QEMU passed on after a later one of the same connection.
    pub reordered: u64,
}

impl PacketCounts {
    /// Adds those of another trial.
    pub fn add(&mut self, other: &PacketCounts) {
        for batching in &other.batching {
            match self
                .batching
                .iter_mut()
                .find(|known| known.kind == batching.kind)
            {
                Some(known) => {
                    known.packets += batching.packets;
                    known.batches += batching.batches;
                }
                None => self.batching.push(*batching),
            }
        }
        self.unanswered.lost += other.unanswered.lost;
        self.unanswered.late += other.unanswered.late;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
    }
}

/// Costs of events at one trial, ns: the medians of its repetitions, 0 for a kind that was not calibrated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EventCosts {
    first_ns: [f64; EventKind::ALL.len()],
    again_ns: [f64; EventKind::ALL.len()],
}

impl EventCosts {
    /// Returns the medians of these repetitions; `None` where nothing was calibrated.
    pub fn medians(repetitions: &[EventCost]) -> Option<EventCosts> {
        let median = |kind: EventKind, of: fn(&EventCost) -> f64| {
            let mut values: Vec<f64> = repetitions
                .iter()
                .filter(|cost| cost.kind == kind)
                .map(of)
                .collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).map_or(0.0, |ns| ns.max(0.0))
        };
        (!repetitions.is_empty()).then(|| EventCosts {
            first_ns: EventKind::ALL.map(|kind| median(kind, |cost| cost.first_ns)),
            again_ns: EventKind::ALL.map(|kind| median(kind, |cost| cost.again_ns)),
        })
    }

    /// Returns the cost of an event, ns; `first`: the first of its kind since the thread slept.
    pub fn ns(&self, kind: EventKind, first: bool) -> f64 {
        if first {
            self.first_ns[kind as usize]
        } else {
            self.again_ns[kind as usize]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_medians_of_repetitions() {
        assert_eq!(EventCosts::medians(&[]), None);
        let cost = |kind, first_ns, again_ns| EventCost {
            kind,
            first_ns,
            again_ns,
        };
        let repetitions = [
            cost(EventKind::Call, 300.0, 90.0),
            cost(EventKind::Uprobe, 900.0, -3.0),
            cost(EventKind::Call, 5000.0, 80.0),
            cost(EventKind::Call, 200.0, 100.0),
        ];
        let costs = EventCosts::medians(&repetitions).unwrap();
        assert_eq!(
            (
                costs.ns(EventKind::Call, true),
                costs.ns(EventKind::Call, false)
            ),
            (300.0, 90.0)
        );
        assert_eq!(
            (
                costs.ns(EventKind::Uprobe, true),
                costs.ns(EventKind::Uprobe, false)
            ),
            (900.0, 0.0)
        );
        assert_eq!(costs.ns(EventKind::Schedule, true), 0.0);
        for (i, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(
                (kind as usize, serde_json::to_value(kind).unwrap()),
                (i, <&str>::from(kind).into())
            );
        }
    }
}
