//! The findings of a command's requests, which have no workload stamps: by guest and kind; of its packets by guest and
//! direction.

use super::column_sums::ColumnSums;
use super::column_sums::column;
use super::distribution::{Distribution, RoundMedians};
use super::{advice, in_flight, observed_s, of_columns, of_run, total_ns};
use crate::net::from_both::batching;
use crate::trial::TrialData;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::open::read_all;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use vmtax_analysis::add_warning;
use vmtax_findings::{
    CommandLayers, CommandPackets, DeviceUse, KindUse, LayerColumn, LayerFindings, RequestCount,
    RequestKind, UsedKinds,
};
use vmtax_model::{DeviceClass, HostFacts, Machine, Metric, Plan, Probes, TrialRecord, Warning};

/// The findings of a command's traced runs on a host, each given with its folder; one whose traces cannot be read counts
/// as missing, with the reason in a warning.
pub fn command<'a>(
    plan: &Plan,
    host: &HostFacts,
    trials: impl Iterator<Item = (&'a TrialRecord, PathBuf)> + Clone,
) -> CommandLayers {
    let of_class = |class, probes| {
        let trials = trials.clone();
        let mut traced = trials
            .filter(|(record, _)| record.probes == probes)
            .peekable();
        let is_traced = traced.peek().is_some();
        (is_traced, of_devices(plan, host, class, traced))
    };
    let (_, (disks, layers)) = of_class(DeviceClass::Disk, Probes::Layers);
    let (has_packets, (nics, of_packets)) = of_class(DeviceClass::Net, Probes::Network);
    CommandLayers {
        disks,
        layers,
        packets: has_packets.then_some(CommandPackets {
            nics,
            layers: of_packets,
        }),
    }
}

const METHOD: &str = "Requests are matched across layers by offset and address, from insertion into the guest's block layer to \
                      its completion; segments do not overlap. Figures are means of one traced run, so there \
                      is no CI.";

const PACKET_METHOD: &str = "Packets are matched between guest and QEMU by order and length, as a virtqueue keeps their order; within the guest by the \
                             kernel's address for each. One that the guest sends is traced from its stack to QEMU's backend, or to that one's \
                             write to a socket; one that it receives from QEMU's backend to the guest's stack. Segments do not overlap. Figures \
                             are means of one traced run, so there is no CI.";

