//! The findings of a running VM's requests, as its host shows them: by disk and kind; of its packets by network card
//! and direction.

use super::column_sums::column;
use super::distribution::Distribution;
use super::{of_columns, of_run, total_ns};
use crate::net::from_host::batching;
use crate::trial::TrialData;
use crate::trial::joined_trial::JoinedTrial;
use crate::trial::vm::{machine, read_vm};
use crate::trial::vm_data::{Device, DeviceData, VmData, is_made_up, is_placed};
use crate::{JoinedRequest, LayersError};
use std::path::Path;
use vmtax_analysis::estimate;
use vmtax_findings::{
    EmptyQueue, LayerColumn, LayerFindings, RequestCount, RequestKind, Row, State, VmLayers,
    VmPackets, VmRequests, VmTraced,
};
use vmtax_model::{Checkpoint, HostFacts, Layer, Machine, TracedDisk, VmNic, VmTrace};
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
        is_by_calls,
    } = read_vm(folder)?;
    let machine = machine(&trace);
    let seconds = trace.end.saturating_sub(trace.begin) as f64 / trace.tsc_mhz / 1e6;
    // Beyond the most bytes that are kept a trace does not show what came.
    let is_whole = !trace.full && !trace.imported && !is_guest_traced;
    let traced = Span {
        begin: trace.begin,
        end: trace.end,
    };
    let queues: Vec<EmptyQueue> = disks
        .iter()
        .filter(|_| is_whole)
        .filter_map(|disk| empty_queue(&disk.device.name, &disk.data, traced))
        .collect();
    let (requests, mut columns) = of_devices(machine, disks, |disk, kind, trial, column| {
        requests(disk, kind, trial, column, seconds)
    });
    let (packets, of_packets) = of_devices(machine, nics, |nic, kind, trial, column| {
        packets(nic, kind, trial, column, seconds)
    });
    columns.extend(of_packets);
    if is_by_calls {
        columns.iter_mut().for_each(delivered_by_vmm);
    }
    if trace.imported {
        columns.iter_mut().for_each(not_distinguished);
        let is_unknown = trace.vm.accelerator.is_none();
        for column in &mut columns {
            column.is_accelerator_unknown = is_unknown;
        }
    }
    if trace
        .guest
        .as_ref()
        .is_some_and(|guest| guest.is_unknown_kernel)
    {
        // A request of a host passes none of a VM's layers.
        columns.clear();
    }
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
    let mut advice = vmtax_rules::advice(&evidence);
    advice.extend(vmtax_rules::settings(&Evidence {
        queues: &queues,
        ..Evidence::default()
    }));
    let method = match is_by_calls {
        true if trace.nics.is_empty() => CALLS_METHOD,
        true => PACKET_CALLS_METHOD,
        false => method(&trace, is_guest_traced),
    };
    let layers = LayerFindings {
        advice,
        ..of_columns(columns, method)
    };
    Ok(VmLayers {
        vm: trace.vm,
        seconds,
        ended: trace.ended,
        requests,
        packets,
        queues,
        idle,
        not_followed,
        missing,
        layers,
    })
}

fn method(trace: &VmTrace, is_guest_traced: bool) -> &'static str {
    match (&trace.guest, is_guest_traced) {
        _ if !trace.nics.is_empty() => PACKET_METHOD,
        (None, false) => METHOD,
        (None, true) => BOTH_METHOD,
        (Some(guest), _) if guest.is_unknown_kernel => KERNEL_METHOD,
        (Some(_), _) => GUEST_METHOD,
    }
}

const METHOD: &str = "Each request is matched by QEMU's address for it, its offset and its thread, on the host's clock alone; \
                      segments do not overlap. It begins with the guest's kick, or, where none is seen, when QEMU takes it; it ends with the \
                      interrupt's delivery, or, where none is seen, when QEMU completes it. Outside lie the guest's own layers, the time \
                      in the queue before QEMU takes it without a kick, and the time from the delivery to the guest's handler: `vmtax \
                      agent observe` in the guest shows them for virtio's disks. Figures are of one traced period, so there is no CI.";

const CALLS_METHOD: &str = "Each request is a system call of the VMM on the disk's file, or what one hands to the host's block device, on the \
                            host's clock alone; segments do not overlap. It begins with the kick of the vCPU that woke the thread, or, \
                            where none is seen, with the call; it ends with the interrupt's delivery, by the thread that has the \
                            completion or by a worker of the host's kernel for it, or, where none is seen, with the end in the host's kernel. Of several requests under way, kicks and \
                            interrupts are those of their batch. Figures are of one traced period, so there is no CI.";

