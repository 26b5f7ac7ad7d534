//! The findings of a running VM's packets, as its host shows them: by network card and direction.

use super::column::column;
use super::traced_runs::{by_kind, of_run};
use crate::join::joined::Joined;
use crate::net::from_host::batching;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::vm::one_clock;
use crate::trial::vm_data::NicData;
use vmtax_model::{Checkpoint, LayerColumn, Machine, RequestKind, VmPackets};

/// Each card's directions with their columns, those first whose packets took most time.
pub(super) fn columns(
    nics: Vec<NicData>,
    machine: Machine,
    seconds: f64,
    mhz: f64,
) -> Vec<(VmPackets, LayerColumn)> {
    let mut all: Vec<(VmPackets, LayerColumn)> = nics
        .into_iter()
        .flat_map(|data| of_nic(data, machine, seconds, mhz))
        .collect();
    let time = |packets: &VmPackets| packets.time.mean_ns * packets.followed as f64;
    all.sort_by(|(a, _), (b, _)| time(b).total_cmp(&time(a)));
    all
}

fn of_nic(
    data: NicData,
    machine: Machine,
    seconds: f64,
    mhz: f64,
) -> Vec<(VmPackets, LayerColumn)> {
    let NicData {
        nic,
        joined,
        losses,
        missing,
    } = data;
    let of_kind = |(kind, joined): (RequestKind, Joined)| {
        let trial = JoinedTrial::new(joined, &losses, one_clock(), mhz, missing.clone());
        let (sums, times) = of_run(
            &trial,
            trial
                .requests
                .iter()
                .map(|request| trial.ns(request.total())),
        );
        let mut column = column(machine, &format!("{}, {}", nic.tap, kind.label()), &sums);
        column.from_host = true;
        let on_tap = if kind == RequestKind::Transmit {
            Checkpoint::NetTapReceive
        } else {
            Checkpoint::NetTapRead
        };
        let on_tap = if nic.vhost && kind == RequestKind::Receive {
            Checkpoint::NetVhostRead
        } else {
            on_tap
        };
        let packets = VmPackets {
            tap: nic.tap.clone(),
            queues: nic.queues,
            thread: trial.thread_at(on_tap),
            kind,
            packets: trial.matched.operations,
            followed: trial.matched.joined,
            per_s: if seconds > 0.0 {
                trial.matched.operations as f64 / seconds
            } else {
                0.0
            },
            time: times.summary(),
            batching: batching(kind, &trial.requests),
        };
        (packets, column)
    };
    by_kind(joined).into_iter().map(of_kind).collect()
}