/// The use of each guest's devices of a class, from the runs that traced these, and where the time of a request goes.
fn of_devices<'a>(
    plan: &Plan,
    host: &HostFacts,
    class: DeviceClass,
    traced: impl Iterator<Item = (&'a TrialRecord, PathBuf)>,
) -> (Vec<DeviceUse>, LayerFindings) {
    let (mut uses, mut columns, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (record, folder) in traced {
        record
            .warnings
            .iter()
            .for_each(|w| add_warning(&mut warnings, w));
        let machine = record.machine;
        let read = match record.failure() {
            Some(why) => Err(why.to_owned()),
            None => read_all(&folder, record).map_err(|error| error.to_string()),
        };
        match read {
            Ok(read) => {
                let wall = record.result().and_then(|r| r.value(Metric::ExecWall));
                let (used, more) = of_device(class, machine, wall.unwrap_or(0.0), read);
                uses.push(used);
                columns.extend(more);
            }
            Err(reason) => {
                let missing = Warning::TrialsMissing {
                    machine,
                    missing: 1,
                    planned: 1,
                    reason,
                };
                add_warning(&mut warnings, &missing);
            }
        }
    }
    let (what, method) = match class {
        DeviceClass::Disk => ("Requests", METHOD),
        DeviceClass::Net => ("Packets", PACKET_METHOD),
    };
    let part = |machine| {
        let used = uses.iter().find(|used| used.machine == machine)?;
        Some(used.under_way_s / used.observed_s)
    };
    let layers = LayerFindings {
        advice: advice(plan, host, &columns, what, part),
        warnings,
        ..of_columns(columns, method)
    };
    (uses, layers)
}

/// The use of one guest's device, and a column for each kind of request.
fn of_device(
    class: DeviceClass,
    machine: Machine,
    wall_s: f64,
    read: TrialData,
) -> (DeviceUse, Vec<LayerColumn>) {
    let (mhz, observed_s) = (read.mhz, observed_s(wall_s, &read));
    let (parts, requests) = (read.joined.parts.iter(), read.joined.requests.iter());
    let under_way = match class {
        DeviceClass::Disk => in_flight(parts.map(|part| (part.begin(), part.complete.at))),
        DeviceClass::Net => in_flight(requests.map(|packet| (packet.begin(), packet.end()))),
    };
    let (mut kinds, mut columns) = (Vec::new(), Vec::new());
    for (kind, data) in read.by_kind() {
        let (used, data) = of_kind(class, kind, data);
        kinds.push(used);
        columns.push(column(machine, kind.label(), &data));
    }
    let kinds = match class {
        DeviceClass::Disk => {
            columns.sort_by_key(|column| Reverse(total_ns(column) as u64));
            UsedKinds::Kinds(kinds)
        }
        DeviceClass::Net => UsedKinds::Directions(kinds),
    };
    let used = DeviceUse {
        machine,
        wall_s,
        observed_s,
        under_way_s: under_way as f64 / mhz / 1e6,
        kinds,
    };
    (used, columns)
}

/// The requests of one kind, and their sums. Of a request that is not followed the guest's kernel tells how long it took.
fn of_kind(class: DeviceClass, kind: RequestKind, mut data: TrialData) -> (KindUse, ColumnSums) {
    let parts = mem::take(&mut data.joined.parts);
    let trial = JoinedTrial::new(data);
    let mut sums = of_run(&trial);
    let bytes = parts.iter().map(|part| part.bytes);
    let mut used = KindUse {
        kind,
        count: RequestCount::Packets(trial.matched.operations),
        followed: trial.matched.joined,
        bytes: bytes.clone().fold(0, u64::saturating_add),
        sizes: Vec::new(),
        time: sums.total.summary(),
        batching: None,
    };
    match class {
        DeviceClass::Disk => {
            let (mut times, mut sizes) = (Distribution::default(), BTreeMap::new());
            for part in &parts {
                times.add(trial.ns(part.complete.at.saturating_sub(part.begin())));
                *sizes.entry(part.bytes).or_default() += 1;
            }
            sums.traced_medians = RoundMedians::of_round(0, times.latency());
            used.count = RequestCount::Requests(parts.len() as u64);
            used.sizes = sizes.into_iter().collect();
            used.time = times.summary();
        }
        DeviceClass::Net => used.batching = Some(batching(kind, &trial.requests)),
    }
    (used, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::GuestRequest;
    use crate::events::decode::Loss;
    use crate::join::{Joined, Reason, Rejected};
    use vmtax_findings::ClockFinding;
    use vmtax_trace::Moment;

    fn part(kind: RequestKind, bytes: u64, from: u64, to: u64) -> GuestRequest {
        let moment = |at| Moment {
            at,
            cpu: 0,
            tid: 1,
            interrupt: false,
        };
        GuestRequest {
            offset: from * 4096,
            bytes,
            kind,
            inserted: None,
            issue: moment(from),
            complete: moment(to),
            alone: false,
        }
    }

    #[test]
    fn kinds_are_told_apart_and_what_is_not_followed_is_counted() {
        let parts = vec![
            part(RequestKind::Write, 4096, 1_000, 2_000),
            part(RequestKind::Write, 8192, 1_500, 4_000),
            part(RequestKind::Flush, 0, 4_000, 9_000),
        ];
        let violated = |part: &GuestRequest| Rejected {
            begin: part.issue.at,
            end: part.complete.at,
            kind: part.kind,
            reason: Reason::Violation,
        };
        let rejected = parts.iter().map(violated).collect();
        let joined = Joined {
            parts,
            rejected,
            ..Joined::default()
        };
        let clock = ClockFinding {
            bound_ns: 1.0,
            source: String::new(),
            drift_ns: 0.0,
            violations: 0,
        };
        let losses = vec![Loss {
            from: 501_000,
            to: u64::MAX,
            events: 3,
        }];
        // A thousand ticks a microsecond.
        let read = TrialData {
            costs: Vec::new(),
            joined,
            losses,
            clock,
            mhz: 1000.0,
            missing: Vec::new(),
            first: Some(1_000),
        };
        let (disk, columns) = of_device(DeviceClass::Disk, Machine::TCG, 2.0, read);
        assert_eq!((disk.wall_s, disk.under_way_s), (2.0, 8e-6));
        assert_eq!(
            disk.observed_s, 500e-6,
            "from the first event until the buffer was full"
        );
        let kinds = disk.kinds.all();
        let rows: Vec<_> = kinds
            .iter()
            .map(|k| {
                (
                    k.kind,
                    k.count.number(),
                    k.followed,
                    k.bytes,
                    k.sizes.clone(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                (RequestKind::Write, 2, 0, 12_288, vec![(4096, 1), (8192, 1)]),
                (RequestKind::Flush, 1, 0, 0, vec![(0, 1)])
            ]
        );
        assert_eq!(kinds[0].time.max_ns, 2_500.0);
        assert_eq!(columns.iter().map(|c| c.matched.operations).sum::<u64>(), 3);
        assert!(
            columns
                .iter()
                .all(|c| c.matched.lost_events == 3 && c.clock.violations == c.matched.operations)
        );
    }
}
