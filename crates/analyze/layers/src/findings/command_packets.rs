//! The findings of the packets of a command's guests: by guest and direction.

use super::column::column;
use super::traced_runs::{advice, by_kind, in_flight, observed_s, of_columns, of_guests, of_run};
use crate::join::joined::Joined;
use crate::net::from_both::batching;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::open::TrialData;
use std::collections::BTreeMap;
use std::path::PathBuf;
use vmtax_model::{
    CommandPackets, HostFacts, LayerColumn, Machine, NicUse, PacketUse, Plan, Probes, RequestKind,
    TrialRecord,
};

const METHOD: &str = "Packets are matched between guest and QEMU by order and length, as a virtqueue keeps their order; within the guest by the \
                      kernel's address for each. One that the guest sends is followed from its stack to QEMU's backend, or to that one's \
                      write to a socket; one that it receives from QEMU's backend to the guest's stack. Segments do not overlap. Figures \
                      are means of one traced run, so there is no CI.";

/// Of the trials that traced packets; `None` without one.
pub(super) fn packets<'a>(
    plan: &Plan,
    host: &HostFacts,
    trials: impl Iterator<Item = (&'a TrialRecord, PathBuf)> + Clone,
) -> Option<CommandPackets> {
    trials
        .clone()
        .find(|(record, _)| record.probes == Probes::Network)?;
    let (nics, columns, warnings) = of_guests(trials, Probes::Network, nic);
    let part = |machine| {
        nics.iter()
            .find(|nic| nic.machine == machine)
            .map(|nic| nic.under_way_s / nic.observed_s)
    };
    let advice = advice(plan, host, &columns, "Packets", part);
    Some(CommandPackets {
        nics,
        layers: of_columns(columns, warnings, advice, METHOD),
    })
}

/// The use of one guest's card, and a column for each direction.
fn nic(machine: Machine, wall_s: f64, read: TrialData) -> (NicUse, Vec<LayerColumn>) {
    let TrialData {
        joined,
        losses,
        clock,
        mhz,
        missing,
        first,
        costs,
    } = read;
    let observed_s = observed_s(wall_s, &losses, first, mhz);
    let under_way = in_flight(
        joined
            .requests
            .iter()
            .map(|packet| (packet.begin(), packet.end())),
    );
    let mut bytes: BTreeMap<RequestKind, u64> = BTreeMap::new();
    for part in &joined.parts {
        let sum = bytes.entry(part.kind).or_default();
        *sum = sum.saturating_add(part.bytes);
    }
    let of_kind = |(kind, joined): (RequestKind, Joined)| {
        let trial = JoinedTrial::new(joined, &losses, clock.clone(), mhz, missing.clone());
        let trial = JoinedTrial {
            costs: costs.clone(),
            ..trial
        };
        let (data, times) = of_run(
            &trial,
            trial
                .requests
                .iter()
                .map(|request| trial.ns(request.total())),
        );
        let packets = PacketUse {
            kind,
            packets: trial.matched.operations,
            followed: trial.matched.joined,
            bytes: bytes.get(&kind).copied().unwrap_or(0),
            time: times.summary(),
            batching: batching(kind, &trial.requests),
        };
        (packets, column(machine, kind.label(), &data))
    };
    let (directions, columns) = by_kind(joined).into_iter().map(of_kind).unzip();
    let under_way_s = under_way as f64 / mhz / 1e6;
    (
        NicUse {
            machine,
            wall_s,
            observed_s,
            under_way_s,
            directions,
        },
        columns,
    )
}