const PACKET_METHOD: &str = "Each packet is matched on the host's clock alone: in the host's kernel by its address, in QEMU by the thread that \
                             has it, its length and its order; segments do not overlap. One that the guest sends begins with the \
                             doorbell, or, where QEMU found it without one, when QEMU transmits it, and ends when the host's stack \
                             receives it from the tap. One that it receives begins when the host's stack hands it to the tap's \
                             queue, and ends with the interrupt's delivery, or, where the guest wanted none, with QEMU's notification. Outside \
                             lie the guest's own layers and the time in the ring before such a doorbell. Figures are of one traced period, \
                             so there is no CI.";

const PACKET_CALLS_METHOD: &str = "Each packet is matched on the host's clock alone: in the host's kernel by its address, in the VMM by the \
                                   thread that reads or writes the tap; segments do not overlap. One that the guest sends begins with \
                                   the doorbell that woke the thread, or, where none is seen, with the write to the tap, and ends when the \
                                   host's stack receives it. One that it receives begins when the host's stack hands it to the tap's \
                                   queue, and ends with the interrupt that the thread then delivers, or, where none is seen, with the read \
                                   from the tap. Outside lie the guest's own layers and the time in the ring before such a doorbell. Figures \
                                   are of one traced period, so there is no CI.";

const BOTH_METHOD: &str = "Each request is matched from the guest's block layer to its completion there, through QEMU and the \
                           host's kernel by its offset on the disk and QEMU's address for it, on the host's clock; segments do \
                           not overlap. Requests count that lie in the time that both guest and host traced. Figures are of \
                           one traced period, so there is no CI.";

const KERNEL_METHOD: &str = "Each request is traced in the kernel's block layer, from taking it to its completion. Figures are of one \
                             traced period, so there is no CI.";

const GUEST_METHOD: &str = "Each request is matched from the guest's block layer to its completion there, in QEMU and the host's \
                            kernel by its offset on the disk, as far as their traces are among the files; segments do not \
                            overlap. Figures are of one traced period, so there is no CI.";

/// Each device's kinds of requests with their columns, those first whose requests took most time.
fn of_devices<D, R>(
    machine: Machine,
    devices: Vec<DeviceData<D>>,
    row: impl Fn(&Device<D>, RequestKind, &JoinedTrial, &mut LayerColumn) -> R,
) -> (Vec<R>, Vec<LayerColumn>) {
    let mut all: Vec<(R, LayerColumn)> = Vec::new();
    for DeviceData { device, data } in devices {
        for (kind, data) in data.by_kind() {
            let trial = JoinedTrial::new(data);
            let name = format!("{}, {}", device.name, kind.label());
            let mut column = column(machine, &name, &of_run(&trial));
            column.from_host = device.is_from_host;
            all.push((row(&device, kind, &trial, &mut column), column));
        }
    }
    all.sort_by(|(_, a), (_, b)| total_ns(b).total_cmp(&total_ns(a)));
    all.into_iter().unzip()
}

