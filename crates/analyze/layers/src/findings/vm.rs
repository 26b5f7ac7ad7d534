//! The findings of a running VM's requests, as its host shows them: by disk and kind.

use super::column::column;
use super::column_data::ColumnData;
use super::distribution::Distribution;
use super::round_medians::RoundMedians;
use super::traced_runs::by_kind;
use crate::error::LayersError;
use crate::request::JoinedRequest;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::vm::{machine, read_vm};
use crate::trial::vm_data::{DiskData, VmData};
use std::path::Path;
use vmtax_model::{
    Checkpoint, HostFacts, Layer, LayerColumn, LayerFindings, Machine, REPORT_SCHEMA, RequestKind,
    VmLayers, VmPackets, VmRequests,
};
use vmtax_rules::Evidence;

/// The findings of a running VM's trace, whose files are in `folder`, made on a host.
///
/// # Errors
/// [`LayersError`] when a file cannot be read.
pub fn vm(folder: &Path, host: &HostFacts) -> Result<VmLayers, LayersError> {
    let VmData {
        trace,
        disks,
        nics,
        idle,
        not_followed,
        missing,
        is_guest_traced,
    } = read_vm(folder)?;
    let machine = machine(&trace);
    let seconds = trace.end.saturating_sub(trace.begin) as f64 / trace.tsc_mhz / 1e6;
    let mut all: Vec<(VmRequests, LayerColumn)> = disks
        .into_iter()
        .flat_map(|disk| of_disk(disk, machine, seconds, trace.tsc_mhz))
        .collect();
    all.sort_by(|(a, _), (b, _)| b.in_flight.total_cmp(&a.in_flight));
    let (requests, mut columns): (Vec<VmRequests>, Vec<LayerColumn>) = all.into_iter().unzip();
    let of_nics = super::vm_packets::columns(nics, machine, seconds, trace.tsc_mhz);
    let (packets, of_packets): (Vec<VmPackets>, Vec<LayerColumn>) = of_nics.into_iter().unzip();
    columns.extend(of_packets);
    // Imported traces do not tell the roles of QEMU's threads, which remedies depend on.
    let main = columns
        .get(..1)
        .filter(|_| !trace.imported)
        .unwrap_or_default();
    let evidence = Evidence {
        host: Some(host),
        facts: Some(&trace.vm),
        columns: main,
        ..Evidence::default()
    };
    let advice = vmtax_rules::advice(&evidence);
    let layers = LayerFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: 1,
        host: None,
        columns,
        differences: Vec::new(),
        method: match (&trace.guest, is_guest_traced) {
            _ if !trace.nics.is_empty() => PACKET_METHOD,
            (None, false) => METHOD,
            (None, true) => BOTH_METHOD,
            (Some(_), _) => GUEST_METHOD,
        }
        .to_owned(),
        warnings: Vec::new(),
        advice,
    };
    Ok(VmLayers {
        vm: trace.vm,
        seconds,
        ended: trace.ended,
        requests,
        packets,
        idle,
        not_followed,
        missing,
        layers,
    })
}

const METHOD: &str = "Each request is followed by QEMU's address for it, its offset and its thread, on the host's clock alone; \
                      segments do not overlap. It begins with the guest's kick, or, where none is seen, when QEMU takes it; it ends with the \
                      interrupt's delivery, or, where none is seen, when QEMU completes it. Outside lie the guest's own layers, the time \
                      in the queue before QEMU takes it without a kick, and the time from the delivery to the guest's handler: `vmtax \
                      agent observe` in the guest shows them for virtio's disks. Figures are of one traced period, so there is no CI.";

const PACKET_METHOD: &str = "Each packet is followed on the host's clock alone: in the host's kernel by its address, in QEMU by the thread that \
                             has it, its length and its order; segments do not overlap. One that the guest sends begins with the \
                             doorbell, or, where QEMU found it without one, when QEMU transmits it, and ends when the host's stack \
                             receives it from the tap. One that it receives begins when the host's stack hands it to the tap's \
                             queue, and ends with the interrupt's delivery, or, where the guest wanted none, with QEMU's notification. Outside \
                             lie the guest's own layers and the time in the ring before such a doorbell. Figures are of one traced period, \
                             so there is no CI.";

