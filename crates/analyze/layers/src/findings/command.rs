//! The findings of a command's requests, which have no workload stamps: by guest and kind.

use super::column::column;
use super::command_packets::packets;
use super::traced_runs::{
    advice, by_kind, in_flight, observed_s, of_columns, of_guests, of_run, total_ns,
};
use crate::disk::request::GuestRequest;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::open::TrialData;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use vmtax_model::{
    CommandLayers, DiskUse, HostFacts, KindUse, LayerColumn, Machine, Plan, Probes, RequestKind,
    TrialRecord,
};

/// The findings of a command's traced runs on a host, each given with its folder; one whose traces cannot be read counts as missing,
/// with the reason in a warning.
pub fn command<'a>(
    plan: &Plan,
    host: &HostFacts,
    trials: impl Iterator<Item = (&'a TrialRecord, PathBuf)> + Clone,
) -> CommandLayers {
    let (disks, columns, warnings) = of_guests(trials.clone(), Probes::Layers, disk);
    let part = |machine| {
        disks
            .iter()
            .find(|disk| disk.machine == machine)
            .map(|disk| disk.under_way_s / disk.observed_s)
    };
    let advice = advice(plan, host, &columns, "Requests", part);
    let packets = packets(plan, host, trials);
    CommandLayers {
        disks,
        layers: of_columns(columns, warnings, advice, METHOD),
        packets,
    }
}

const METHOD: &str = "Requests are matched across layers by offset and address, from insertion into the guest's block layer to \
                      its completion; segments do not overlap. Figures are means of one traced run, so there \
                      is no CI.";

/// The disk use of one guest, and a column for each kind of request.
fn disk(machine: Machine, wall_s: f64, read: TrialData) -> (DiskUse, Vec<LayerColumn>) {
    let TrialData {
        joined,
        losses,
        clock,
        mhz,
        missing,
        first,
        costs,
    } = read;
    let seconds = |ticks: u64| ticks as f64 / mhz / 1e6;
    let in_flight_s = seconds(in_flight(
        joined
            .parts
            .iter()
            .map(|part| (part.begin(), part.complete.at)),
    ));
    let mut kinds: BTreeMap<RequestKind, Vec<GuestRequest>> = BTreeMap::new();
    joined
        .parts
        .iter()
        .for_each(|part| kinds.entry(part.kind).or_default().push(*part));
    let observed_s = observed_s(wall_s, &losses, first, mhz);
    let mut of_kind = by_kind(joined);
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for (kind, parts) in kinds {
        let of_kind = of_kind.remove(&kind).unwrap_or_default();
        let trial = JoinedTrial::new(of_kind, &losses, clock.clone(), mhz, missing.clone());
        let trial = JoinedTrial {
            costs: costs.clone(),
            ..trial
        };
        let took = parts
            .iter()
            .map(|p| trial.ns(p.complete.at.saturating_sub(p.begin())));
        let (data, times) = of_run(&trial, took);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        parts
            .iter()
            .for_each(|p| *sizes.entry(p.bytes).or_default() += 1);
        rows.push(KindUse {
            kind,
            requests: parts.len() as u64,
            followed: trial.matched.joined,
            bytes: parts.iter().map(|p| p.bytes).fold(0, u64::saturating_add),
            sizes: sizes.into_iter().collect(),
            time: times.summary(),
        });
        columns.push(column(machine, kind.label(), &data));
    }
    columns.sort_by_key(|column| Reverse(total_ns(column) as u64));
    (
        DiskUse {
            machine,
            wall_s,
            observed_s,
            under_way_s: in_flight_s,
            kinds: rows,
        },
        columns,
    )
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