fn per_s(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

/// Findings that requests and packets have in common. `at`: the checkpoint that their thread makes them pass.
fn traced(
    kind: RequestKind,
    trial: &JoinedTrial,
    at: Checkpoint,
    count: fn(u64) -> RequestCount,
    seconds: f64,
) -> VmTraced {
    let operations = trial.matched.operations;
    VmTraced {
        thread: trial.thread_at(at),
        kind,
        count: count(operations),
        followed: trial.matched.joined,
        per_s: per_s(operations as f64, seconds),
    }
}

fn requests(
    device: &Device<Option<TracedDisk>>,
    kind: RequestKind,
    trial: &JoinedTrial,
    column: &mut LayerColumn,
    seconds: f64,
) -> VmRequests {
    let disk = device.known.as_ref();
    if disk.is_some_and(|disk| is_made_up(&disk.disk)) {
        within_qemu(column);
    }
    let (mut kavg, mut davg) = <(Distribution, Distribution)>::default();
    for request in &trial.requests {
        let device = time_at_device(request);
        kavg.add(trial.ns(request.total().saturating_sub(device)));
        davg.add(trial.ns(device));
    }
    // What a flush makes the device do cannot be distinguished from others' flushes.
    let is_placed = disk.is_some_and(|disk| is_placed(&disk.host))
        && matches!(kind, RequestKind::Read | RequestKind::Write);
    let has_pops = trial
        .requests
        .iter()
        .any(|request| request.at(Checkpoint::QemuPop).is_some());
    let taken = if has_pops {
        Checkpoint::QemuPop
    } else {
        Checkpoint::HostCall
    };
    VmRequests {
        disk: device.name.clone(),
        file: disk.map(|disk| disk.disk.file.display().to_string()),
        format: disk.and_then(|disk| disk.disk.format.clone()),
        traced: traced(kind, trial, taken, RequestCount::Requests, seconds),
        in_flight: per_s(total_ns(column) / 1e9, seconds),
        gavg: column.traced,
        kavg: is_placed.then(|| kavg.summary()),
        davg: is_placed.then(|| davg.summary()),
    }
}

fn packets(
    device: &Device<VmNic>,
    kind: RequestKind,
    trial: &JoinedTrial,
    column: &LayerColumn,
    seconds: f64,
) -> VmPackets {
    let on_tap = match kind {
        RequestKind::Transmit => Checkpoint::NetTapReceive,
        RequestKind::Receive if device.known.vhost => Checkpoint::NetVhostRead,
        _ => Checkpoint::NetTapRead,
    };
    VmPackets {
        tap: device.name.clone(),
        queues: device.known.queues,
        traced: traced(kind, trial, on_tap, RequestCount::Packets, seconds),
        time: column.traced,
        batching: batching(kind, &trial.requests),
    }
}

/// Returns the time that a request was at the host's device, in ticks; 0 if it was not there.
fn time_at_device(request: &JoinedRequest) -> u64 {
    let time_at = |checkpoint| request.at(checkpoint);
    let spent = time_at(Checkpoint::HostComplete).zip(time_at(Checkpoint::HostIssue));
    spent.map_or(0, |(complete, issue)| complete.saturating_sub(issue))
}

/// Names what imported traces do not distinguish: beneath QEMU's virtqueue, since no file says which of the host's devices has the
/// disk, and beneath the guest's kernel where QEMU is not traced.
fn not_distinguished(column: &mut LayerColumn) {
    let is_below_guest =
        |row: &&Row| row.from <= Checkpoint::GuestNotify && row.to >= Checkpoint::GuestInterrupt;
    let below_guest: Vec<String> = column
        .rows
        .iter()
        .filter(is_below_guest)
        .map(|row| row.label.clone())
        .collect();
    let below = |layer: Layer, label: &String| match layer {
        Layer::HostKernel | Layer::Device => Some(Layer::BelowVirtqueue),
        Layer::Qemu if below_guest.contains(label) => Some(Layer::BelowGuest),
        _ => None,
    };
    let waits = |row: &Row| {
        below(row.layer, &row.label).is_some() && row.state != State::Running && row.count > 0
    };
    // Without the scheduler's events all of the time looks like service time.
    let knows_states = column.rows.iter().any(waits);
    let rows = column.rows.iter_mut();
    let rows = rows.map(|row| (&mut row.layer, &mut row.state, &row.label));
    let spans = column
        .waterfalls
        .iter_mut()
        .flat_map(|drawn| &mut drawn.spans)
        .map(|span| (&mut span.layer, &mut span.state, &span.label));
    for (layer, state, label) in rows.chain(spans) {
        let Some(below) = below(*layer, label) else {
            continue;
        };
        *layer = below;
        if !knows_states {
            *state = State::NotDistinguished;
        }
    }
}

/// Without probes what a VMM does from its receipt of a completion, or of a packet, to the interrupt that it delivers is one
/// row: its own work.
fn delivered_by_vmm(column: &mut LayerColumn) {
    let is_own = |row: &&mut Row| {
        row.layer == Layer::Interrupt
            && matches!(row.from, Checkpoint::QemuReap | Checkpoint::NetTapRead)
    };
    let mut labels = Vec::new();
    for row in column.rows.iter_mut().filter(is_own) {
        row.layer = Layer::Qemu;
        labels.push(row.label.clone());
    }
    let spans = column
        .waterfalls
        .iter_mut()
        .flat_map(|drawn| &mut drawn.spans);
    spans
        .filter(|span| span.layer == Layer::Interrupt && labels.contains(&span.label))
        .for_each(|span| span.layer = Layer::Qemu);
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

/// Parts into which the traced time is divided, for the interval.
const PARTS: usize = 20;
/// Fewer requests are no load.
const MIN_REQUESTS: usize = 100;

/// Beginning and end of a trace, or of a request, ticks.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin: u64,
    end: u64,
}

/// The part of the trace in which a disk had no request; `None` without load, and where the trace lost events, since requests may be
/// among them.
fn empty_queue(disk: &str, data: &TrialData, traced: Span) -> Option<EmptyQueue> {
    let joined = data.joined.requests.iter().map(|request| Span {
        begin: request.first(),
        end: request.last(),
    });
    let rejected = data.joined.rejected.iter().map(|rejected| Span {
        begin: rejected.begin,
        end: rejected.end,
    });
    let spans: Vec<Span> = joined.chain(rejected).collect();
    if spans.len() < MIN_REQUESTS || !data.losses.is_empty() {
        return None;
    }
    let count = spans.len();
    let seconds = traced.end.checked_sub(traced.begin)? as f64 / data.mhz / 1e6;
    let parts = empty_parts(spans, traced)?;
    Some(EmptyQueue {
        disk: disk.to_owned(),
        per_s: count as f64 / seconds.max(f64::MIN_POSITIVE),
        empty: parts.iter().sum::<f64>() / PARTS as f64,
        by_part: estimate(parts),
    })
}

/// The fraction of each twentieth of the time in which none of the spans lasts; `None` where the time is too short for parts.
fn empty_parts(mut spans: Vec<Span>, traced: Span) -> Option<Vec<f64>> {
    let length = traced.end.checked_sub(traced.begin)? / PARTS as u64;
    if length == 0 {
        return None;
    }
    spans.sort_unstable_by_key(|span| span.begin);
    let mut busy = [0_u64; PARTS];
    let mut until = traced.begin;
    for span in spans {
        let (mut from, to) = (span.begin.max(until), span.end.min(traced.end));
        until = until.max(to);
        while from < to {
            let part = ((from - traced.begin) / length) as usize;
            let Some(sum) = busy.get_mut(part) else { break };
            let end = to.min(traced.begin + length * (part as u64 + 1));
            *sum += end - from;
            from = end;
        }
    }
    let empty = busy.map(|busy| 1.0 - busy as f64 / length as f64);
    Some(empty.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::decode::Loss;
    use crate::join::{Joined, Reason, Rejected};
    use proptest::prelude::*;
    use vmtax_findings::{ClockFinding, RequestKind};

    const TRACED: Span = Span {
        begin: 1000,
        end: 3000,
    };

    #[test]
    fn time_with_several_requests_counts_once_and_in_each_part() {
        let span = |begin, end| Span { begin, end };
        // Two at once, one over the border of two parts, one that began before the trace.
        let spans = vec![
            span(1110, 1120),
            span(1100, 1150),
            span(1290, 1310),
            span(900, 1010),
        ];
        let parts = empty_parts(spans, TRACED).unwrap();
        assert_eq!(parts[..4], [0.9, 0.5, 0.9, 0.9]);
        assert!(parts[4..].iter().all(|part| *part == 1.0), "{parts:?}");
        let none = span(5, 5);
        assert!(empty_parts(Vec::new(), none).is_none());
    }

    /// Two hundred requests in a millisecond, each of which takes a fifth of the time until the next.
    fn data(losses: Vec<Loss>) -> TrialData {
        let rejected = (0..200).map(|number| Rejected {
            begin: number * 5000,
            end: number * 5000 + 1000,
            kind: RequestKind::Read,
            reason: Reason::Violation,
        });
        let joined = Joined {
            rejected: rejected.collect(),
            ..Joined::default()
        };
        TrialData {
            costs: Vec::new(),
            joined,
            losses,
            clock: ClockFinding::default(),
            mhz: 1000.0,
            missing: Vec::new(),
            first: None,
        }
    }

    #[test]
    fn a_queue_is_empty_between_requests_and_of_lost_ones_nothing_is_said() {
        let traced = Span {
            begin: 0,
            end: 1_000_000,
        };
        let found = empty_queue("vda", &data(Vec::new()), traced).unwrap();
        assert_eq!((found.disk.as_str(), found.per_s), ("vda", 200_000.0));
        assert!((found.empty - 0.8).abs() < 1e-9, "{found:?}");
        let interval = found.by_part.interval.unwrap();
        assert!(interval.low > 0.799 && interval.high < 0.801, "{found:?}");
        let lost = Loss {
            from: 1,
            to: 2,
            events: 3,
        };
        assert_eq!(empty_queue("vda", &data(vec![lost]), traced), None);
        let mut few = data(Vec::new());
        few.joined.rejected.truncate(99);
        assert_eq!(empty_queue("vda", &few, traced), None, "no load");
    }

    proptest! {
        #[test]
        fn no_part_is_more_than_empty_or_less_than_full(ends in prop::collection::vec((0_u64..5000, 0_u64..5000), 0..40)) {
            let spans = ends.into_iter().map(|(begin, end)| Span { begin, end }).collect();
            let parts = empty_parts(spans, TRACED).unwrap();
            prop_assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)));
        }
    }
}