const BOTH_METHOD: &str = "Each request is followed from the guest's block layer to its completion there, through QEMU and the \
                           host's kernel by its offset on the disk and QEMU's address for it, on the host's clock; segments do \
                           not overlap. Requests count that lie in the time that both guest and host traced. Figures are of \
                           one traced period, so there is no CI.";

const GUEST_METHOD: &str = "Each request is followed from the guest's block layer to its completion there, in QEMU and the host's \
                            kernel by its offset on the disk, as far as their traces are among the files; segments do not \
                            overlap. Figures are of one traced period, so there is no CI.";

/// The requests of a disk by kind, each with its column.
fn of_disk(
    data: DiskData,
    machine: Machine,
    seconds: f64,
    mhz: f64,
) -> Vec<(VmRequests, LayerColumn)> {
    let (has_device, has_host_part) = (data.has_device(), data.has_host_part());
    let is_from_host = data.is_from_host;
    let DiskData {
        name,
        disk,
        joined,
        losses,
        missing,
        clock,
        ..
    } = data;
    let of_kind = |(kind, joined): (RequestKind, _)| {
        let trial = JoinedTrial::new(joined, &losses, clock.clone(), mhz, missing.clone());
        let mut sums = ColumnData::default();
        sums.sums.add(0, &trial);
        let (mut gavg, mut kavg, mut davg) =
            <(Distribution, Distribution, Distribution)>::default();
        for request in &trial.requests {
            let device = device(request);
            gavg.add(trial.ns(request.total()));
            kavg.add(trial.ns(request.total().saturating_sub(device)));
            davg.add(trial.ns(device));
        }
        sums.traced_medians = RoundMedians::of(0, gavg.latency());
        let mut column = column(machine, &format!("{name}, {}", kind.label()), &sums);
        column.from_host = is_from_host;
        if !has_host_part {
            within_qemu(&mut column);
        }
        let total_s = gavg.summary().mean_ns * gavg.count() as f64 / 1e9;
        // What a flush makes the device do cannot be distinguished from others' flushes.
        let is_placed = has_device && matches!(kind, RequestKind::Read | RequestKind::Write);
        let per_s = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let requests = VmRequests {
            disk: name.clone(),
            file: disk
                .as_ref()
                .map(|disk| disk.disk.file.display().to_string()),
            format: disk.as_ref().and_then(|disk| disk.disk.format.clone()),
            thread: trial.thread_at(Checkpoint::QemuPop),
            kind,
            requests: trial.matched.operations,
            followed: trial.matched.joined,
            per_s: per_s(trial.matched.operations),
            in_flight: if seconds > 0.0 {
                total_s / seconds
            } else {
                0.0
            },
            gavg: gavg.summary(),
            kavg: is_placed.then(|| kavg.summary()),
            davg: is_placed.then(|| davg.summary()),
        };
        (requests, column)
    };
    by_kind(joined).into_iter().map(of_kind).collect()
}

/// Returns the time that a request was at the host's device, in ticks; 0 if it was not there.
fn device(request: &JoinedRequest) -> u64 {
    let time_at = |checkpoint| request.at(checkpoint);
    let spent = time_at(Checkpoint::HostComplete).zip(time_at(Checkpoint::HostIssue));
    spent.map_or(0, |(complete, issue)| complete.saturating_sub(issue))
}

/// Of a disk that QEMU makes up, what would be the host kernel's is QEMU's own.
fn within_qemu(column: &mut LayerColumn) {
    let rows = column.rows.iter_mut().map(|row| &mut row.layer);
    let spans = column
        .waterfalls
        .iter_mut()
        .flat_map(|drawn| &mut drawn.spans)
        .map(|span| &mut span.layer);
    rows.chain(spans)
        .filter(|layer| **layer == Layer::HostKernel)
        .for_each(|layer| *layer = Layer::Qemu);
}
