//! The joined requests of a trial, the input of findings and exports: the checkpoints that they have in common, and the rows
//! between these.

use super::TrialData;
use crate::events::decode::Loss;
use crate::join::Reason;
use crate::{JoinedRequest, Segment, Who};
use std::collections::BTreeMap;
use vmtax_findings::{ClockFinding, Matched, PacketCounts, RequestKind, State};
use vmtax_model::{Checkpoint, EventCost, Layer, Missing, QemuThread, Role, Side};

/// The requests of one trial, each followed through the layers.
#[derive(Debug, Clone)]
pub struct JoinedTrial {
    /// Ticks per microsecond.
    pub mhz: f64,
    /// QEMU's threads, as [`Who::Thread`] numbers them.
    pub threads: Vec<QemuThread>,
    /// In the order of their ends.
    pub requests: Vec<JoinedRequest>,
    /// Number of operations, and why some are not joined.
    pub matched: Matched,
    /// Of round trips over the network.
    pub packets: Option<PacketCounts>,
    /// The error of the common clock.
    pub clock: ClockFinding,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
    pub(crate) common_path: CommonPath,
    /// Costs of recorded events in this trial: empty if they are not known of each side that was traced.
    pub(crate) costs: Vec<(Side, EventCost)>,
}

impl JoinedTrial {
    /// Rejects requests that overlap a loss of events or lack a checkpoint that the others have.
    pub(crate) fn new(data: TrialData) -> Self {
        let joined = data.joined;
        let (mut requests, rejected, may_lack) =
            (joined.requests, joined.rejected, joined.may_lack);
        let losses = Losses::new(&data.losses);
        let operations = (requests.len() + rejected.len()) as u64;
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        for rejected in rejected {
            let is_lost = losses.overlap(rejected.begin, rejected.end);
            let reason = if is_lost {
                Reason::Lost
            } else {
                rejected.reason
            };
            *reasons.entry(reason).or_default() += 1;
        }
        reject(&mut requests, &mut reasons, |r| {
            losses.overlap(r.begin(), r.end()).then_some(Reason::Lost)
        });
        let needed = CommonPath::needed(&requests);
        reject(&mut requests, &mut reasons, |r| {
            let mut needed = needed[&r.kind].iter();
            let lacked = needed.find(|c| r.at(**c).is_none() && !may_lack.contains(c));
            lacked.map(|checkpoint| Reason::Missing(*checkpoint))
        });
        let violations = reasons.get(&Reason::Violation).copied().unwrap_or(0);
        let rejected = reasons.into_iter();
        JoinedTrial {
            mhz: data.mhz,
            threads: joined.threads,
            matched: Matched {
                operations,
                joined: requests.len() as u64,
                rejected: rejected.map(|(reason, n)| (text(reason), n)).collect(),
                lost_events: losses.events,
            },
            common_path: CommonPath::of_requests(&requests),
            requests,
            packets: joined.packets,
            missing: data.missing,
            costs: data.costs,
            clock: ClockFinding {
                violations,
                ..data.clock
            },
        }
    }

    /// "guest", "main loop", "vCPU 0", "iothread io0", "worker", "host kernel".
    pub fn name(&self, who: Who) -> String {
        match who {
            Who::Guest => "guest".to_owned(),
            Who::Host => "host kernel".to_owned(),
            Who::Thread(number) => self
                .threads
                .get(usize::from(number))
                .map_or(&Role::Worker, |thread| &thread.role)
                .label(),
        }
    }

    /// The thread that makes most requests pass a checkpoint; empty where none does.
    pub(crate) fn thread_at(&self, checkpoint: Checkpoint) -> String {
        let mut threads: BTreeMap<Who, u64> = BTreeMap::new();
        for request in self
            .requests
            .iter()
            .filter(|request| request.at(checkpoint).is_some())
        {
            *threads.entry(request.who(checkpoint)).or_default() += 1;
        }
        threads
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map_or(String::new(), |(who, _)| self.name(who))
    }

    /// Ticks as nanoseconds.
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * 1000.0 / self.mhz
    }
}

/// Drops the requests for which there is a reason to, and counts the reasons.
fn reject(
    requests: &mut Vec<JoinedRequest>,
    reasons: &mut BTreeMap<Reason, u64>,
    why: impl Fn(&JoinedRequest) -> Option<Reason>,
) {
    requests.retain(|request| {
        let reason = why(request);
        if let Some(reason) = reason {
            *reasons.entry(reason).or_default() += 1;
        }
        reason.is_none()
    });
}

fn text(reason: Reason) -> String {
    match reason {
        Reason::Lost => "events were lost while it was in flight".to_owned(),
        Reason::Violation => "its events violate causality".to_owned(),
        Reason::NoRequest => "no request in the guest's block layer".to_owned(),
        Reason::NoPacket => "no packet of it in the guest's network stack".to_owned(),
        Reason::Ambiguous => "several packets could be its own".to_owned(),
        Reason::Missing(checkpoint) => format!("missing event: {}", checkpoint.label()),
    }
}

