//! The joined requests of a trial: the input of findings and exports.

use super::common_path::CommonPath;
use super::trial_data::TrialData;
use crate::events::trace_reader::Loss;
use crate::join::joined::{Joined, Reason, Rejected};
use crate::request::{JoinedRequest, Who};
use std::collections::BTreeMap;
use vmtax_model::{
    Checkpoint, ClockFinding, EventCost, Matched, Missing, PacketCounts, QemuThread, Role, Side,
};

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
        let Joined {
            mut requests,
            rejected,
            threads,
            may_lack,
            packets,
            ..
        } = data.joined;
        let losses = Losses::new(&data.losses);
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        let operations = (requests.len() + rejected.len()) as u64;
        for Rejected {
            begin, end, reason, ..
        } in rejected
        {
            let reason = if losses.overlap(begin, end) {
                Reason::Lost
            } else {
                reason
            };
            *reasons.entry(reason).or_default() += 1;
        }
        let mut keep = |requests: &mut Vec<JoinedRequest>,
                        why: &dyn Fn(&JoinedRequest) -> Option<Reason>| {
            requests.retain(|r| match why(r) {
                None => true,
                Some(reason) => {
                    *reasons.entry(reason).or_default() += 1;
                    false
                }
            });
        };
        keep(&mut requests, &|r| {
            losses.overlap(r.begin(), r.end()).then_some(Reason::Lost)
        });
        let needed = CommonPath::needed(&requests);
        keep(&mut requests, &|r| {
            needed[&r.kind]
                .iter()
                .find(|s| r.at(**s).is_none() && !may_lack.contains(s))
                .map(|s| Reason::Missing(*s))
        });
        let violations = reasons.get(&Reason::Violation).copied().unwrap_or(0);
        let matched = Matched {
            operations,
            joined: requests.len() as u64,
            rejected: reasons
                .into_iter()
                .map(|(reason, count)| (text(reason), count))
                .collect(),
            lost_events: losses.events,
        };
        let common_path = CommonPath::of(&requests);
        JoinedTrial {
            mhz: data.mhz,
            threads,
            common_path,
            requests,
            matched,
            packets,
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