/// Periods in which events were lost.
struct Losses {
    /// By end; each begins no earlier than those before it.
    spans: Vec<(u64, u64)>,
    events: u64,
}

impl Losses {
    fn new(losses: &[Loss]) -> Self {
        let mut all: Vec<(u64, u64)> = losses.iter().map(|l| (l.from, l.to)).collect();
        all.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match spans.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => spans.push((from, to)),
            }
        }
        Losses {
            spans,
            events: losses.iter().map(|l| l.events).sum(),
        }
    }

    fn overlap(&self, begin: u64, end: u64) -> bool {
        let first = self.spans.partition_point(|(_, to)| *to < begin);
        self.spans.get(first).is_some_and(|(from, _)| *from <= end)
    }
}

/// A row of the table: an interval in one state. Rows sort in the order of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    pub to: Checkpoint,
    pub from: Checkpoint,
    pub state: State,
}

impl RowKey {
    pub fn layer(self) -> Layer {
        layer(self.from, self.to)
    }

    pub fn label(self) -> String {
        label(self.from, self.to)
    }

    /// Returns true if the guest stamped one end and the host the other.
    pub fn crosses(self) -> bool {
        self.from.info().side != self.to.info().side
    }
}

pub(crate) fn label(from: Checkpoint, to: Checkpoint) -> String {
    match to {
        // Meanwhile the application handles other requests.
        Checkpoint::End => format!("{} until picked up by the application", from.label()),
        // A request without the workload's stamps.
        _ if from == Checkpoint::Begin => format!("guest block layer to {}", to.label()),
        _ => format!("{} to {}", from.label(), to.label()),
    }
}

/// The layer that an interval counts for: that of its last checkpoint, by the table. One that spans several layers, because
/// what lies between was not observed, counts for the path between guest and QEMU if it has such a part, else for the host's
/// kernel if the device works within it.
pub(crate) fn layer(from: Checkpoint, to: Checkpoint) -> Layer {
    use Layer as L;
    // The begin and the end are of every path.
    let (of_from, of_to) = (
        |c: Checkpoint| c.is_on_path_with(from),
        |c: Checkpoint| c.is_on_path_with(to),
    );
    let passed = || {
        Checkpoint::ALL
            .into_iter()
            .filter(|c| *c > from && *c <= to && of_from(*c) && of_to(*c))
    };
    let has = |layer| passed().any(|c| c.info().layer == layer);
    let only = |layers: &[Layer]| passed().all(|c| layers.contains(&c.info().layer));
    let last = to.info().layer;
    if from >= Checkpoint::NetGuestCall && has(L::Server) && last != L::Server {
        // What lies on both sides of the server is nobody's alone: the host's kernel has the most of it.
        return L::HostKernel;
    }
    match (has(L::Kvm) || has(L::Notify), has(L::Interrupt)) {
        _ if only(&[last]) => last,
        // With vhost-user the thread that wakes is passt's own.
        _ if (from, to) == (Checkpoint::NetTxWake, Checkpoint::NetPasstSend) => last,
        _ if only(&[L::GuestApplication, L::GuestKernel]) => L::GuestKernel,
        // Nothing of QEMU was seen at all.
        (true, true) => L::Qemu,
        (true, false) => L::Notify,
        (false, true) => L::Interrupt,
        _ if only(&[L::HostKernel, L::Device]) => L::HostKernel,
        // Not only up to the device's work, or from it on.
        _ if passed().any(|c| c.info().layer == L::Device && c < to && !begins(from, c)) => {
            L::HostKernel
        }
        _ => L::Qemu,
    }
}

/// Returns true if the interval to a checkpoint begins at this one.
fn begins(from: Checkpoint, to: Checkpoint) -> bool {
    from as usize + 1 == to as usize
}

/// A checkpoint that at most this fraction of the requests pass is not part of the common path; its interval joins the next.
const HARDLY_ANY: f64 = 0.01;
/// A request that lacks a checkpoint that more than this fraction of the others pass was not followed.
const NEARLY_ALL: f64 = 0.95;

/// The checkpoints between which a trial's rows lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommonPath(Vec<Checkpoint>);

impl CommonPath {
    pub fn of_requests(requests: &[JoinedRequest]) -> CommonPath {
        let fraction = fractions(requests.iter());
        let in_chain = |s: &Checkpoint| {
            *s != Checkpoint::Begin && *s != Checkpoint::End && fraction[*s as usize] > HARDLY_ANY
        };
        CommonPath(Checkpoint::ALL.into_iter().filter(in_chain).collect())
    }

    /// The checkpoints that each request of a kind has to have.
    pub fn needed(requests: &[JoinedRequest]) -> BTreeMap<RequestKind, Vec<Checkpoint>> {
        let mut kinds: BTreeMap<RequestKind, Vec<Checkpoint>> =
            requests.iter().map(|r| (r.kind, Vec::new())).collect();
        for (kind, needed) in &mut kinds {
            let fraction = fractions(requests.iter().filter(|r| r.kind == *kind));
            needed.extend(
                Checkpoint::ALL
                    .into_iter()
                    .filter(|s| !s.info().optional && fraction[*s as usize] > NEARLY_ALL),
            );
        }
        kinds
    }

    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.0
    }

    /// The row that a segment counts for. If the request lacks the checkpoint at which the row begins, it still counts for
    /// that row: no wake-up or notification was needed, so it took no time.
    pub fn key(&self, segment: &Segment) -> RowKey {
        let at = self.0.partition_point(|s| *s < segment.to);
        let to = self.0.get(at).copied().unwrap_or(segment.to);
        let before = at
            .checked_sub(1)
            .and_then(|i| self.0.get(i))
            .copied()
            .unwrap_or(Checkpoint::Begin);
        let handed = [Checkpoint::GuestIssue, Checkpoint::NetGuestXmit]
            .into_iter()
            .find(|c| self.0.contains(c));
        let from = handed
            .filter(|_| segment.state == State::InRing)
            .unwrap_or(before);
        RowKey {
            to,
            from,
            state: segment.state,
        }
    }
}

/// Fraction of the requests that pass each checkpoint, 0 to 1.
fn fractions<'a>(
    requests: impl Iterator<Item = &'a JoinedRequest>,
) -> [f64; Checkpoint::ALL.len()] {
    let (mut counts, mut all) = ([0_u64; Checkpoint::ALL.len()], 0_u64);
    for request in requests {
        all += 1;
        for (checkpoint, _) in request.checkpoints() {
            counts[checkpoint as usize] += 1;
        }
    }
    counts.map(|count| count as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{CheckpointInfo, DISK, NETWORK};

    #[test]
    fn losses_are_merged_and_found() {
        let loss = |from, to| Loss {
            from,
            to,
            events: 1,
        };
        let losses = Losses::new(&[loss(50, 60), loss(10, 20), loss(15, 30), loss(12, 13)]);
        assert_eq!(
            (losses.spans.clone(), losses.events),
            (vec![(10, 30), (50, 60)], 4)
        );
        for (begin, end, overlaps) in [
            (0, 9, false),
            (0, 10, true),
            (25, 26, true),
            (31, 49, false),
            (0, 99, true),
            (61, 70, false),
        ] {
            assert_eq!(losses.overlap(begin, end), overlaps, "{begin} {end}");
        }
    }

    #[test]
    fn each_interval_of_the_whole_path_has_its_layer() {
        let layers = |table: &[CheckpointInfo]| -> Vec<Layer> {
            table
                .windows(2)
                .map(|w| layer(w[0].checkpoint, w[1].checkpoint))
                .collect()
        };
        use Layer::*;
        let expected = [
            GuestApplication,
            GuestKernel,
            GuestKernel,
            Kvm,
            Notify,
            Qemu,
            Qemu,
            Qemu,
            HostKernel,
            Device,
            HostKernel,
            Qemu,
            Qemu,
            Interrupt,
            Interrupt,
            GuestKernel,
            GuestKernel,
            GuestApplication,
        ];
        assert_eq!(layers(DISK), expected);
        let expected: Vec<Layer> = NETWORK[1..].iter().map(|info| info.layer).collect();
        assert_eq!(layers(NETWORK), expected);
    }

    #[test]
    fn what_was_not_observed_counts_for_what_lies_around_it() {
        use Checkpoint as S;
        assert_eq!(layer(S::GuestNotify, S::QemuWake), Layer::Notify);
        assert_eq!(layer(S::GuestNotify, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::GuestIssue, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::KvmNotify, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::QemuNotify, S::GuestInterrupt), Layer::Interrupt);
        assert_eq!(layer(S::QemuPush, S::GuestComplete), Layer::Interrupt);
        assert_eq!(layer(S::Inject, S::GuestComplete), Layer::Interrupt);
        assert_eq!(layer(S::HostCall, S::QemuReap), Layer::HostKernel);
        assert_eq!(layer(S::QemuSubmit, S::QemuPush), Layer::HostKernel);
        assert_eq!(layer(S::QemuSubmit, S::HostIssue), Layer::Qemu);
        assert_eq!(layer(S::GuestNotify, S::GuestInterrupt), Layer::Qemu);
        assert_eq!(layer(S::GuestCall, S::GuestNotify), Layer::GuestKernel);
        assert_eq!(layer(S::NetGuestXmit, S::NetTxWake), Layer::Notify);
        assert_eq!(layer(S::NetTxWake, S::NetPasstSend), Layer::Passt);
        assert_eq!(layer(S::NetPasstRead, S::NetPasstNotify), Layer::Passt);
        assert_eq!(layer(S::NetGuestXmit, S::NetTapReceive), Layer::Notify);
        assert_eq!(layer(S::NetTapReceive, S::NetTapRead), Layer::HostKernel);
        assert_eq!(layer(S::NetTapRead, S::NetGuestInterrupt), Layer::Interrupt);
    }
}
